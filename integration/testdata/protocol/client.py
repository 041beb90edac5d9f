"""A host that knows kernel/wire/PROTOCOL.md and nothing else of Cellblock.

It starts a worker, drives a session through every request, and prints a line for
each thing that it has seen to hold: client.py BOOT
"""

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 60  # seconds until a worker that says nothing is taken for one that hangs


class Failed(Exception):
    """The worker did not do what the text says."""


class Launcher:
    """The launcher's end of one wire."""

    def __init__(self, boot, directory):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        self.worker = subprocess.Popen(
            [sys.executable, "-I", "-B", "-X", "utf8", boot, str(theirs.fileno())], pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=directory)
        for fd in (out, err):
            os.close(fd)
        theirs.close()
        self.socket.settimeout(PATIENCE)
        self.lines = b""
        self.last = 0
        self.calls = {}  # the worker's, that nobody has answered: id -> message
        self.replies = {}
        self.newest_call = 0

    def send(self, message, descriptors=()):
        line = json.dumps(message, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        if descriptors:
            sent = self.socket.sendmsg([line], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])
            line = line[sent:]
        self.socket.sendall(line)

    def request(self, op, descriptors=(), **fields):
        """Send a request; its id."""
        self.last += 1
        self.send(dict(fields, id=self.last, op=op, session="s1"), descriptors)
        return self.last

    def read(self):
        """Take the worker's next message in: a host call, or a reply."""
        while b"\n" not in self.lines:
            data = self.socket.recv(65536)
            if not data:
                raise Failed("the worker has closed the wire")
            self.lines += data
        line, _, self.lines = self.lines.partition(b"\n")
        message = json.loads(line)
        if "op" in message:
            check(message["op"] == "host" and set(message) <= {"id", "op", "name", "arguments", "scope"}, "a host call", message)
            check(message["id"] == self.newest_call + 1, "host calls are numbered", message)
            self.newest_call = message["id"]
            self.calls[message["id"]] = message
        else:
            check(set(message) in ({"id", "value"}, {"id", "error"}, {"id", "value", "info"}), "a reply", message)
            self.replies[message["id"]] = message

    def wait(self, number):
        while number not in self.replies:
            self.read()
        return self.replies.pop(number)

    def ask(self, op, **fields):
        return self.wait(self.request(op, **fields))

    def value(self, op, **fields):
        reply = self.ask(op, **fields)
        check("value" in reply, op, reply)
        return reply["value"]

    def call(self, name):
        """The oldest unanswered host call, which is to be of this name."""
        while not self.calls:
            self.read()
        call = self.calls.pop(min(self.calls))
        check(call["name"] == name, "call of " + name, call)
        return call

    def answer(self, call, **outcome):
        self.send(dict(outcome, id=call["id"], scope=call["scope"]))

    def interrupt(self, target):
        """The request first, then SIGINT until the answer has come."""
        number = self.request("interrupt", target=target)
        end = time.monotonic() + PATIENCE
        while number not in self.replies:
            self.worker.send_signal(signal.SIGINT)
            if self.lines.count(b"\n") or select.select([self.socket], [], [], 0.05)[0]:
                self.read()
            check(time.monotonic() < end, "an interrupt is answered", number)
        return self.replies.pop(number)["value"]

    def written(self, fd):
        """What is in a pipe. All that a cell wrote is there before its reply."""
        text = b""
        while select.select([fd], [], [], 0)[0]:
            data = os.read(fd, 65536)
            if not data:
                break
            text += data
        return text.decode()

    def wait_for_output(self, want):
        check(select.select([self.out], [], [], PATIENCE)[0], "output", want)
        check(self.written(self.out) == want, "output", want)


def check(holds, what, seen):
    if not holds:
        raise Failed("%s: %r" % (what, seen))


def main(boot):
    with tempfile.TemporaryDirectory() as directory:
        directory = os.path.realpath(directory)
        w = Launcher(boot, directory)
        try:
            for step in (install, confine, network, run, tools, questions, cancel, scopes, stdin, interrupt, pipes, definitions, refused, reset, close):
                step(w, directory)
                print("ok", step.__name__, flush=True)
        except BaseException:
            sys.stderr.write(w.written(w.err))
            raise
        finally:
            w.worker.kill()
            w.worker.wait()


def install(w, directory):
    reply = w.ask("install-runtime", directory=directory, input=True, maxOutput=100)
    check(type(reply["value"]) is int, "names bound", reply)
    check(reply["info"]["pid"] == w.worker.pid and reply["info"]["python"].startswith("3."), "info", reply)


def confine(w, directory):
    denied = w.value("run-block", code="open('early', 'w')")
    check(denied["status"] == "error", "no write before confine", denied)
    check(w.value("confine", read=["/"], write=[directory], refusal="") == {"read": 1, "write": 1}, "confine", None)
    done = w.value("run-block", code="open('x', 'w').close(); open('/dev/null', 'w').close()", cell=2)
    check(done["status"] == "ok" and [o["path"] for o in done["observed"]] == ["/dev/null"], "what is outside is observed", done)


def network(w, directory):
    check(w.value("network", enabled=False, refusal="no network here") is None, "network", None)
    failed = w.value("run-block", code="import socket; socket.create_connection(('192.0.2.1', 9))")
    check("no network here" in failed["error"]["evalue"], "the refusal", failed)
    check(w.value("network", enabled=True) is None, "network", None)


def run(w, directory):
    check(w.value("exec", code="x = 6") is None, "exec", None)
    check(json.loads(w.value("run", code="[x * 7, 'é']")) == [42, "é"], "run", None)
    check(w.value("eval", code="x") == "6", "eval", None)
    w.written(w.out), w.written(w.err)
    done = w.value("run-block", code="import sys\nprint('é')\nprint('no', file=sys.stderr)\nx * 7", cell=3, purpose="eval")
    check(done["value"] == "42" and w.written(w.out) == "é\n" and w.written(w.err) == "no\n", "a cell", done)
    done = w.value("run-block", code="1 / 0", cell=4)
    check(done["status"] == "error" and done["error"]["ename"] == "ZeroDivisionError" and "<cell 4>" in done["error"]["traceback"], "an error", done)
    done = w.value("run-block", code="'x' * 1000", limits={"value": 10})
    check("value" not in done and "1000" in done["shapeHint"], "a long value", done)
    check(w.ask("eval", code="nothing")["error"]["type"] == "NameError", "an error of eval", None)


def tools(w, directory):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    check(w.value("install-tool", name="t.add", schema=schema, doc="Adds.", signature="(a: int)") == "t.add", "install-tool", None)
    cell = w.request("run-block", code="t.add(a=1)", scope="s1/5", cell=5)
    call = w.call("t.add")
    check(call["scope"] == "s1/5" and call["arguments"] == {"a": 1}, "a host call", call)
    w.answer(call, value={"sum": [1, None]})
    check(w.wait(cell)["value"]["value"] == "{'sum': [1, None]}", "its answer", None)
    cell = w.request("run-block", code="try: t.add(a=2)\nexcept Exception as e: print(type(e).__name__, e.code, e.message)", scope="s1/6", cell=6)
    w.answer(w.call("t.add"), error={"type": "HostError", "code": "denied", "message": "not now"})
    w.wait(cell)
    check(w.written(w.out) == "HostError denied not now\n", "a refusal", None)
    # Many at once, answered in another order.
    cell = w.request("run-block", code="import asyncio\nawait asyncio.gather(*[t.add(a=i) for i in range(5)])", scope="s1/7", cell=7)
    calls = [w.call("t.add") for _ in range(5)]
    for call in reversed(calls):
        w.answer(call, value=call["arguments"]["a"] * 10)
    check(w.wait(cell)["value"]["value"] == "[0, 10, 20, 30, 40]", "answers in any order", None)


def questions(w, directory):
    cell = w.request("run-block", code="input('who? ')", scope="s1/8", cell=8)
    call = w.call("input")
    check(call["arguments"] == {"prompt": "who? ", "password": False}, "a question", call)
    w.answer(call, value="Ada")
    check(w.wait(cell)["value"]["value"] == "'Ada'", "its answer", None)
    done = w.value("run-block", code="input()", input=False, scope="s1/9", cell=9)
    check(done["error"]["ename"] == "EOFError", "a cell of which no question is answered", done)


def cancel(w, directory):
    code = ("task = asyncio.ensure_future(t.add(a=1))\nawait asyncio.sleep(0)\nawait asyncio.sleep(0.05)\ntask.cancel()\n"
            "try: await task\nexcept asyncio.CancelledError: print('cancelled')")
    cell = w.request("run-block", code=code, scope="s1/10", cell=10)
    call = w.call("t.add")
    asked = w.call("host.cancel")
    check(asked["arguments"] == {"call": call["id"]}, "host.cancel", asked)
    w.answer(asked, value=True)
    w.answer(call, error={"type": "HostError", "code": "cancelled", "message": "it was cancelled"})
    check(w.wait(cell)["value"]["status"] == "ok" and w.written(w.out) == "cancelled\n", "a cancelled call", None)


def scopes(w, directory):
    # An answer with another scope is not the call's; the right one is.
    cell = w.request("run-block", code="t.add(a=3)", scope="s1/11", cell=11)
    call = w.call("t.add")
    w.send({"id": call["id"], "scope": "s1/10", "value": "another's"})
    w.answer(call, value="its own")
    check(w.wait(cell)["value"]["value"] == "'its own'", "another scope's answer", None)
    # turn-yield ends the cell.
    cell = w.request("run-block", code="t.add(a=4)\nprint('never')", scope="s1/12", cell=12)
    w.answer(w.call("t.add"), error={"type": "HostError", "code": "turn-yield", "message": "later"})
    done = w.wait(cell)["value"]
    check(done["status"] == "ok" and done["yielded"] is True and w.written(w.out) == "", "a yielded cell", done)


def stdin(w, directory):
    check(w.value("stdin", text="a line\n") is None, "stdin", None)
    check(w.value("run-block", code="import sys; sys.stdin.readline()")["value"] == "'a line\\n'", "a line of stdin", None)


def interrupt(w, directory):
    cell = w.request("run-block", code="x = 7\nprint('up', flush=True)\nimport time; time.sleep(600)", cell=13)
    w.wait_for_output("up\n")
    check(w.interrupt(cell) is True, "an interrupt of what runs", None)
    check(w.wait(cell)["value"]["error"]["ename"] == "KeyboardInterrupt", "an interrupted cell", None)
    check(w.interrupt(cell) is False, "an interrupt of what has ended", None)
    check(w.value("eval", code="x") == "7", "state after an interrupt", None)
    # Of a cell that waits for a host call: both ends of it are to end.
    cell = w.request("run-block", code="t.add(a=5)", scope="s1/14", cell=14)
    call = w.call("t.add")
    check(w.interrupt(cell) is True, "an interrupt of a cell that waits", None)
    w.answer(call, error={"type": "HostError", "code": "cancelled", "message": "interrupted"})
    check(w.wait(cell)["value"]["error"]["ename"] == "KeyboardInterrupt", "an interrupted call", None)


def pipes(w, directory):
    done = w.value("run-block", code="import os, time\nchild = os.fork()\nif child == 0: time.sleep(600)", cell=15)
    check(done["forked"] is True, "a child", done)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    cell = w.request("run-block", code="print('fresh'); os.system('echo child')", descriptors=[out_end, err_end], pipes=True, cell=16)
    w.wait(cell)
    os.close(out_end), os.close(err_end)
    check(w.written(out) == "fresh\nchild\n", "fresh pipes", None)
    w.out, w.err = out, err
    w.value("run-block", code="os.kill(child, 9); os.waitpid(child, 0)", cell=17)


def definitions(w, directory):
    code = "def f(): return 1\ny = f()"
    done = w.value("run-block", code=code, cell=18, keep=True)["definitions"]
    check(done["others"] == ["y"] and len(done["kept"]) == 1, "definitions", done)
    one = done["kept"][0]
    check(one["names"] == ["f"] and one["kind"] == "function" and code.encode()[one["start"]:one["end"]] == b"def f(): return 1", "a definition", one)


def refused(w, directory):
    for fields, word in (({"op": "dance"}, "dance"), ({"op": "eval"}, "code"), ({"op": "eval", "code": 1}, "code"), ({"op": "eval", "code": "1", "more": 1}, "more")):
        op = fields.pop("op")
        error = w.ask(op, **fields)["error"]
        check(error["type"] == "Refused" and word in error["message"], "a refusal that names it", error)
    check(w.value("eval", code="1 + 1") == "2", "the worker lives on", None)


def reset(w, directory):
    w.value("install-runtime", directory=directory, reset=True)
    check(w.ask("eval", code="x")["error"]["type"] == "NameError", "a namespace that was reset", None)


def close(w, directory):
    check(w.value("close") is True, "close", None)
    check(w.worker.wait(PATIENCE) == 0, "the worker ends", w.worker.returncode)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Failed as err:
        sys.exit("client: %s" % err)
