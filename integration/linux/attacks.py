# A short list of attempts, one a line: what was tried, and how it ended. It runs outside
# of any jail, which is the control, and as a cell of a session in each mode.
import ctypes, errno, os, socket

linux = ctypes.CDLL(None, use_errno=True)
linux.syscall.restype = ctypes.c_long


def raw(number, *args):
    ctypes.set_errno(0)
    if linux.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args]) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def in_child(act, *args):
    come, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(go, attempt(act, *args).encode())
        os._exit(0)
    os.close(go)
    said = os.read(come, 100).decode()
    os.waitpid(child, 0)
    return said


def attempt(act, *args):
    try:
        act(*args)
        return "done"
    except OSError as problem:
        return errno.errorcode.get(problem.errno, str(problem.errno))


for name, how, act in (
    ("write outside", attempt, lambda: open("/var/tmp/outside", "w").close()),
    ("change rights outside", attempt, lambda: os.chmod("/var/tmp/canary", 0o600)),
    ("read a key", attempt, lambda: open(os.environ.get("REAL_HOME", os.path.expanduser("~")) + "/.ssh/id_canary").read()),
    ("mount", in_child, lambda: (raw(272, 0x10020000), raw(165, b"none", b"/mnt", b"tmpfs", 0, 0))),
    ("user namespace", in_child, lambda: raw(272, 0x10000000)),
    ("trace", in_child, lambda: raw(101, 0, 0, 0, 0)),
    ("keyring", in_child, lambda: raw(250, 0, -3, 1)),
    ("AF_ALG", attempt, lambda: socket.socket(38, 5, 0).close()),
    ("host loopback", attempt, lambda: socket.create_connection(("127.0.0.1", 7), 2).close()),
    ("parent's memory", attempt, lambda: os.close(os.open("/proc/%d/mem" % os.getppid(), os.O_RDONLY))),
    ("raw disk", attempt, lambda: os.stat("/dev/vda")),
):
    print("%s: %s" % (name, how(act)), flush=True)
