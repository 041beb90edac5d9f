"""The worker's loop: one request of the host after the other."""

import _signal
import _thread
import builtins
import os
import sys
import time

from . import api, codec, prelude, show, source, streams
from .ask import Asker
from .calls import Calls
from .cell import NOTHING
from .dropped import Dropped
from .errors import closed, yield_of
from .hook import Hook
from .space import Space, place_directory
from .wire import Closed, Wire

PURPOSES = ("interactive", "maintenance", "eval")
MAX_AUDIT = 5000

# op -> (fields it may carry beside op, id and session: name -> (type, required))
OPS = {
    "install-runtime": {"directory": (str, True), "skillRoots": (list, False), "registry": (bool, False), "input": (bool, False), "maxOutput": (int, False), "figures": (bool, False), "reset": (bool, False), "reload": (bool, False)},
    "install-tool": {"name": (str, True), "schema": (dict, False), "doc": (str, False), "signature": (str, False)},
    "exec": {"code": (str, True)},
    "run": {"code": (str, True)},
    "run-block": {"code": (str, True), "purpose": (str, False), "limits": (dict, False), "cell": (int, False), "scope": (str, False), "pipes": (bool, False), "keep": (bool, False), "input": (bool, False)},
    "eval": {"code": (str, True)},
    "confine": {"read": (list, True), "write": (list, True), "refusal": (str, True), "deny": (list, False), "observed": (bool, False)},
    "network": {"enabled": (bool, True), "refusal": (str, False)},
    "stdin": {"text": (str, True)},
    "interrupt": {"target": (int, False)},
    "close": {},
}
RUNS = ("exec", "run", "run-block", "eval")  # those that run foreign code


class Refused(Exception):
    """A request that is not in order; the worker lives on."""


class NoDescriptors(Refused):
    """A request whose descriptors Linux has dropped: there was no number for them."""


def newest_pid():
    """The newest pid of this pid namespace: the last field of proc(5)'s loadavg.

    When it has not moved, no process and no thread was made, in whatever way.
    Opened each time: a cell's descriptors are 0, 1, 2 and the wire, no more.
    """
    try:
        fd = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 128).rpartition(b" ")[2]
    finally:
        os.close(fd)


def _report(err):
    """What a reply says of an exception. Its traceback takes modules that are loaded now,
    for which a cell may have left no descriptor or no memory."""
    try:
        from . import trace
    except (OSError, MemoryError, ImportError) as missing:
        found = {"ename": codec.name_of(err), "evalue": codec.value_of(err)}
        found["traceback"] = "%s: %s\n[no traceback: %s: %s]\n" % (found["ename"], found["evalue"], type(missing).__name__, codec.value_of(missing))
        return found
    return trace.report(err)


class Worker:
    """One session's interpreter."""

    def __init__(self, fd):
        self.wire = Wire(fd)
        self.origins = streams.Origins()
        self.stdin, self.stdout, self.stderr = streams.install(self.origins)
        self.dropped = Dropped(self)
        self.hook = Hook(self.origins, self.dropped.see)
        self.calls = Calls(self)
        self.asker = Asker(self.calls.sync)
        api.install(self.calls)
        self.space = None
        self.session = None  # name of the one session
        self.running = None  # id of the request whose code runs
        self.coming = None  # id of the request whose code will run next
        self.stopped = None  # the request whose interrupt has come before its code began
        self.raised = None  # the exception that an interrupt of the running code became
        self.owed = []  # interrupts of it that another thread has read, not answered
        self.ending = _thread.allocate_lock()  # held while running changes to None
        self.hold = 0  # the main thread does what an interrupt must not break off
        self.later = []  # messages that came while a cell ran
        self.scope = None  # of the cell that runs, as the host calls it
        self.cap = 20000
        self.cells = 0
        self.figures = True
        self._last_pid = newest_pid()
        self._user_handler = _signal.default_int_handler
        self._owner = os.getpid()

    # -- processes that a cell made ------------------------------------------

    def _forked(self):
        newest = newest_pid()
        moved = newest != self._last_pid or not newest
        self._last_pid = newest
        return moved

    # -- requests --------------------------------------------------------------

    def serve(self):
        """Answer requests until the host goes or says close."""
        _signal.signal(_signal.SIGINT, self._on_interrupt)
        _signal.signal(_signal.SIGURG, self._on_quiet)
        _signal.siginterrupt(_signal.SIGURG, False)
        os.register_at_fork(after_in_child=self._in_child)
        while True:
            # Before looking at what came meanwhile: from here on the handler
            # leaves the wire alone, or it would take the very message that this
            # thread is about to wait for.
            self.hold += 1
            with self.calls.reader:  # a thread of the last cell may be leaving
                message, fds = self.later.pop(0) if self.later else self.wire.receive(True)
                self.coming = message.get("id") if message.get("op") in RUNS else None
            self.hold -= 1
            if not self.answer(message, fds):
                return

    def answer(self, message, fds):
        """Do one request and reply; False after close."""
        number = message.get("id")
        if type(number) is not int:
            raise ValueError("a message without an id")
        op = message.get("op")
        if op is None:
            self.hold += 1
            self.calls.answered(message)  # that nobody waits for any more, or never did
            self.hold -= 1
            return True
        try:
            self._check(op, message, fds)
            extra = {}
            value = getattr(self, "do_" + op.replace("-", "_"))(message, fds, extra)
            reply = {"id": number, "value": value}
            reply.update(extra)
        except Refused as err:
            for fd in fds:
                os.close(fd)
            reply = {"id": number, "error": {"type": type(err).__name__, "message": str(err)}}
        except Closed:
            raise
        except BaseException as err:
            reply = {"id": number, "error": {"type": type(err).__name__, "message": codec.value_of(err)}}
        self.hold += 1  # the handler writes too, and a line is written whole
        try:
            self.wire.send(reply)
        except ValueError as err:
            if op == "run-block" and "value" in reply:
                for name in ("reprs", "figures", "audit", "observed", "background"):
                    if reply["value"].pop(name, None):
                        reply["value"].setdefault("notes", []).append("%s left out: %s" % (name, err))
                self.wire.send(reply)
            else:
                self.wire.send({"id": number, "error": {"type": "Refused", "message": "reply: %s" % err}})
        finally:
            self.hold -= 1
        return op != "close" or reply.get("value") is not True

    def _check(self, op, message, fds):
        fields = OPS.get(op) if type(op) is str else None
        if fields is None:
            raise Refused("unknown op %s" % codec.describe(op))
        for name in message:
            if name not in ("id", "op", "session") and name not in fields:
                raise Refused("%s: unknown field %s" % (op, codec.clean(name)[:80]))
        for name, (kind, required) in fields.items():
            if name in message:
                if type(message[name]) is not kind:
                    raise Refused("%s: field %s is not %s" % (op, name, kind.__name__))
            elif required:
                raise Refused("%s: field %s is missing" % (op, name))
        if op == "run-block" and message.get("pipes"):
            if len(fds) != 2:
                while fds:  # one may have come, and may be what makes room
                    os.close(fds.pop())
                streams.make_room()
                raise NoDescriptors("run-block: its pipes did not arrive, since this process has as many files open as it may; a reset closes them")
        elif fds:
            raise Refused("%s: descriptors nobody asked for" % op)
        if self.session is not None and message.get("session") != self.session and op not in ("interrupt", "close"):
            raise Refused("%s: no such session" % op)
        if self.space is None and op not in ("install-runtime", "confine", "network", "interrupt", "close"):
            raise Refused("%s before install-runtime" % op)

    def do_install_runtime(self, message, fds, extra):
        if self.space is None:
            self.session = message.get("session")
            place_directory()
            if sys.version_info < (3, 12):
                source.after_import("threading", self.origins.watch)
            source.install()
            self.asker.install()
            os.chdir(message["directory"])
            self.space = Space(message["directory"], message.get("registry", True))
            self.space.skills.mount(message.get("skillRoots", []))
        elif message.get("reset"):
            self.space.reset()
            _signal.signal(_signal.SIGINT, self._on_interrupt)
            self._user_handler = _signal.default_int_handler
        if "input" in message:
            self.asker.offered = message["input"]
        self.cap = message.get("maxOutput", self.cap)
        self.figures = message.get("figures", self.figures)
        info = {"python": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable or "", "pid": os.getpid()}
        skills = self.space.skills
        if message.get("reload"):
            info["reload"] = {n: codec.clean(str(v)) for n, v in skills.reload(self.space.names).items()}
            count = len(skills.names)
        else:
            count = self.space.bind()
        info["skills"] = list(skills.names)
        info["skErrors"] = {n: codec.clean(str(v)) for n, v in skills.errors.items()}
        extra["info"] = info
        self._last_pid = newest_pid()
        return count

    def do_install_tool(self, message, fds, extra):
        parts = message["name"].split(".")
        if not all(p.isidentifier() for p in parts):
            raise Refused("install-tool: %s is no name" % codec.clean(message["name"])[:80])
        from . import tools

        tools.install(self.space.names, parts, message.get("doc", ""), message.get("schema", {}), message.get("signature", ""), self.calls)
        return message["name"]

    def do_exec(self, message, fds, extra):
        self._guarded(message, lambda: self.space.runner.run(message["code"], "<exec>"))
        return None

    def do_run(self, message, fds, extra):
        value = self._guarded(message, lambda: self.space.runner.run(message["code"], "<run>"))
        return codec.dumps(codec.describe(None if value is NOTHING else value))

    def do_eval(self, message, fds, extra):
        code = message["code"]
        return self._guarded(message, lambda: codec.clean(str(eval(compile(code, "<eval>", "eval"), self.space.names))))

    def do_confine(self, message, fds, extra):
        for name in ("read", "write", "deny"):
            if not all(type(p) is str and p.startswith("/") for p in message.get(name, ())):
                raise Refused("confine: %s is a list of absolute paths" % name)
        self.hook.confine(message["write"], message["refusal"], message.get("deny", ()), message.get("observed", False), self.space is None)
        return {"read": len(message["read"]), "write": len(message["write"])}

    def do_network(self, message, fds, extra):
        self.hook.network(message["enabled"], message.get("refusal", ""))
        return None

    def do_stdin(self, message, fds, extra):
        self.stdin.feed(message["text"])
        return None

    def do_interrupt(self, message, fds, extra):
        return False  # nothing runs while the loop answers this

    def do_close(self, message, fds, extra):
        return self.space is not None and message.get("session") == self.session

    def do_run_block(self, message, fds, extra):
        purpose = message.get("purpose", "interactive")
        if purpose not in PURPOSES:
            raise Refused("run-block: purpose %s is none of %s" % (codec.clean(purpose)[:80], ", ".join(PURPOSES)))
        limits = message.get("limits", {})
        cap = limits.get("value", self.cap)
        if set(limits) - {"value"} or type(cap) is not int or cap < 0:
            raise Refused("run-block: limits holds value, a number of characters")
        if fds:
            streams.move_to(fds)
        self.cells = cell = message.get("cell", self.cells + 1)
        self.scope = message.get("scope")
        self.calls.yielded = False
        notes, reply, raised = [], {"status": "ok"}, None
        offered, self.asker.offered = self.asker.offered, message.get("input", self.asker.offered)
        self.origins.begin(cell)
        before = self.space.values() if message.get("keep") else None
        start = time.perf_counter()
        try:
            self._guarded(message, lambda: self._cell(message["code"], cell, cap, reply, notes.append))
        except BaseException as err:
            ended = yield_of(err)
            if ended is not None:
                reply["yielded"] = True
                if ended.args:
                    reply["value"] = show.text_of(ended.args[0], cap)[0] if type(ended.args[0]) is not str else codec.clean(ended.args[0])[:cap]
            else:
                reply["status"] = "error"
                reply["error"] = _report(err)
                raised = err if message.get("keep") else None
        if self.calls.yielded:
            reply["yielded"] = True
        self._flush()
        if not self.wire.alive:
            self._end_child(reply)
        self.calls.close()
        self.origins.end()
        self.asker.offered = offered
        if sys.stdout is not self.stdout:
            sys.stdout = self.stdout
        if sys.stderr is not self.stderr:
            sys.stderr = self.stderr
        reply["durationMs"] = round((time.perf_counter() - start) * 1000, 3)
        if message.get("keep"):
            try:
                reply["definitions"] = self.space.definitions(message["code"], cell, before, raised)
            except Exception as err:  # objects of the guest's that answer as none should
                notes.append("definitions: this cell's are not kept: %s" % type(err).__name__)
            raised = None  # its traceback has this frame, and the cell's objects
        self._append(reply, notes)
        return reply

    def _cell(self, code, cell, cap, reply, note):
        space = self.space
        prelude.bind(code, space.names)
        value = space.runner.run(code, source.name_of(cell))
        if not self.wire.alive:
            return
        if value is not NOTHING and value is not None:
            builtins._ = value
            text, hint = show.text_of(value, cap)
            if text is not None:
                reply["value"] = text
            if hint:
                reply["shapeHint"] = hint
            reprs = show.rich(value, note)
            if reprs:
                reply["reprs"] = reprs
        if self.figures:
            taken = sum(len(body) for found in reply.get("reprs", ()) for body in found.values())
            figures = show.figures(note, taken)
            if figures:
                reply["figures"] = figures

    def _append(self, reply, notes):
        audit = self.space.take_audit()
        if audit:
            reply["audit"] = [codec.describe(e) for e in audit[:MAX_AUDIT]]
            if len(audit) > MAX_AUDIT:
                notes.append("%d audit entries left out" % (len(audit) - MAX_AUDIT))
        observed = self.hook.take()
        if observed:
            for entry in observed:
                entry["path"] = codec.clean(entry["path"])
            reply["observed"] = observed
        background = self.origins.take()
        if background:
            reply["background"] = background
        if self.origins.dropped:
            notes.append("%d background writes of Python code left out" % self.origins.dropped)
            self.origins.dropped = 0
        if self._forked():
            reply["forked"] = True
        if self.space.skills.errors:
            reply["skErrors"] = {n: codec.clean(str(v)) for n, v in self.space.skills.errors.items()}
        if notes:
            reply["notes"] = [codec.clean(n)[:500] for n in notes[:20]]

    # -- running code, and stopping it -------------------------------------------

    def _guarded(self, message, run):
        """Run foreign code: interrupts meant for this request reach it."""
        self.hook.begin()
        handler = self._user_handler
        if handler is not _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, handler)
        try:
            self.running = message["id"]
            self.check()
            return run()
        finally:
            self.hold += 1
            with self.ending:
                self.running = self.coming = self.raised = None
            self._settle_owed(False)
            self.hold -= 1
            handler = _signal.getsignal(_signal.SIGINT)
            if handler != self._on_interrupt:
                self._user_handler = handler
                _signal.signal(_signal.SIGINT, self._on_interrupt)

    def _on_interrupt(self, number, frame):
        if os.getpid() != self._owner:
            raise KeyboardInterrupt
        if self.hold:
            return  # the reader or sender sees the request itself, or the next signal does
        self.check()
        # On a busy host the launcher's next signal can come while this one is
        # served, and two readers would take one message: readable sees to it.
        self.calls.readable(False)

    def _on_quiet(self, number, frame):
        """The launcher has read much, and nothing for a moment. Linux ignores this
        signal where a cell has taken the handler away."""
        self.stdout.calm()
        self.stderr.calm()

    def interrupted(self):
        """Whether an interrupt for what runs has been read and not been raised."""
        return self.stopped is not None and self.stopped == self.running

    def check(self):
        """KeyboardInterrupt in the main thread, if one is meant for what it runs; the end
        of the task that it awaits, where that is what there is to interrupt."""
        if self.interrupted() and not self.hold:
            self.stopped = None
            self._settle_owed(True)
            if not self.space.runner.cancel_awaited(sys._getframe()):
                self.raised = KeyboardInterrupt()
                raise self.raised

    def _settle_owed(self, hit):
        """Answer interrupts that another thread has read."""
        self.hold += 1
        try:
            while self.owed:
                self.wire.send({"id": self.owed.pop(), "value": hit})
        finally:
            self.hold -= 1

    def control(self, message, fds):
        """One request that came while code runs."""
        if message.get("op") == "interrupt":
            with self.ending:
                current = self.coming if self.running is None else self.running
                target = message.get("target", current)
                # What came with the signal may have been read before this: right after a
                # reply, the next code waits in later.
                waits = any(m.get("id") == target and m.get("op") in RUNS for m, _ in self.later)
                hit = target is not None and (target == current or waits)
                if hit:
                    self.stopped = target  # raised by check, or by the code's first step
                # A signal can come just before the main thread blocks, and is then lost
                # on it. It answers itself, when it is stopped: until then the launcher
                # repeats the signal.
                owed = hit and target == self.running and _thread.get_ident() != self.origins.main
                if owed:
                    self.owed.append(message["id"])
            if owed:
                _signal.pthread_kill(self.origins.main, _signal.SIGINT)
            else:
                self.wire.send({"id": message["id"], "value": hit})
            return
        if message.get("op") == "stdin" and type(message.get("text")) is str:
            self.stdin.feed(message["text"])
            self.wire.send({"id": message["id"], "value": None})
            return
        self.later.append((message, fds))

    def scope_of_caller(self):
        """The scope by which the caller makes a host call. ScopeClosed for none."""
        if self.running is None or not self.wire.alive:
            raise closed("host calls are possible from a running cell only")
        origin = self.origins.stale() if self.origins.current is not None else None
        if self.origins.current is None and _thread.get_ident() != self.origins.main:
            origin = "unassigned"
        if origin is not None:
            raise closed("the cell that this thread or task belongs to has ended (%s)" % origin)
        return self.scope

    def leave(self, status, why=""):
        """End the process: the host has gone, or cannot be understood."""
        self.hook.watching = False
        if why:
            os.write(2, ("cellblock worker: %s\n" % why).encode("utf-8", "backslashreplace"))
        self._flush()
        os._exit(status)

    def _flush(self):
        self.stdout.calm()
        self.stderr.calm()
        for stream in (sys.stdout, sys.stderr, self.stdout, self.stderr):
            try:
                stream.flush()
            except BaseException:  # a guest's own object, or a pipe that is gone
                pass

    def _end_child(self, reply):
        """A forked child came to the end of its cell: it ends as a script would."""
        error, code = reply.get("error"), 0
        if error is not None and error["ename"] == "SystemExit":
            code = int(error["evalue"]) & 255 if error["evalue"].lstrip("-").isdigit() else int(error["evalue"] != "None")
        elif error is not None:
            code = 1
            try:
                os.write(2, error["traceback"].encode("utf-8", "backslashreplace"))
            except OSError:
                pass
        os._exit(code)

    def _in_child(self):
        self.wire.close_in_child()
        self.calls.fresh()
        self.owed, self.ending = [], _thread.allocate_lock()  # another thread may have held it
        self.origins.main = -1 if self.origins.current is None else streams._thread.get_ident()
        if _signal.getsignal(_signal.SIGINT) == self._on_interrupt:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def main(fd):
    """Serve one session on fd until the host has gone."""
    worker = Worker(fd)
    worker.hook.install()
    worker.dropped.install()
    try:
        worker.serve()
    except Closed:
        pass
    worker.leave(0)
