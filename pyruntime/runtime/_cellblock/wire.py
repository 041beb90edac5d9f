"""Framing: one JSON object a line over a Unix stream socket."""

import _socket
import _thread
import errno
import os
import struct

from . import codec

MAX_LINE = 64 << 20  # bytes the host may send in one line
MAX_SEND = 15 << 20  # bytes of one line to the host; its bound is 16 MiB
_CHUNK = 65536
_INT = struct.calcsize("i")


class Closed(Exception):
    """The host has gone: there is nobody to serve."""


class Wire:
    """One end of the wire. One thread reads at a time; writers take a lock."""

    def __init__(self, fd):
        self._sock = _socket.socket(fileno=fd)
        os.set_inheritable(fd, False)
        self._fd = fd
        self._buffer = bytearray()
        self._seen = 0  # bytes of the buffer known to hold no newline
        self._start = 0  # where in the whole stream the buffer begins
        self._fds = []  # (where the line begins that they came with, descriptors)
        self._lock = _thread.allocate_lock()
        self._send = self._sock.send
        self.alive = True

    def close_in_child(self):
        """After fork: the child is not the worker and must not speak for it."""
        self.alive = False
        self._lock = _thread.allocate_lock()
        self._sock.close()

    def receive(self, block):
        """The next message as (dict, fds), or None when none is whole yet.

        Closed at the end of the stream; ValueError when a line is no JSON object.
        """
        while True:
            end = self._buffer.find(b"\n", self._seen)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._seen = 0
                self._start += end + 1
                fds = []
                while self._fds and self._fds[0][0] < self._start:
                    fds += self._fds.pop(0)[1]
                message = codec.loads(line.decode("utf-8"))
                if type(message) is not dict:
                    raise ValueError("a message is a JSON object")
                return message, fds
            self._seen = len(self._buffer)
            if self._seen > MAX_LINE:
                raise ValueError("a line of more than %d bytes" % MAX_LINE)
            if not self._fill(block):
                return None

    def _fill(self, block):
        flags = _socket.MSG_CMSG_CLOEXEC | (0 if block else _socket.MSG_DONTWAIT)
        try:
            data, extra, _, _ = self._sock.recvmsg(_CHUNK, _socket.CMSG_SPACE(8 * _INT), flags)
        except BlockingIOError:
            return False
        except OSError as err:
            if err.errno in (errno.ECONNRESET, errno.EBADF):
                raise Closed() from None
            raise
        if not data:
            raise Closed()
        for level, kind, body in extra:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                count = len(body) // _INT
                # Linux ends what it hands out with the piece that descriptors came with
                # (unix(7)); earlier lines may stand before it. So they belong to the
                # last line that begins here.
                begins = data.rfind(b"\n", 0, len(data) - 1) + 1
                self._fds.append((self._start + len(self._buffer) + begins, struct.unpack("%di" % count, body[: count * _INT])))
        self._buffer += data
        return True

    def fileno(self):
        """The descriptor, for whoever waits until there is something to read."""
        return self._fd

    def buffered(self):
        """Whether a whole message is here already."""
        return self._buffer.find(b"\n", self._seen) >= 0

    def send(self, message):
        """Write one message whole. Nothing is written in a forked child."""
        self.write(codec.dumps(message))

    def write(self, text):
        """Write the one line that text is, in ASCII."""
        data = text.encode("ascii") + b"\n"
        if len(data) > MAX_SEND:
            raise ValueError("a message of %d bytes" % len(data))
        if not self.alive:
            return
        with self._lock:
            sent = self._send(data)
            while sent < len(data):
                sent += self._send(memoryview(data)[sent:])
