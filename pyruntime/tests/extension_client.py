"""A launcher in a few lines, written from PROTOCOL.md, that drives one extension worker."""

import json
import os
import socket
import subprocess
import sys
import tempfile

import bounds

IDENTITY = {"session": "s1", "workspace": "/srv/s1", "generation": 1, "cell": 3, "scope": "s1.1.3", "purpose": "interactive", "role": "sandbox"}


class Worker:
    """One extension worker; answer(message) gives the reply to its host calls, None for none."""

    def __init__(self, answer=None):
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(20)
        self.log = tempfile.TemporaryFile()
        boot = os.path.join(os.environ["CELLBLOCK_EXTENSION"], "boot.py")
        self.process = subprocess.Popen([sys.executable, "-I", "-B", boot, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd="/")
        theirs.close()
        self.buffer = b""
        self.number = 0
        self.replies = {}
        self.hosted = []
        self.answer = answer or (lambda m: {"value": None})

    def send(self, op, **fields):
        """Send a request; its number."""
        self.number += 1
        self.write(dict({"id": self.number, "op": op}, **fields))
        return self.number

    def write(self, message):
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def read(self):
        while b"\n" not in self.buffer:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError("the worker has gone: " + self.printed())
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return bounds.read(line)

    def wait(self, number):
        """The reply to a request; host calls are answered meanwhile."""
        while number not in self.replies:
            self.step()
        return self.replies.pop(number)

    def step(self):
        """Take one message."""
        message = self.read()
        if "op" not in message:
            if message["id"] in self.replies:
                raise AssertionError("a second reply to %d" % message["id"])
            self.replies[message["id"]] = message
            return
        self.hosted.append(message)
        reply = self.answer(message)
        if reply is not None:
            self.write(dict({"id": message["id"]}, **reply))

    def request(self, op, **fields):
        return self.wait(self.send(op, **fields))

    def load(self, source, name="x", path="/ext/x.py"):
        return self.request("load", extension=name, path=path, source=source)

    def call(self, tool, arguments=None, name="x", **more):
        return self.request("call", extension=name, tool=tool, arguments=arguments or {}, identity=IDENTITY, **more)

    def printed(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def close(self):
        self.sock.close()
        code = self.process.wait(20)
        self.log.close()
        return code
