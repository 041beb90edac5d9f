"""Host calls of the running cell: from any of its threads and tasks, many at once.

There is one wire and no thread of its own that reads it: a thread would be seen by
every cell, and by everything that forks. Whoever waits for an answer and finds
nobody reading reads itself, and hands on what is not its own. In an event loop the
loop watches the wire. The main thread reads it between cells.
"""

import _signal
import _thread
import sys

from . import codec
from .errors import HostError, InvalidArguments, TurnYield, closed
from .wire import Closed

MAX_ARGUMENTS = 1 << 20  # bytes of one call's arguments
MAX_FLIGHT = 32  # calls that the host has at once; further ones wait here
_LOOK = 100  # milliseconds between two looks of a thread whether its cell has ended


class _Call:
    """One call: of which scope, and where its answer goes."""

    __slots__ = ("number", "scope", "text", "lock", "done", "value", "error", "loop", "future")

    def __init__(self, scope, text, loop):
        self.number = None  # not sent yet
        self.scope = scope
        self.text = text
        self.done = False
        self.value = self.error = self.lock = self.future = None
        self.loop = loop
        if loop is None:
            self.lock = _thread.allocate_lock()
            self.lock.acquire()
        else:
            self.future = loop.create_future()

    def wake(self):
        """Let the thread that waits look again."""
        try:
            self.lock.release()
        except RuntimeError:  # it has been woken already
            pass


def running_loop():
    """The event loop that runs in this thread, or None."""
    asyncio = sys.modules.get("asyncio.events")
    return None if asyncio is None else asyncio._get_running_loop()


class Calls:
    """The calls in flight of one worker."""

    def __init__(self, worker):
        self._worker = worker
        self._wire = worker.wire
        self._main = worker.origins.main
        self._poll = None
        self._loops = {}  # event loop -> its calls in flight
        self.yielded = False  # the host has said that the running cell is to end
        self.last = 0  # number of the newest call
        # A signal may come while the loop waits: what is called soon then has to wake it.
        self._in_loop = True
        self.fresh()

    def fresh(self):
        """No call at all: at the start, and in a forked child."""
        self.reader = _thread.allocate_lock()  # held by whoever reads the wire
        self._table = _thread.allocate_lock()
        self._out = _thread.allocate_lock()  # numbers go up on the wire
        self._flight = {}
        self._queue = []

    # -- making calls --------------------------------------------------------------

    def call(self, name, arguments):
        """Ask the host. In a thread with a running event loop: an awaitable."""
        loop = running_loop()
        if loop is None:
            return self.sync(name, arguments)
        waiting = self._awaited(loop, name, arguments)
        waiting.__qualname__ = name
        return waiting

    def sync(self, name, arguments):
        """Ask the host and wait for the answer. HostError when there is none."""
        call = self._begin(name, arguments, None)
        main = _thread.get_ident() == self._main
        try:
            while not call.done:
                if main:
                    self._worker.check()  # at once: the signal may take a while
                if not self._lead(call, main):
                    call.lock.acquire()
        except BaseException:
            self._cancel(call)
            raise
        finally:
            self._pass_on()
        if main:
            self._worker.check()
        if call.error is not None:
            raise call.error
        return call.value

    async def _awaited(self, loop, name, arguments):
        call = self._begin(name, arguments, loop)
        try:
            return await call.future
        finally:
            if not call.done:
                self._cancel(call)
            self._unwatch(loop)

    def _begin(self, name, arguments, loop):
        scope = self._worker.scope_of_caller()
        if self.yielded or _yielding():
            raise closed("the cell has yielded")
        why = codec.misnamed(name)
        if why is not None:
            raise InvalidArguments("invalid-arguments", "%.80r: %s" % (name, why))
        try:
            text = codec.dumps(codec.strict(arguments))
        except (TypeError, ValueError) as err:
            raise type(err)("%s: arguments: %s" % (name, err)) from None
        if len(text) > MAX_ARGUMENTS:
            raise HostError("too-large", "%s: the arguments have %d bytes, at most %d are taken" % (name, len(text), MAX_ARGUMENTS))
        tail = '"op":"host","name":%s,"arguments":%s' % (codec.dumps(name), text)
        if scope is not None:
            tail += ',"scope":' + codec.dumps(scope)
        call = _Call(scope, tail, loop)
        if loop is not None:
            self._watch(loop)
        self._hold(1)
        try:
            with self._table:
                if len(self._flight) >= MAX_FLIGHT:
                    self._queue.append(call)
                    return call
                self._send(call)
        finally:
            self._hold(-1)
        return call

    def _send(self, call):
        """Send a call. The caller holds the table."""
        with self._out:
            self.last += 1
            call.number = self.last
            self._flight[call.number] = call
            self._wire.write('{"id":%d,%s}' % (call.number, call.text))
        call.text = None

    def _cancel(self, call):
        """Nobody waits for this call any more."""
        self._hold(1)
        try:
            with self._table:
                call.done = True
                if call.number is None:
                    if call in self._queue:
                        self._queue.remove(call)
                    return
                if self._flight.pop(call.number, None) is None:
                    return
                with self._out:
                    self.last += 1
                    scope = "" if call.scope is None else ',"scope":' + codec.dumps(call.scope)
                    self._wire.write('{"id":%d,"op":"host","name":"host.cancel","arguments":{"call":%d}%s}' % (self.last, call.number, scope))
                self._next()
        finally:
            self._hold(-1)

    def _next(self):
        """Send what waits for a place. The caller holds the table."""
        while self._queue and len(self._flight) < MAX_FLIGHT:
            self._send(self._queue.pop(0))

    def _hold(self, by):
        # While the main thread is here an interrupt waits: what it would break off
        # is what every other call needs. One that another thread has read meanwhile
        # is raised afterwards: the launcher sends no further signal for it.
        if _thread.get_ident() == self._main:
            self._worker.hold += by
            if not self._worker.hold and self._worker.interrupted():
                _signal.pthread_kill(self._main, _signal.SIGINT)

    # -- taking answers ------------------------------------------------------------

    def _lead(self, call, main):
        """Read the wire until call is answered; False when somebody else reads."""
        self._hold(1)
        try:
            if not self.reader.acquire(False):
                return False
            try:
                while not call.done and not (main and self._worker.interrupted()):
                    if main or self._ready():
                        self.take(self._receive(True))
                self.drain()
            finally:
                self.reader.release()
                self._pass_on()
        finally:
            self._hold(-1)
        return True

    def _ready(self):
        """Whether there is something to read, after a short wait. A thread's cell may
        end meanwhile, and then the wire is the main thread's."""
        if self._wire.buffered():
            return True
        if self._poll is None:
            import select

            self._poll = select.poll
        poll = self._poll()
        poll.register(self._wire.fileno(), 1)  # POLLIN
        return bool(poll.poll(_LOOK))

    def _receive(self, block):
        try:
            return self._wire.receive(block)
        except Closed:
            self._worker.leave(0)
        except ValueError as err:
            self.broken(str(err))

    def drain(self):
        """Hand on every line that is here already: no descriptor tells of it."""
        while self._wire.buffered():
            self.take(self._receive(False))

    def readable(self, in_loop=True):
        """An event loop found the wire readable, or a signal says that it may be."""
        self._hold(1)
        try:
            if not self.reader.acquire(False):
                return  # whoever reads it hands the answers on
            try:
                self._in_loop = in_loop
                while True:
                    got = self._receive(False)
                    if got is None:
                        break
                    self.take(got)
            finally:
                self._in_loop = True
                self.reader.release()
                self._pass_on()
        finally:
            self._hold(-1)

    def _pass_on(self):
        """Nobody reads: let one of those who wait do it."""
        for call in list(self._flight.values()) + self._queue:
            if call.lock is not None and not call.done:
                call.wake()
                return

    def take(self, got):
        """One message that came while a cell runs. The caller holds the reader."""
        if got is None:
            return
        message, fds = got
        if "op" in message:
            self._worker.control(message, fds)
        else:
            self.answered(message)

    def answered(self, message):
        """An answer. One for a call that was cancelled, or of another scope, is ignored."""
        number = message.get("id")
        error = message.get("error")
        if type(number) is not int or not set(message) <= {"id", "scope", "value", "error"} or ("value" in message) == ("error" in message):
            self.broken("an answer is id, scope, and value or error")
        if "error" in message and not (type(error) is dict and type(error.get("code", "")) is str and type(error.get("message", "")) is str
                                       and type(error.get("type", "")) is str and type(error.get("fields", {})) is dict):
            self.broken("the error of an answer is type, code, message and fields")
        if not 0 < number <= self.last:
            self.broken("an answer to call %d, which was never made" % number)
        with self._table:
            call = self._flight.get(number)
            if call is None or message.get("scope", call.scope) != call.scope:
                return
            del self._flight[number]
            self._next()
        if error is not None and error.get("code") == "turn-yield":
            self.yielded = True
            error = TurnYield(error["message"]) if error.get("message") else TurnYield()
        elif error is not None:
            kind = closed if error.get("code") == "scope-closed" else None
            message_text = error.get("message", "")
            error = kind(message_text) if kind else HostError(error.get("code", "failed"), message_text, error.get("type", "HostError"), error.get("fields"))
        self._deliver(call, message.get("value"), error)

    def _deliver(self, call, value, error):
        call.value, call.error = value, error
        call.done = True
        if call.future is None:
            call.wake()
        elif self._in_loop and running_loop() is call.loop:
            _settle(call)
        else:
            try:
                call.loop.call_soon_threadsafe(_settle, call)
            except RuntimeError:  # the loop has been closed
                pass

    def broken(self, what):
        """The host does not keep to the protocol: there is nothing to go on with."""
        self._worker.leave(70, "protocol error: " + what)

    # -- event loops ---------------------------------------------------------------

    def _watch(self, loop):
        count = self._loops.get(loop, 0)
        self._loops[loop] = count + 1
        if not count:
            try:
                loop.add_reader(self._wire.fileno(), self.readable)
            except BaseException:
                del self._loops[loop]
                raise

    def _unwatch(self, loop):
        count = self._loops.get(loop, 0) - 1
        if count > 0:
            self._loops[loop] = count
            return
        self._loops.pop(loop, None)
        try:
            loop.remove_reader(self._wire.fileno())
        except RuntimeError:  # the loop has been closed
            pass

    # -- the end of a cell ---------------------------------------------------------

    def close(self):
        """The cell has ended: whatever still waits gets ScopeClosed. The host cancels
        the calls when it has the cell's reply."""
        if not self._flight and not self._queue:
            return
        self._hold(1)
        try:
            with self._table:
                left = list(self._flight.values()) + self._queue
                self._flight.clear()
                del self._queue[:]
            for call in left:
                self._deliver(call, None, closed("the cell ended before the call was answered"))
        finally:
            self._hold(-1)


def _settle(call):
    """In the call's own loop: hand its answer to whoever awaits it."""
    if call.future.done():
        return
    if call.error is not None:
        call.future.set_exception(call.error)
    else:
        call.future.set_result(call.value)


def _yielding():
    """Whether the caller runs in a finally or except clause of a TurnYield."""
    err = sys.exc_info()[1]
    for _ in range(16):
        if err is None:
            return False
        if isinstance(err, TurnYield):
            return True
        err = err.__context__
    return False
