"""The first process of a warm parent: it makes the interpreter that forks workers, and
waits for them.

Workers are grandchildren of that interpreter, whose parents end at once, so that they
become children of this process: how they end is known, and no ended one stays in its
jail's pid namespace, whatever becomes of the interpreter. It imports next to nothing and
waits; there is nothing that a session could keep it busy with.
"""

import ctypes
import os
import signal

_PDEATHSIG, _SUBREAPER, _NO_NEW_PRIVS = 1, 36, 38  # linux/prctl.h


def main(control, ends):
    """Fork; the child returns, to serve the launcher on control. This process tells it of
    ends, on the descriptor of that name, and never returns."""
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(libc, _SUBREAPER, 1)
    reaper = os.getpid()
    child = os.fork()
    if child:
        os.close(control)
        _give_up(libc)
        os.write(ends, b'{"ready":%d}\n' % reaper)
        _wait(ends, child)
    os.close(ends)
    _give_up(libc)
    _prctl(libc, _PDEATHSIG, signal.SIGKILL)
    if os.getppid() != reaper:
        os._exit(1)


def _wait(ends, child):
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
            if pid != child:
                os.write(ends, b'{"pid":%d,"status":%d}\n' % (pid, status))
        except OSError:  # no process is left to wait for, or no launcher to tell of it
            os._exit(0)


def _give_up(libc):
    """Give up every capability. Owning the jails' user namespaces is enough to join them
    (user_namespaces(7))."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    none = (ctypes.c_uint32 * 6)()
    if libc.capset(ctypes.byref(header), ctypes.byref(none)):
        raise OSError(ctypes.get_errno(), "capabilities could not be given up")
    _prctl(libc, _NO_NEW_PRIVS, 1)


def _prctl(libc, option, value):
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl %d" % option)
