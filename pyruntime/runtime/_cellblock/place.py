"""Where a path leads: what Linux itself says of it, in few calls."""

import os
import stat

_MAX_KNOWN = 1000
_LOOK = os.O_PATH | os.O_CLOEXEC
_FD = "/proc/self/fd/%d"


def canonical(path, dir_fd, follow):
    """(absolute path without links, whether it exists); (None, False) if it is none.

    dir_fd is the directory that a relative path starts from, or negative. With
    follow the last component's link is followed too.
    """
    try:
        path = os.fsdecode(path)
    except (TypeError, ValueError):
        return None, False
    if dir_fd >= 0 and not path.startswith("/"):
        try:
            path = os.readlink(_FD % dir_fd) + "/" + path
        except OSError:
            return None, False
    try:
        if follow:
            return _real(path), True
        head, _, tail = path.rstrip("/").rpartition("/")
        if tail in ("", ".", ".."):
            return _real(path), True
        head = _real(head or ("/" if path.startswith("/") else "."))
        if head is None:
            return None, False
        full = _join(head, tail)
    except FileNotFoundError:
        return os.path.realpath(path) if follow else _unresolved(path), False
    except (OSError, ValueError):
        return _unresolved(path), True
    try:
        os.lstat(full)
    except OSError:
        return full, False
    return full, True


def straight(path, known):
    """(absolute path, whether it exists) of a path on whose way there is no link, no dot
    and no second slash; None for any other, and where nobody can say. known has the
    directories that were found to be such, and gets more.
    """
    head, slash, tail = path.rpartition("/")
    if tail in ("", ".", ".."):
        return None
    at = known.get(head + slash)
    try:
        if at is None:
            text = head or slash
            if not path.startswith("/"):
                here = os.getcwd()
                text = _join(here, head) if head else here
            if len(known) >= _MAX_KNOWN or _real(head or slash or ".") != text:
                return None
            at = known[head + slash] = text
        full = _join(at, tail)
        return None if stat.S_ISLNK(os.lstat(full).st_mode) else (full, True)
    except FileNotFoundError:
        return (full, False) if at else None
    except (OSError, ValueError):
        return None


def _real(path):
    # O_PATH resolves as the kernel does and opens nothing.
    fd = os.open(path, _LOOK)
    try:
        found = os.readlink(_FD % fd)
        if found[0] != "/" or found.endswith(" (deleted)") and not os.fstat(fd).st_nlink:
            return None  # a pipe, a socket, a memfd: it has no place in the tree
        return found
    finally:
        os.close(fd)


def _join(head, tail):
    return "/" + tail if head == "/" else head + "/" + tail


def _unresolved(path):
    head, tail = os.path.split(path.rstrip("/") or "/")
    try:
        return os.path.join(os.path.realpath(head), tail)
    except (OSError, ValueError):
        return os.path.abspath(path)
