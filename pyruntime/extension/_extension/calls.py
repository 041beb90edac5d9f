"""Host calls that handlers make: numbered, sent, and their replies handed out."""

import queue
import sys
import threading

from _cellblock import codec
from cellblock import data
from cellblock.errors import HostError

MAX_IN_FLIGHT = 64  # of one worker


class Calls:
    """The worker's own requests."""

    def __init__(self, wire, want):
        self.wire = wire
        self.want = want  # says that an answer will come
        self.lock = threading.Lock()
        self.number = 0
        self.waiting = {}  # number -> function that takes the reply

    def send(self, name, arguments, scope, take):
        """Send a host call; take(reply) is called by the thread that reads."""
        message = {"id": 0, "op": "host", "name": name, "arguments": data.plain(arguments, "the arguments"), "scope": scope}
        with self.lock:
            if len(self.waiting) >= MAX_IN_FLIGHT:
                raise HostError("busy", "%d host calls of this worker wait for an answer" % MAX_IN_FLIGHT)
            self.number += 1
            number = message["id"] = self.number
            self.waiting[number] = take
            try:
                self.wire.send(message)  # under the lock: numbers go up on the wire
            except ValueError as err:
                del self.waiting[number]
                raise HostError("too-large", str(err)) from None
            except BaseException:
                del self.waiting[number]
                raise
        self.want()
        return number

    def reply(self, message):
        """Hand out one reply. One that nobody waits for any more is dropped."""
        with self.lock:
            take = self.waiting.pop(message.get("id"), None)
        if take is not None:
            take(message)

    def caller(self, lane, job):
        """The function by which job's context makes host calls."""

        def call(name, arguments):
            name = str(name)
            why = codec.misnamed(name)
            if why is not None:
                raise HostError("invalid-arguments", "%.80r: %s" % (name, why))
            loop = _running_loop()
            if loop is not None:
                return self._awaited(loop, name, arguments, str(job.number))
            return self._blocking(lane, job, name, arguments)

        return call

    def _blocking(self, lane, job, name, arguments):
        found = queue.SimpleQueue()  # the reply, or None when the job is stopped

        def wake():
            found.put(None)

        own = threading.get_ident() == lane.ident
        if own:
            lane.leave()
        try:
            with lane.lock:
                stopped = job.cancelled
                job.waiters.append(wake)
            if stopped:
                raise KeyboardInterrupt
            number = self.send(name, arguments, str(job.number), found.put)
            reply = found.get()
            if reply is None:
                with self.lock:
                    self.waiting.pop(number, None)
                raise KeyboardInterrupt
            return value_of(reply)
        finally:
            with lane.lock:
                job.waiters.remove(wake)
            if own:
                lane.enter(job)  # KeyboardInterrupt when the job was cancelled meanwhile

    async def _awaited(self, loop, name, arguments, scope):
        future = loop.create_future()

        def settle(reply):
            if not future.done():
                future.set_result(reply)

        def take(reply):
            try:
                loop.call_soon_threadsafe(settle, reply)
            except RuntimeError:
                pass  # the loop is closed: nobody waits

        number = self.send(name, arguments, scope, take)
        try:
            return value_of(await future)
        except BaseException:
            if not future.done() or future.cancelled():
                self._forget(number, scope)
            raise

    def _forget(self, number, scope):
        with self.lock:
            waited = self.waiting.pop(number, None) is not None
        if waited:
            try:
                self.send("host.cancel", {"call": number}, scope, lambda reply: None)
            except HostError:
                pass  # the launcher cancels it when the call that it belongs to ends


def value_of(reply):
    """The value of a reply; HostError for its error."""
    error = reply.get("error")
    if error is None:
        return reply.get("value")
    raise HostError(error.get("code", "failed"), error.get("message", ""), error.get("fields"), error.get("type", "HostError"))


def _running_loop():
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
