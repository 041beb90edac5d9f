"""The worker: takes requests, hands them to the extensions' threads."""

import os
import sys
import threading

from _cellblock.wire import Closed, Wire
from cellblock import data, errors
from cellblock.context import Context, Identity

from . import load
from .calls import Calls
from .end import leave
from .lane import Job, Lane
from .turn import Turn

# op -> (fields beside op and id: name -> (type, required))
OPS = {
    "load": {"extension": (str, True), "root": (str, False), "path": (str, True), "source": (str, True)},
    "call": {"extension": (str, True), "tool": (str, True), "arguments": (dict, True), "identity": (dict, True), "deadline": (float, False)},
    "preflight": {"extension": (str, True), "tool": (str, True), "arguments": (dict, True), "identity": (dict, True)},
    "slash": {"extension": (str, True), "command": (str, True), "text": (str, True), "identity": (dict, True), "deadline": (float, False)},
    "hook": {"extension": (str, True), "hook": (str, True), "event": (dict, True), "identity": (dict, True), "deadline": (float, False)},
    "cancel": {"call": (int, True)},
    "close": {},
}


class Refused(Exception):
    """A request that is not in order; the worker lives on."""


class Worker:
    """One process of extensions."""

    def __init__(self, fd):
        self.wire = Wire(fd)
        self.turn = Turn(self.wire, self.take)
        self.calls = Calls(self.wire, self.turn.want)
        self.lanes = {}  # extension's name in the launcher's words -> Lane
        self.extensions = {}  # the same -> Extension
        self.jobs = {}  # number of a request -> (Lane, Job)
        self.lock = threading.Lock()
        os.register_at_fork(after_in_child=self.wire.close_in_child)

    def serve(self):
        """Answer requests until the host goes or says close, which ends the process."""
        self.turn.watch()

    def take(self, block):
        """Read one message, by the thread whose turn it is. The end of the wire, and what
        is no message, end the process."""
        try:
            received = self.wire.receive(block)
            if received is not None:
                self._hand_out(*received)
        except Closed:
            leave(0)
        except BaseException as err:
            errors.show(err)
            leave(1)

    def _hand_out(self, message, fds):
        for fd in fds:
            os.close(fd)
        number, op = message.get("id"), message.get("op")
        if type(number) is not int:
            raise ValueError("a message without an id")
        if op is None:
            self.calls.reply(message)
            return
        try:
            self._check(op, message)
            value = getattr(self, "do_" + op)(message)
        except Exception as err:
            self.send(number, {"error": errors.report(err)})
            return
        if value is not None:  # else a thread answers
            self.send(number, {"value": value})
        if op == "close":
            leave(0)

    def _check(self, op, message):
        fields = OPS.get(op) if type(op) is str else None
        if fields is None:
            raise Refused("unknown op %r" % (op,))
        for name in message:
            if name not in ("id", "op") and name not in fields:
                raise Refused("%s: unknown field %s" % (op, name[:80]))
        for name, (kind, required) in fields.items():
            if name in message:
                if not isinstance(message[name], (int, float) if kind is float else kind):
                    raise Refused("%s: field %s is not %s" % (op, name, kind.__name__))
            elif required:
                raise Refused("%s: field %s is missing" % (op, name))

    def send(self, number, reply):
        """Send the one reply to a request. Where that cannot be done the process ends, so
        that no call waits for ever."""
        with self.lock:
            self.jobs.pop(number, None)
        try:
            try:
                self.wire.send(dict({"id": number}, **reply))
            except ValueError as err:
                self.wire.send({"id": number, "error": {"type": "HostError", "code": "too-large", "message": str(err)}})
        except (Closed, OSError):
            pass  # the launcher has gone, and the reader sees that
        except BaseException as err:
            errors.show(err)
            leave(1)

    def _give(self, lane, job):
        with self.lock:
            self.jobs[job.number] = (lane, job)
        self.turn.give(lane, job)

    def _extension(self, name):
        if name not in self.extensions:
            raise Refused("the extension %s is not loaded" % name[:80])
        return self.extensions[name], self.lanes[name]

    def do_load(self, message):
        name = message["extension"]
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(name, self.send, self.turn)
            lane.start()
        self.extensions.pop(name, None)
        path = message["path"]

        def work():
            load.place(message.get("root"))
            found, described = load.load(path, message["source"])
            self.extensions[name] = found
            return described

        self._give(lane, Job(message["id"], work))

    def do_call(self, message):
        extension, lane = self._extension(message["extension"])
        tool = extension.tools.get(message["tool"])
        if tool is None:
            raise Refused("there is no tool %s" % message["tool"][:80])
        self._contextual(lane, message, lambda ctx: tool.run(tool.arguments(message["arguments"]), ctx))

    def do_preflight(self, message):
        extension, lane = self._extension(message["extension"])
        tool = extension.tools.get(message["tool"])
        if tool is None or tool.preflight is None:
            raise Refused("there is no preflight of a tool %s" % message["tool"][:80])

        def work():
            action = tool.preflight(tool.arguments(message["arguments"]), Identity(message["identity"]))
            if action is not None and not isinstance(action, dict):
                raise TypeError("a preflight returns None or a declared action, a dictionary, not %s" % type(action).__name__)
            return data.plain(action, "the action")

        self._give(lane, Job(message["id"], work))

    def do_slash(self, message):
        extension, lane = self._extension(message["extension"])
        command = extension.slash.get(message["command"])
        if command is None:
            raise Refused("there is no slash command %s" % message["command"][:80])

        def work(ctx):
            return _text_or_none(command.handler(message["text"], ctx))

        self._contextual(lane, message, work)

    def do_hook(self, message):
        extension, lane = self._extension(message["extension"])
        hook = extension.hooks.get(message["hook"])
        if hook is None:
            raise Refused("there is no hook %s" % message["hook"][:80])
        self._contextual(lane, message, lambda ctx: hook(message["event"], ctx))

    def _contextual(self, lane, message, work):
        job = Job(message["id"], None)
        job.context = Context(message["identity"], self.calls.caller(lane, job), message.get("deadline"))
        job.work = lambda: work(job.context)
        self._give(lane, job)

    def do_cancel(self, message):
        with self.lock:
            found = self.jobs.get(message["call"])
        if found is None:
            return False
        lane, job = found
        lane.cancel(job)
        return True

    def do_close(self, message):
        return True


def _text_or_none(shown):
    return shown if shown is None or isinstance(shown, str) else str(shown)


def main(fd):
    """Serve on fd until the host has gone."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # a log is read while the worker runs
    Worker(fd).serve()
