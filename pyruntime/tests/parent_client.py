"""A launcher in a few lines that has workers forked of a warm parent, in no jail."""

import array
import json
import os
import signal
import socket
import subprocess
import sys
import threading

from client import BOOT, Host

CLOSE_RANGE = 436  # the same number on each architecture


class Line:
    """Lines of JSON over a socket."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def ask(self, message, fds=()):
        self.tell(message, fds)
        return self.receive()

    def tell(self, message, fds=()):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([json.dumps(message).encode() + b"\n"], ancillary)

    def receive(self):
        while b"\n" not in self.buffer:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError("the other end has gone")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)


class Parent:
    """A warm parent of this interpreter."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        heard, told = socket.socketpair()
        source = os.open(os.path.dirname(BOOT), os.O_RDONLY)
        begin = "import os, sys; os.dup2(%d, 3); os.dup2(%d, 4); os.dup2(%d, 5); os.execv(sys.argv[1], sys.argv[1:])"
        high = [os.dup2(theirs.fileno(), 203), os.dup2(source, 204), os.dup2(told.fileno(), 205)]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", begin % tuple(high), sys.executable, "-I", "-S", "-B", "-X", "utf8", "/proc/self/fd/4/parent.py", "3", "5"],
            pass_fds=high, stdin=subprocess.DEVNULL, cwd="/", env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": "/nowhere"})
        for fd in high + [source]:
            os.close(fd)
        theirs.close()
        told.close()
        self.line, self.ends = Line(ours), Line(heard)
        self.ended = {}
        self.changed = threading.Condition()
        assert self.ends.receive() == {"ready": self.process.pid}
        self.pid = self.line.receive()["ready"]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            try:
                message = self.ends.receive()
            except (EOFError, OSError):
                return
            with self.changed:
                self.ended[message["pid"]] = message["status"]
                self.changed.notify_all()

    def fork(self, wire, out, err, directory):
        """A worker with these descriptors, and nothing given up."""
        ours, theirs = socket.socketpair()
        null = os.open("/dev/null", os.O_RDWR)
        assert self.line.ask({"fork": True}, [null, out, err, wire, theirs.fileno()])["child"] > 0
        os.close(null)
        theirs.close()
        with ours:
            line = Line(ours)
            # As the launcher does: nothing of the parent's stays open.
            assert line.ask({"calls": [{"nr": CLOSE_RANGE, "args": [5, 0xFFFFFFFF, 0]}]})["results"] == [[0, ""]]
            pid = line.ask({"fork": True})["pid"]
            line.tell({"begin": True, "argv": [sys.executable, "boot.py"], "directory": "/", "source": os.path.dirname(BOOT)})
        return Process(self, pid)

    def close(self):
        self.line.sock.close()
        self.process.wait(10)
        self.ends.sock.close()  # the listener has seen its end


class Process:
    """A worker, as subprocess.Popen has one."""

    def __init__(self, parent, pid):
        self.parent = parent
        self.pid = pid

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout=None):
        with self.parent.changed:
            if not self.parent.changed.wait_for(lambda: self.pid in self.parent.ended, timeout):
                raise subprocess.TimeoutExpired("worker", timeout)
            status = self.parent.ended[self.pid]
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


class ForkedHost(Host):
    """A Host whose worker a parent has forked."""

    parent = None  # of all of them

    def spawn(self, theirs, out, err):
        if self.parent is None:
            ForkedHost.parent = Parent()
        return self.parent.fork(theirs.fileno(), out, err, self.directory)
