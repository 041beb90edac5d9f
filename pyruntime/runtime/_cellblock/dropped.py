"""An interrupt in a place where Python drops exceptions, a finalizer, ends nothing
there: it is raised once more."""

import _signal
import _thread
import sys
import time

AGAIN = 0.01  # seconds; by then the place has been left


class Dropped:
    """What sys.unraisablehook gets. The audit event comes first, whatever hook a cell
    has set."""

    def __init__(self, worker):
        self._worker = worker
        self._ours = None  # an interrupt that is not to be shown

    def install(self):
        """Be what shows exceptions that are dropped."""
        sys.unraisablehook = self._show

    def see(self, err):
        """Python drops err."""
        worker = self._worker
        if err is None or err is not worker.raised:
            return
        worker.raised, self._ours = None, err
        self._later()

    def _show(self, args):
        worker = self._worker
        ours, self._ours = self._ours, None
        if ours is not None and args.exc_value is ours:
            return
        if _thread.get_ident() != worker.origins.main:
            sys.__unraisablehook__(args)
            return
        worker.hold += 1  # here, too, an exception would be dropped, and no event tells of it
        try:
            sys.__unraisablehook__(args)
        finally:
            worker.hold -= 1
        if worker.interrupted():
            self._later()

    def _later(self):
        # By a thread: a signal from here would be served here.
        worker = self._worker
        worker.hold += 1
        try:
            _thread.start_new_thread(self._interrupt, (worker.running,))
        except (RuntimeError, MemoryError):  # the cell has left no thread to start
            worker.stopped = worker.running  # at its next call
        finally:
            worker.hold -= 1

    def _interrupt(self, target):
        time.sleep(AGAIN)
        worker = self._worker
        with worker.ending:
            if target is not None and worker.running == target:
                worker.stopped = target
                _signal.pthread_kill(worker.origins.main, _signal.SIGINT)
