"""A warm interpreter that forks workers, and what a forked one does until it is one.

The launcher asks by lines of JSON; see package jail's Parent. This process
runs no foreign code, ever, and has one thread. A child goes by the launcher's list of
system calls until it is confined, and only then becomes a worker. How workers end is
told by the process that this one is a child of; see reaper.
"""

import base64
import ctypes
import errno
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import sys
import types

_CONTROL, _CONVERSATION, _KEPT = 3, 4, 7  # descriptors of a child below _KEPT are its own
_WARM = ("json", "pathlib", "re", "site", "subprocess")
_MAX_LINE = 16 << 20  # bytes of one line of the launcher's


class _Lines:
    """Lines of JSON over a stream socket, and the descriptors that come with them."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""
        self.fds = []

    def receive(self):
        """The next message and its descriptors; None at the end."""
        while b"\n" not in self.buffer:
            room = socket.CMSG_SPACE(16 * 4)
            data, ancillary, _, _ = self.sock.recvmsg(1 << 16, room, socket.MSG_CMSG_CLOEXEC)
            for level, kind, body in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    self.fds += memoryview(body[: len(body) & ~3]).cast("i")
            if not data or len(self.buffer) > _MAX_LINE:
                return None, []
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        fds, self.fds = self.fds, []
        return json.loads(line), fds

    def send(self, message):
        self.sock.sendall(json.dumps(message).encode() + b"\n")


class _Parent:
    def __init__(self, fd):
        self.lines = _Lines(socket.socket(fileno=fd))
        # Its own children end as soon as they have made a grandchild, and nobody asks how.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def serve(self):
        """Fork until the launcher wants no more of it; what a child came with, in that child."""
        self.lines.send({"ready": os.getpid()})
        while True:
            message, fds = self.lines.receive()
            if message is None:
                os._exit(0)
            if self._fork() == 0:
                return fds
            for each in fds:
                os.close(each)

    def _fork(self):
        try:
            pid = os.fork()
        except OSError as err:
            self.lines.send({"child": 0, "error": err.strerror})
            return -1
        if pid:
            self.lines.send({"child": pid})
            return pid
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.lines.sock.close()
        return 0


def _place(fds):
    """Give a child the descriptors that it came with by their numbers: standard streams,
    the wire, the conversation, the stage, the ruleset."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in fds]
    for number, fd in enumerate(high):
        os.dup2(fd, number, inheritable=number < 3)


class _Calls:
    """System calls as the launcher writes them down: a number and arguments, which are
    integers, bytes in base64, {"result": n} for what call n of the list has returned,
    {"strings": [...]} for a vector, {"program": ...} for a filter."""

    def __init__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        self.syscall = libc.syscall
        self.syscall.restype = ctypes.c_long

    def run(self, calls):
        """[[value, name of the errno or ""], ...]; it ends with the first error of a call
        that is not one to try."""
        results = []
        for call in calls:
            keep = []  # what is pointed to
            arguments = [self._argument(a, results, keep) for a in call["args"]]
            value = self.syscall(ctypes.c_long(call["nr"]), *arguments)
            number = ctypes.get_errno() if value == -1 else 0
            results.append([value, errno.errorcode.get(number, "errno %d" % number) if number else ""])
            if number and not call.get("try"):
                break
        return results

    def _argument(self, argument, results, keep):
        if isinstance(argument, int):
            return ctypes.c_ulong(argument & 0xFFFFFFFFFFFFFFFF)
        if isinstance(argument, str):
            made = ctypes.create_string_buffer(base64.b64decode(argument))
        elif "result" in argument:
            return ctypes.c_ulong(results[argument["result"]][0])
        elif "strings" in argument:
            strings = [s.encode() for s in argument["strings"]]
            made = (ctypes.c_char_p * (len(strings) + 1))(*strings, None)
        else:
            program = ctypes.create_string_buffer(base64.b64decode(argument["program"]))
            keep.append(program)
            made = _Program(len(program.raw) // 8, ctypes.addressof(program))
        keep.append(made)
        return ctypes.byref(made)


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def _obey():
    """Do what the launcher says until it says that this is a worker now."""
    lines = _Lines(socket.socket(fileno=_CONVERSATION))
    calls = _Calls()
    while True:
        message, _ = lines.receive()
        if message is None:
            os._exit(1)
        if "calls" in message:
            lines.send({"results": calls.run(message["calls"])})
        elif "fork" in message:
            pid = os.fork()
            if pid:
                lines.send({"pid": pid})
                os._exit(0)
            os.setsid()
        else:
            lines.sock.close()
            return message


def _become(begin):
    """Be what a worker that was executed is: its paths, and its site directories."""
    os.closerange(_CONVERSATION, _KEPT)
    os.chdir(begin["directory"])
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = begin["argv"]
    package = sys.modules["_cellblock"]
    here = package.__path__[0]
    package.__path__[:] = [begin["source"] + "/_cellblock"]
    for known in [p for p in sys.path_importer_cache if p.startswith(os.path.dirname(here))]:
        del sys.path_importer_cache[known]
    sys.modules["site"].main()
    _tell_of_site()


def _tell_of_site():
    """Have sys.flags say that site directories were looked at: multiprocessing and test
    programs start interpreters with the same flags."""
    fields = [name for name, member in vars(type(sys.flags)).items() if isinstance(member, types.MemberDescriptorType)]
    no = ctypes.py_object(0)
    ctypes.pythonapi.Py_IncRef(no)  # which the call below takes away
    ctypes.pythonapi.PyStructSequence_SetItem(ctypes.py_object(sys.flags), ctypes.c_ssize_t(fields.index("no_site")), no)


def _warm():
    """Import what every worker has, and the prelude. More would be shared, too, but an idle
    worker has the pages of what it does not use written to by counting references."""
    for name in ("_cellblock.serve",) + _WARM:
        importlib.import_module(name)


def main(fd):
    """Serve the launcher on fd; in a forked worker, serve its session."""
    _warm()
    gc.collect()
    gc.freeze()  # a collection in a worker then leaves the shared pages as they are
    fds = _Parent(fd).serve()
    _place(fds)
    begin = _obey()
    _become(begin)
    from . import serve

    serve.main(_CONTROL)
