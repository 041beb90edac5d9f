"""sys.stdout, sys.stderr and sys.stdin of a worker.

stdout and stderr are ordinary text files over descriptors 1 and 2, which are
pipes to the host: children and native code write to the same pipes, so order is
kept as far as Linux allows. What a thread or task of an earlier cell writes is
told apart here and handed over as background records.
"""

import _contextvars
import _thread
import io
import os
import sys
from time import perf_counter as _now

from . import codec

# The cell whose code runs in this context; tasks and callbacks carry it along.
cell_var = _contextvars.ContextVar("cellblock_cell", default=None)

_cell = cell_var.get
_ident = _thread.get_ident

MAX_WRITE = 4096  # characters of one background write that are kept
MAX_RECORDS = 256


class Origins:
    """Who writes: the running cell, or something an earlier cell left behind.

    Threads are told apart by Linux's thread id: Python's thread idents are
    addresses, given to the next thread as soon as one has ended.
    """

    def __init__(self):
        self.main = _thread.get_ident()
        self.current = None
        self._threads = {}  # native thread id -> cell that started it
        self._records = []
        self.dropped = 0
        self.flood = None  # the stream whose lines are held back for a moment

    def begin(self, cell):
        """Everything written from here on by new threads belongs to cell."""
        self.current = cell
        cell_var.set(cell)

    def end(self):
        """The cell is over: threads still alive are its leftovers."""
        cell, self.current = self.current, None
        if not _thread._count():
            self._threads.clear()
            return
        alive = _native_threads()
        made = sys.modules.get("threading")
        for thread in made.enumerate() if made is not None else ():
            if hasattr(thread, "_cell"):  # started by a leftover of an earlier cell
                self._threads.setdefault(thread.native_id, thread._cell)
        known = self._threads
        self._threads = {tid: known.get(tid, cell) for tid in alive}

    def adopt(self, function):
        """A thread is about to start: its starter's cell is its own."""
        if self.current is None or _thread.get_ident() != self.main or cell_var.get() != self.current:
            origin = self.stale()
            if origin is not None:
                try:
                    function.__self__._cell = origin
                except AttributeError:  # _thread.start_new_thread with a plain function
                    pass

    def watch(self, threading):
        """Before Python 3.12 no audit event tells that a thread is about to start."""
        start = threading._start_new_thread

        def start_new_thread(function, *rest):
            self.adopt(function)
            return start(function, *rest)

        threading._start_new_thread = start_new_thread

    def stale(self):
        """The earlier cell that the caller belongs to; None for the running one."""
        current = self.current
        origin = cell_var.get()  # tasks have it, and what asyncio.to_thread runs
        if origin is None:
            origin = self._threads.get(_thread.get_native_id())
            if origin is None:
                made = sys.modules.get("threading")
                thread = made._active.get(_thread.get_ident()) if made is not None else None
                origin = getattr(thread, "_cell", current)
        if origin == current and current is not None:
            return None
        return origin or "unassigned"

    def keep(self, origin, stream, text):
        """Keep one background write; neighbours of one origin are merged."""
        text = codec.clean(text[:MAX_WRITE])
        last = self._records[-1] if self._records else None
        if last and last["origin"] == str(origin) and last["stream"] == stream and len(last["text"]) + len(text) <= MAX_WRITE:
            last["text"] += text
        elif len(self._records) < MAX_RECORDS:
            self._records.append({"origin": str(origin), "stream": stream, "text": text})
        else:
            self.dropped += 1

    def take(self):
        """The background records since the last call."""
        taken, self._records = self._records, []
        return taken


def _native_threads():
    """Linux's ids of this process's threads, without the main one."""
    try:
        found = [int(tid) for tid in os.listdir("/proc/self/task")]
    except OSError:
        made = sys.modules.get("threading")
        found = [t.native_id for t in made.enumerate()] if made is not None else []
    main = os.getpid()
    return [tid for tid in found if tid != main]


_write = io.TextIOWrapper.write
_buffer = io.TextIOWrapper.buffer.__get__

# A flood: so many writes and characters, in no more than that time (seconds).
FLOOD_WRITES = 256
FLOOD_CHARS = 16384  # less than that the launcher takes for none: kernel/pump.go
FLOOD_TIME = 0.01
_AFTER_WRITE = -1 << 62


class Output(io.TextIOWrapper):
    """A text file over fd 1 or 2 that knows which cell writes.

    Each line goes out at once: nothing is lost with a process that dies, and what
    children and native code write comes in its order. Only in a flood of lines is
    that too dear; then they go out in blocks. A flood ends when it slows down, with
    a write to the other stream, before anything that has an audit event (a child, a
    sleep, a file, a signal), with the cell, and by SIGURG, which the launcher sends
    when nothing has come for a moment. Who asks for the descriptor or the buffer,
    to write there himself, has it line by line from then on.
    """

    def __init__(self, fd, name, origins):
        raw = io.FileIO(fd, "wb", closefd=False)
        super().__init__(io.BufferedWriter(raw, 65536), encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self._stream = name
        self._origins = origins
        self._steady = False  # never in blocks
        self._writes = self._chars = 0  # since _since
        self._since = 0.0

    @property
    def name(self):
        return "<%s>" % self._stream

    @property
    def buffer(self):
        self._keep_steady()
        return _buffer(self)

    def fileno(self):
        """The descriptor: 1 or 2."""
        self._keep_steady()
        return super().fileno()

    def reconfigure(self, **settings):
        """As of any text file; how it is buffered is the caller's from then on."""
        self._keep_steady()
        super().reconfigure(**settings)

    def write(self, text):
        origins = self._origins
        if origins.current is None or _ident() != origins.main or _cell() != origins.current:
            if isinstance(text, str):
                origin = origins.stale()
                if origin is not None:
                    origins.keep(origin, self._stream, text)
                    return len(text)
        flood = origins.flood
        if flood is not self and flood is not None:
            flood.calm()
        self._writes += 1
        if self._writes >= FLOOD_WRITES:
            self._count()
        size = _write(self, text)
        self._chars += size
        if self._chars < 0:
            self.calm()
        return size

    def _count(self):
        now = _now()
        slow, self._since = now - self._since > FLOOD_TIME, now
        if slow:
            self.calm()  # which counts afresh
        elif self._origins.flood is self:
            self._writes = 0
        elif self._chars >= FLOOD_CHARS and not self._steady and self.line_buffering:
            _watch_exits(self._origins)
            super().reconfigure(line_buffering=False)
            self._origins.flood = self
            self._writes = 0

    def calm(self):
        """Write what is held, and each line at once again."""
        self._writes = self._chars = 0
        if self._origins.flood is self:
            try:
                super().reconfigure(line_buffering=True)  # which writes it
            except RuntimeError:
                # A signal's handler, in the middle of a write: that one sees to it.
                self._chars = _AFTER_WRITE
                return
            except (OSError, ValueError):
                return  # nobody reads any more
            self._origins.flood = None

    def _keep_steady(self):
        self.calm()
        self._steady = True

    def close(self):
        """Flush only: descriptors 1 and 2 stay open for the next cell."""
        self.flush()


def _watch_exits(origins):
    """Write what is held before the process ends by itself: no audit event tells of it."""
    for name in ("_exit", "abort"):
        _calm_before(name, origins)


def _calm_before(name, origins):
    real = getattr(os, name)
    if type(real) is not _BUILTIN:
        return  # it is ours, or the guest's

    def ending(*args, **keywords):
        flood = origins.flood
        if flood is not None:
            flood.calm()
        return real(*args, **keywords)

    ending.__name__ = ending.__qualname__ = name
    ending.__doc__ = real.__doc__
    setattr(os, name, ending)


_BUILTIN = type(len)


class Input(io.TextIOWrapper):
    """sys.stdin: what the host sent as standard input, then end of file."""

    def __init__(self):
        super().__init__(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), encoding="utf-8", errors="surrogateescape")
        self._pending = ""

    def feed(self, text):
        """Append text that the host sent."""
        self._pending += text

    def read(self, size=-1):
        if not self._pending:
            return super().read(size)
        if size is None or size < 0:
            size = len(self._pending)
        text, self._pending = self._pending[:size], self._pending[size:]
        return text

    def readline(self, size=-1):
        if not self._pending:
            return super().readline(size)
        end = self._pending.find("\n") + 1 or len(self._pending)
        if size is not None and size >= 0:
            end = min(end, size)
        return self.read(end)

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def close(self):
        """Nothing: exit() and quit() close sys.stdin, and the session goes on."""


def install(origins):
    """Make the three streams the interpreter's own, and return them."""
    sys.stdin = sys.__stdin__ = Input()
    sys.stdout = sys.__stdout__ = Output(1, "stdout", origins)
    sys.stderr = sys.__stderr__ = Output(2, "stderr", origins)
    return sys.stdin, sys.stdout, sys.stderr


def move_to(fds):
    """Put fresh pipes on descriptors 1 and 2; older children keep the old ones."""
    for fd, target in zip(fds, (1, 2)):
        if fd == target:  # after make_room
            os.set_inheritable(fd, True)
            continue
        os.dup2(fd, target, inheritable=True)
        os.close(fd)


def make_room():
    """Give up descriptors 1 and 2 for those that are to take their place: a cell has
    opened all that it may, and none are kept in reserve that cells would find."""
    for fd in (1, 2):
        try:
            os.close(fd)
        except OSError:
            pass  # a cell has done so
