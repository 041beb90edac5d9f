"""Who reads the wire: the thread that is likely to serve what comes next.

A call that follows another then wakes no thread but the one that serves it. While that
one is at work nobody reads; the main thread looks at short intervals and reads when a
job takes longer, so that what comes meanwhile (the call's own end, calls of other
extensions) is not held up. When nothing has come for a while it looks no more, until
a job begins.
"""

import queue
import threading

TICK = 0.005  # seconds that a job may take before the main thread reads
QUIET = 200  # ticks without a job after which the main thread sleeps
_MAIN = object()


class Turn:
    """The turn to read. take(block) reads one message and hands it out."""

    def __init__(self, wire, take):
        self._wire = wire
        self._take = take
        self._lock = threading.Lock()
        self._reader = None  # a Lane, or _MAIN; there is one, or else some lane is busy and will be
        self._busy = 0  # jobs that are in a lane
        self._moves = 0  # jobs that were given or done
        self._wanted = False
        self._asleep = False
        self._bell = threading.Lock()
        self._bell.acquire()

    def give(self, lane, job):
        """Give a lane a job. Whoever reads the wire calls it."""
        with self._lock:
            self._busy += 1
            self._moves += 1
        lane.jobs.put(job)

    def done(self):
        """A job has been answered."""
        with self._lock:
            self._busy -= 1
            self._moves += 1

    def want(self):
        """An answer will come that somebody waits for who does not read."""
        with self._lock:
            self._wanted = True
        self._ring()

    def next(self, lane):
        """The lane's next job; it reads for it when nobody else does."""
        while True:
            try:
                return lane.jobs.get_nowait()
            except queue.Empty:
                pass
            with self._lock:
                if self._reader is None:
                    self._reader = lane
                mine = self._reader is lane
            if not mine:
                return lane.jobs.get()
            while lane.jobs.empty():
                self._take(True)
            self._leave()

    def watch(self):
        """The main thread's part: read whenever no lane does, and none is about to."""
        while True:
            self._await()
            with self._lock:
                given = self._moves
            while True:
                self._take(True)
                with self._lock:
                    # One alone is for its own lane to follow.
                    if self._moves != given and self._busy == 1 and not self._wanted:
                        break
                    given = self._moves
                    self._wanted = False
            self._leave()

    def _leave(self):
        """Let others read. What is in the buffer already no descriptor tells of."""
        while self._wire.buffered():
            self._take(False)
        with self._lock:
            self._reader = None
            asleep, self._asleep = self._asleep, False
        if asleep:
            self._ring()

    def _await(self):
        """Wait until the turn is the main thread's."""
        quiet, seen = 0, None
        while True:
            with self._lock:
                moves = self._moves
                if self._reader is None and (self._busy == 0 or self._wanted or moves == seen):
                    self._reader, self._wanted = _MAIN, False
                    return
                quiet = quiet + 1 if moves == seen else 0
                self._asleep = quiet > QUIET and self._reader is not None
                asleep, seen = self._asleep, moves
            self._bell.acquire(timeout=-1 if asleep else TICK)

    def _ring(self):
        try:
            self._bell.release()
        except RuntimeError:  # it rings already
            pass
