"""The audit hook (PEP 578): what Python itself is about to write.

It explains; the jail decides. It misses children, native code and dir_fd of
open. From its installation until the host's confine arrives it refuses every
write, so that nothing runs unwatched by accident.
"""

import os
import sys

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MAX_PATHS = 1000  # distinct (operation, path) pairs of one cell; more are counted as one
REFUSED = "writing is refused until the session's policy is set up"

# event -> (operation, argument with the path, argument with its dir_fd or None, follows the last link)
EVENTS = {
    "os.remove": (("delete", 0, 1, False),),
    "os.rmdir": (("delete", 0, 1, False),),
    "os.mkdir": (("create", 0, 2, False),),
    "os.rename": (("rename", 0, 2, False), ("rename", 1, 3, False)),
    "os.link": (("link", 1, 3, False),),
    "os.symlink": (("create", 1, 2, False),),
    "os.truncate": (("write", 0, None, True),),
    "os.chmod": (("chmod", 0, 2, True),),
    "os.chown": (("chown", 0, 3, True),),
    "os.utime": (("utime", 0, 3, True),),
    "os.setxattr": (("setxattr", 0, None, True),),
    "os.removexattr": (("setxattr", 0, None, True),),
}


class Hook:
    """Records writes outside the allowed roots; refuses them when told to."""

    def __init__(self, origins):
        self._origins = origins
        self._roots = ()
        self._refusal = REFUSED
        self._network = None
        self._busy = False
        self._found = {}
        self.watching = True

    def install(self):
        """From here on; a hook cannot be taken away again."""
        events, writing, see, network = EVENTS, WRITING, self._see, self._connect

        def hook(event, args):
            if event == "open":
                if args[2] is not None and args[2] & writing and type(args[0]) is not int:
                    see((("open", 0, None, True),), args)
            elif event in events:
                see(events[event], args)
            elif event == "socket.connect" or event == "socket.sendto":
                network(args)

        sys.addaudithook(hook)

    def confine(self, write, refusal):
        """Writes beneath the paths in write are in order; others are recorded,
        and refused with this text when there is one."""
        self._roots = tuple(os.path.realpath(p).rstrip("/") for p in write)
        self._refusal = refusal

    def network(self, enabled, refusal):
        """Refuse connections with this text unless enabled."""
        self._network = None if enabled else refusal or "the network is off"

    def _connect(self, args):
        if self._network and isinstance(args[1], tuple):
            raise PermissionError(1, self._network)

    def _see(self, wanted, args):
        if not self.watching or self._busy:
            return
        self._busy = True
        try:
            outside = []
            for operation, at, dir_at, follow in wanted:
                path = self._path(args, at, dir_at, follow)
                if path is not None and not self._inside(path):
                    outside.append((operation, path))
            for operation, path in outside:
                self._record(operation, path)
        finally:
            self._busy = False
        if outside and self._refusal:
            raise PermissionError(13, self._refusal, outside[0][1])

    def _inside(self, path):
        for root in self._roots:
            if path == root or path.startswith(root + "/"):
                return True
        return False

    def _path(self, args, at, dir_at, follow):
        path = args[at] if at < len(args) else None
        if path is None or isinstance(path, int):
            return None
        try:
            path = os.fsdecode(path)
        except (TypeError, ValueError):
            return None
        base = ""
        if not path.startswith("/"):
            fd = args[dir_at] if dir_at is not None and dir_at < len(args) else -1
            try:
                base = os.readlink("/proc/self/fd/%d" % fd) if isinstance(fd, int) and fd >= 0 else os.getcwd()
            except OSError:
                base = "/"
        path = os.path.join(base, path)
        try:
            if follow:
                return os.path.realpath(path)
            head, tail = os.path.split(path.rstrip("/") or "/")
            if tail in ("", ".", ".."):
                return os.path.realpath(path)
            return os.path.join(os.path.realpath(head), tail)
        except (OSError, ValueError):
            return os.path.normpath(path)

    def _record(self, operation, path):
        found = self._found
        key = (operation, path)
        entry = found.get(key)
        if entry is None:
            if len(found) >= MAX_PATHS:
                key = (operation, "(further paths)")
                entry = found.get(key)
            if entry is None:
                entry = found[key] = {"op": operation, "path": key[1], "count": 0}
                self._place(entry)
        entry["count"] += 1

    def _place(self, entry):
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith("<cell "):
                number = name[6:-1]
                if number.isdigit():
                    entry["cell"] = int(number)
                entry["line"] = frame.f_lineno
                return
            frame = frame.f_back

    def take(self):
        """The records since the last call."""
        if not self._found:
            return []
        found, self._found = self._found, {}
        return list(found.values())
