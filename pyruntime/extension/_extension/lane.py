"""One extension's thread, and what stops what runs there.

Calls into an extension come one after the other, so that a handler may keep what
belongs to one thread, such as a connection to SQLite. Coroutines run in the
thread's own event loop.
"""

import queue
import threading

from cellblock import data, errors

from .end import leave


def _raise_in(ident, kind):
    """Have a thread raise kind at its next step; None takes that back."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(kind) if kind is not None else None)


class Job:
    """One call into an extension."""

    def __init__(self, number, work):
        self.number = number  # of the launcher's request
        self.work = work  # () -> value, or a coroutine; foreign code
        self.context = None
        self.cancelled = False
        self.pressed = False  # a coroutine was asked to stop already
        self.started = False
        self.answered = False
        self.task = None
        self.waiters = []  # host calls that other threads are parked in


class Lane(threading.Thread):
    """The thread of one extension. answer(number, reply) sends what came of a job."""

    def __init__(self, name, answer, turn):
        super().__init__(name=name, daemon=True)
        self.answer = answer
        self.turn = turn
        self.jobs = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.inside = None  # the job whose foreign code runs in this thread now
        self.hit = False  # an exception may be on its way to this thread
        self.loop = None

    def run(self):
        while True:
            job = self.turn.next(self)
            while not job.answered:
                try:
                    self._do(job)
                except KeyboardInterrupt:
                    pass  # it came in the moment in which the job ended
                except BaseException as err:  # without its thread no call would be answered
                    errors.show(err)
                    leave(1)
            self.turn.done()

    def _do(self, job):
        reply = None
        if not job.started:
            job.started = True
            try:
                self.enter(job)
                value = data.plain(self._run(job))
                self.leave()
                reply = {"value": value}
            except BaseException as err:
                self.leave()
                reply = {"error": self._report(job, err)}
        self.leave()
        if job.context is not None:
            job.context._live = False
        job.answered = True
        self.answer(job.number, reply or {"error": self._report(job, KeyboardInterrupt())})

    def _run(self, job):
        value = job.work()
        if not hasattr(value, "__await__"):
            return value
        self.leave()  # an exception in the middle of an import leaves half a module behind
        import asyncio

        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        self.enter(job)

        async def await_it():
            return await value

        with self.lock:
            job.task = self.loop.create_task(await_it())
            if job.cancelled:
                job.task.cancel()
        try:
            return self._drive(job.task)
        except BaseException:
            if not job.task.done():
                job.task.cancel()
                self._drive(self.loop.create_task(asyncio.wait([job.task], timeout=1)))
            raise
        finally:
            self._spare_loop()

    def _drive(self, task):
        """Run the loop until the task is done, and return its result."""
        task.add_done_callback(lambda done: self.loop.stop())
        # A run that an exception broke off may have left a call to stop() in the loop,
        # which ends the next run early; so one run may be too few.
        try:
            while not task.done():
                self.loop.run_forever()
            return task.result()
        except BaseException:
            if task.done() and not task.cancelled():
                task.exception()  # else asyncio says later that nobody has asked for it
            raise

    def _spare_loop(self):
        """Give up a loop that was struck while it put itself away: it would for ever say
        that it runs."""
        if self.loop.is_running():
            import asyncio

            asyncio._set_running_loop(None)
            self.loop = None

    def _report(self, job, err):
        # By its type: isinstance asks the exception itself, whose answer may be one more.
        if job.cancelled and not issubclass(type(err), Exception):
            return {"type": "HostError", "code": "cancelled", "message": "the call was cancelled"}
        if not issubclass(type(err), errors.HostError):
            errors.show(err)
        return errors.report(err)

    # -- the border between foreign code and ours ---------------------------------
    #
    # An exception is sent to the thread only while it is inside, under the lock; what
    # was sent and has not come is taken back on the way out. So that it never
    # strikes in the middle of a line that is being written.

    def enter(self, job):
        """Foreign code begins. KeyboardInterrupt when the job was cancelled."""
        with self.lock:
            if job.cancelled:
                raise KeyboardInterrupt
            self.inside = job

    def leave(self):
        """Foreign code has ended or is parked."""
        while True:
            try:
                with self.lock:
                    self.inside = None
                    if self.hit:
                        self.hit = False
                        _raise_in(self.ident, None)
                return
            except KeyboardInterrupt:
                continue  # the one that was on its way

    def cancel(self, job):
        """Stop a job, from another thread; asked twice, a coroutine is struck, too."""
        with self.lock:
            first, job.cancelled = not job.cancelled, True
            task, again, job.pressed = job.task, job.pressed, True
            if self.inside is job and (task is None or again):
                self.hit = True
                _raise_in(self.ident, KeyboardInterrupt)
            if task is not None:
                task.get_loop().call_soon_threadsafe(task.cancel)
            waiters = list(job.waiters)
        if not first:
            return
        for wake in waiters:
            wake()
        context = job.context
        if context is None:
            return
        context._cancelled = True
        for callback in list(context._callbacks):
            try:
                callback()
            except BaseException as err:  # it runs in the thread that reads the wire
                errors.show(err)
