"""A host in a few lines, written from PROTOCOL.md, that drives one worker."""

import array
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import bounds

HERE = os.path.dirname(os.path.abspath(__file__))
BOOT = os.path.join(os.environ.get("CELLBLOCK_RUNTIME") or os.path.join(os.path.dirname(HERE), "runtime"), "boot.py")


class Host:
    """One worker and the launcher's ends of its wire and pipes."""

    def __init__(self, directory=None, confine=True, early=(), **runtime):
        self.own = directory is None
        self.directory = os.path.realpath(directory or tempfile.mkdtemp())
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(20)
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        self.old = []
        for fd in (self.out, self.err):
            os.set_blocking(fd, False)
        self.process = self.spawn(theirs, out, err)
        theirs.close()
        os.close(out)
        os.close(err)
        self.buffer = b""
        self.number = 0
        self.hosted = []
        self.answer = lambda call: {"error": {"type": "HostError", "code": "denied", "message": "no such call"}}
        for request in early:
            self.request(**request)
        self.ready = self.request("install-runtime", directory=self.directory, **runtime)
        if confine:
            self.request("confine", read=[], write=[self.directory, "/dev"], refusal="")

    def spawn(self, theirs, out, err):
        """Start the worker with its end of the wire and its pipes."""
        return subprocess.Popen(
            [sys.executable, "-I", "-B", "-X", "utf8", BOOT, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd="/",
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": self.directory},
        )

    def send(self, message, fds=()):
        data = json.dumps(message).encode() + b"\n"
        if fds:
            sent = self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            data = data[sent:]
        self.sock.sendall(data)

    def receive(self):
        while b"\n" not in self.buffer:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError("the worker has gone")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return bounds.read(line)

    def start(self, op, fds=(), **fields):
        """Send a request without waiting; its number."""
        self.number += 1
        self.send(dict(fields, id=self.number, op=op, session="s"), fds)
        return self.number

    def wait(self, number):
        """The reply to a request; host calls on the way are answered."""
        while True:
            message = self.receive()
            if message.get("op") == "host":
                self.hosted.append(message)
                self.send(dict(self.answer(message), id=message["id"]))
            elif message["id"] == number:
                return message

    def request(self, op, fds=(), **fields):
        return self.wait(self.start(op, fds, **fields))

    def cell(self, code, **fields):
        """Run a cell; its reply with stdout and stderr added."""
        reply = self.request("run-block", code=code, **fields)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        value = reply["value"]
        value["stdout"], value["stderr"] = self.drain(self.out), self.drain(self.err)
        return value

    def fresh_pipes(self):
        """Two write ends for run-block with pipes=True; the read ends take over."""
        self.old += [self.out, self.err]
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        for fd in (self.out, self.err):
            os.set_blocking(fd, False)
        return out, err

    def drain(self, fd):
        data = b""
        while True:
            try:
                part = os.read(fd, 1 << 16)
            except BlockingIOError:
                break
            if not part:
                break
            data += part
        return data.decode("utf-8", "replace")

    def interrupt(self, target):
        """What a launcher does: the request first, then the signal."""
        number = self.start("interrupt", target=target)
        self.process.send_signal(signal.SIGINT)
        return number

    def wait_for_interrupt(self, number):
        """The answer, with the signal repeated until it comes."""
        while not self.buffer and not select.select([self.sock], [], [], 0.05)[0]:
            self.process.send_signal(signal.SIGINT)
        return self.wait(number)

    def close(self):
        self.sock.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for fd in [self.out, self.err] + self.old:
            os.close(fd)
        if self.own:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
