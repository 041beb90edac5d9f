# Does operations one after the other and tells, for each, the name of the error in
# which it ended; empty for none. Where "undo" stands, nothing of it stays.
import ctypes, errno, json, os, signal, socket, stat, subprocess


def _quietly(undo, *arguments):
    try:
        undo(*arguments)
    except OSError:
        pass


def _open(path, flags, undo):
    os.close(os.open(path, flags, 0o644))
    if undo:
        _quietly(os.unlink, path)


def _read(path):
    if os.path.isdir(path):
        os.scandir(path).close()
    else:
        with open(path, "rb") as file:
            file.read(1)


def _exec(path):
    # That it could be executed is known when Popen returns; it need not run on.
    nobody = subprocess.DEVNULL
    with subprocess.Popen([path], stdin=nobody, stdout=nobody, stderr=nobody, start_new_session=True) as child:
        child.kill()


def _load(path):
    # By the call itself: Python's mmap takes no empty file.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
    private, readable, executable = 2, 1, 4
    file = os.open(path, os.O_RDONLY)
    try:
        at = libc.mmap(None, 1, readable | executable, private, file, 0)
        if at == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(1))
    finally:
        os.close(file)


def _connect(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.setblocking(False)
        number = s.connect_ex((address, port))
    # Refused by its other end, or on its way: it was let out.
    if number not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
        raise OSError(number, os.strerror(number))


def _reach(path):
    with socket.socket(socket.AF_UNIX) as s:
        number = s.connect_ex(path)
    # Nobody listens there, or it is of another kind: it was let through.
    if number not in (0, errno.ECONNREFUSED, errno.EPROTOTYPE):
        raise OSError(number, os.strerror(number))


def _bind(port):
    with socket.socket() as s:
        s.bind(("127.0.0.1", port))


def _act(a):
    op, undo = a["op"], a.get("undo", False)
    paths = a.get("paths", [])
    path = paths[0] if paths else None
    if op == "read":
        _read(path)
    elif op == "write":
        creates = a.get("creates", False)
        _open(path, os.O_WRONLY | (os.O_CREAT if creates else 0), undo and creates)
    elif op == "create":
        _open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, undo)
    elif op == "truncate":
        os.truncate(path, os.stat(path).st_size)
    elif op == "mkdir":
        os.mkdir(path)
        if undo:
            _quietly(os.rmdir, path)
    elif op == "remove":
        os.unlink(path)
    elif op == "rmdir":
        os.rmdir(path)
    elif op == "rename":
        os.rename(*paths)
    elif op == "link":
        os.link(*paths)
        if undo:
            _quietly(os.unlink, paths[1])
    elif op == "symlink":
        os.symlink("target", path)
        if undo:
            _quietly(os.unlink, path)
    elif op == "chmod":
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
    elif op == "chown":
        os.chown(path, -1, -1)
    elif op == "utime":
        at = os.stat(path)
        os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    elif op == "xattr":
        os.setxattr(path, "user.cellblock", b"1")
        _quietly(os.removexattr, path, "user.cellblock")
    elif op == "exec":
        _exec(path)
    elif op == "load":
        _load(path)
    elif op == "socket":
        _reach(path)
    elif op == "connect":
        _connect(a["address"], a["port"])
    elif op == "bind":
        _bind(a["port"])


def _all(acts):
    ended = []
    for a in acts:
        try:
            _act(a)
            ended.append("")
        except OSError as problem:
            ended.append(errno.errorcode.get(problem.errno, str(problem.errno)))
    print(json.dumps(ended))
