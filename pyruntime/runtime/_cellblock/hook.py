"""The audit hook (PEP 578): what Python itself is about to write, and to look up.

It explains; the jail decides. It misses children, native code and dir_fd of
open. From its installation until the host's confine arrives it refuses every
write, so that nothing runs unwatched by accident.
"""

import os
import sys

from . import place

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MAX_PATHS = 1000  # distinct (operation, path) pairs of one cell; more are counted as one
REFUSED = "writing is refused until the session's policy is set up"
FOLLOW, FINAL = True, False  # whether the last link of a path is followed
THERE, ABSENT, EITHER = True, False, None  # what must be for the operation to change anything

# event -> (operation, argument with the path, argument with its dir_fd or None,
# FOLLOW or FINAL, THERE or ABSENT or EITHER); arguments as in CPython's audit event table
EVENTS = {
    "os.remove": (("delete", 0, 1, FINAL, THERE),),
    "os.rmdir": (("rmdir", 0, 1, FINAL, THERE),),
    "os.mkdir": (("mkdir", 0, 2, FINAL, ABSENT),),
    "os.rename": (("rename", 0, 2, FINAL, THERE), ("rename", 1, 3, FINAL, EITHER)),
    "os.link": (("link", 1, 3, FINAL, ABSENT),),
    "os.symlink": (("symlink", 1, 2, FINAL, ABSENT),),
    "os.truncate": (("truncate", 0, None, FOLLOW, THERE),),
    "os.chmod": (("chmod", 0, 2, FOLLOW, THERE),),
    "os.chown": (("chown", 0, 3, FOLLOW, THERE),),
    "os.utime": (("utime", 0, 3, FOLLOW, THERE),),
    "os.setxattr": (("setxattr", 0, None, FOLLOW, THERE),),
    "os.removexattr": (("setxattr", 0, None, FOLLOW, THERE),),
}
OPEN = (("open", 0, None, FOLLOW, THERE),)
CREATE = (("open", 0, None, FOLLOW, EITHER),)
# After these a path may lead elsewhere, and while a child runs at any time.
MOVING = frozenset(("os.remove", "os.rmdir", "os.rename", "os.symlink"))
CHILDREN = frozenset(("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn"))
LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname")
MAX_NAME = 255  # characters; DNS has no longer one
THREADS = ("_thread.start_new_thread", "_thread.start_joinable_thread")


class Hook:
    """Records writes outside the allowed roots; refuses them when told to."""

    def __init__(self, origins, dropped):
        self._origins = origins
        self._dropped = dropped  # called with each exception that Python drops
        self._roots = ()
        self._denied = ()
        self._known = {}  # where paths lead that came early
        self._free = False  # everything is in order
        self._brief = False  # Linux tells of writes, and the lines are all that is wanted
        self._settled = None  # what to open needs no further look in this cell; None: everything does
        self._straight = {}  # directories that no link leads to, in this cell
        self._refusal = REFUSED
        self._network = None
        self._found = {}
        self.watching = True

    def install(self):
        """From here on; a hook cannot be taken away again."""
        events, writing, moving, children, see, opened = EVENTS, WRITING, MOVING, CHILDREN, self._see, self._open
        network, look, forget, origins, dropped = self._connect, self._look, self.forget, self._origins, self._dropped
        adopt = origins.adopt

        def hook(event, args):
            if origins.flood is not None:
                origins.flood.calm()
            if event == "open":
                flags = args[2]
                if flags is not None and flags & writing and type(args[0]) is not int:
                    opened(flags, args)
            elif event in events:
                see(events[event], args)
                if event in moving:
                    forget()
            elif event == "os.chdir":
                forget()
            elif event in children:
                self._settled = None  # until the next cell
            elif event == "socket.connect" or event == "socket.sendto":
                network(args)
            elif event in LOOKUPS:
                look(args[0])
            elif event in THREADS:
                adopt(args[0])
            elif event == "sys.unraisablehook":
                dropped(args[1].exc_value)

        sys.addaudithook(hook)

    def confine(self, write, refusal, deny=(), observed=False, early=False):
        """Writes beneath the paths in write are in order, unless they lie beneath
        one in deny; others are recorded, and refused with this text when there
        is one. With observed the host is told of every write by Linux, and needs the
        lines alone: within a cell a path may count as leading where it led before.
        Early, before any foreign code, nothing is allowed yet: where these paths
        lead is looked up, and not again later."""
        roots = []
        for path in write:
            known = self._known.get(path)
            if known is None:
                known = place.canonical(path, -1, True)[0] or ""
                if early:
                    self._known[path] = known
            if known:
                roots.append(known.rstrip("/"))
        if early:
            return
        self._roots = tuple(roots)
        self._denied = tuple(p.rstrip("/") for p in deny)
        self._refusal = refusal
        self._free = "" in self._roots and not self._denied
        self._brief = observed and not refusal
        self.begin()

    def begin(self):
        """Foreign code begins: nothing is known of where paths lead."""
        self._settled, self._straight = set() if self._brief else None, {}

    def forget(self):
        """Something may have been moved. New objects, since another thread may be about
        to put something into the old ones."""
        if self._settled is not None:
            self._settled, self._straight = set(), {}

    def network(self, enabled, refusal):
        """Refuse connections with this text unless enabled; loopback always works."""
        self._network = None if enabled else refusal or "the network is off"

    def _connect(self, args):
        if self._network and isinstance(args[1], tuple) and args[1]:
            host = args[1][0]
            if isinstance(host, str) and not (host.startswith("127.") or host in ("localhost", "::1", "")):
                raise PermissionError(1, self._network)

    def _look(self, host):
        if isinstance(host, (bytes, bytearray)):
            host = bytes(host).decode("ascii", "replace")
        if self.watching and isinstance(host, str) and 0 < len(host) <= MAX_NAME:
            self._record("lookup", host)

    def _open(self, flags, args):
        if not self.watching or self._free:
            return
        creates, path, settled = flags & os.O_CREAT, args[0], self._settled
        if settled is not None and type(path) is str:
            if path in settled:
                return
            found = place.straight(path, self._straight)
            if found is not None:
                full, there = found
                if (there or creates) and not self._inside(full):
                    self._record("open", full)
                # What is not there yet tells nothing of what comes to be there.
                if there and len(settled) < MAX_PATHS:
                    settled.add(path)
                return
        self._see(CREATE if creates else OPEN, args)

    def _see(self, wanted, args):
        if not self.watching or self._free:
            return
        outside = None
        for operation, at, dir_at, follow, state in wanted:
            path = args[at] if at < len(args) else None
            if path is None or isinstance(path, int):
                continue
            fd = args[dir_at] if dir_at is not None and dir_at < len(args) else -1
            path, there = place.canonical(path, fd if isinstance(fd, int) else -1, follow)
            if path is None or self._inside(path) or (state is not EITHER and there is not state):
                continue
            self._record(operation, path)
            outside = path
        if outside is not None and self._refusal:
            raise PermissionError(13, self._refusal, outside)

    def _inside(self, path):
        for root in self._denied:
            if path == root or path.startswith(root + "/"):
                return False
        for root in self._roots:
            if path == root or path.startswith(root + "/"):
                return True
        return False

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
