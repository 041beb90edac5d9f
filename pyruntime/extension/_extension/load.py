"""Evaluates one extension's file."""

import linecache
import sys
import traceback
import types

from cellblock import declare, errors

_loaded = 0


class NotLoaded(Exception):
    """A file that is no extension: says why. fields holds the traceback."""

    def __init__(self, message, trace):
        super().__init__(message)
        self.fields = {"traceback": trace}


def place(root):
    """Put root on sys.path, after the standard library and before installed packages."""
    if not root or root in sys.path:
        return
    at = next((i for i, p in enumerate(sys.path) if "site-packages" in p or "dist-packages" in p), len(sys.path))
    sys.path.insert(at, root)
    # Byte code beside the files may be anybody's and need not be made from them (PEP
    # 552); what has been looked at is the source. Nothing is written either.
    sys.pycache_prefix = "/proc/self/no-byte-code"


def load(path, source):
    """The one extension that the file registers. NotLoaded says why there is none."""
    global _loaded
    _loaded += 1
    name = "_extension_%d_%s" % (_loaded, path.rpartition("/")[2].rpartition(".")[0])
    module = types.ModuleType(name)
    module.__file__ = path
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    sys.modules[name] = module
    found = declare.loading.found = []
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
        if len(found) != 1:
            raise ValueError("it makes %d calls of cellblock.register; one is needed" % len(found))
        described = found[0].described()
    except BaseException as err:
        sys.modules.pop(name, None)
        if isinstance(err, KeyboardInterrupt):
            raise
        raise _why(err, path) from None
    finally:
        declare.loading.found = None
    return found[0], described


def _why(err, path):
    frames = [f for f in traceback.extract_tb(err.__traceback__) if f.filename not in (__file__, declare.__file__)]
    text = errors.message_of(err)
    try:
        shown = traceback.format_exception_only(type(err), err)
    except BaseException:  # an author's own property may raise anything
        shown = ["%s: %s\n" % (type(err).__name__, text)]
    trace = "".join(traceback.format_list(frames) + shown)
    line = next((f.lineno for f in reversed(frames) if f.filename == path), err.lineno if type(err) in (SyntaxError, IndentationError, TabError) else None)
    where = "line %d: " % line if line else ""
    return NotLoaded(where + text, trace)
