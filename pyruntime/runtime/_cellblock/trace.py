"""Errors as text: the cell's frames, none of ours."""

import os
import sys
import traceback

from . import codec
from .codec import clean, name_of, value_of

# A forked worker has modules that its parent has loaded by another name of this directory.
HERE = tuple({os.path.dirname(os.path.abspath(f)) + "/" for f in (__file__, codec.__file__)})
FIRST = tuple(os.path.dirname(here[:-1]) + name for here in HERE for name in ("/boot.py", "/parent.py"))
MAX_TRACEBACK = 200_000  # characters


def _ours(filename):
    return filename.startswith(HERE) or filename in FIRST


def _without_us(err, seen):
    """Take our frames, and what lies above the first frame of a cell, away."""
    if err is None or id(err) in seen:
        return
    seen.add(id(err))
    stack = err.stack
    first = next((i for i, f in enumerate(stack) if f.filename.startswith("<cell ")), None)
    if first is None:
        # No line of a cell: an interrupt while the loop waited for one.
        kept = [f for f in stack if not _ours(f.filename)]
    else:
        kept = [f for f in stack[first:] if not _ours(f.filename)]
    if len(kept) != len(stack):
        del stack[:]
        stack.extend(kept)
    _without_us(err.__cause__, seen)
    _without_us(err.__context__, seen)
    for part in getattr(err, "exceptions", None) or ():
        _without_us(part, seen)


def shorten(text, limit=MAX_TRACEBACK):
    """Head and tail of a text that is too long."""
    if len(text) <= limit:
        return text
    return text[: limit * 2 // 3] + "\n...[%d characters left out]...\n" % (len(text) - limit) + text[-(limit // 3):]


def report(err):
    """{ename, evalue, traceback} of an exception that ended a cell."""
    kind = type(err)
    found = {"ename": name_of(err), "evalue": value_of(err)}
    try:
        told = traceback.TracebackException(kind, err, err.__traceback__, compact=True) if sys.version_info >= (3, 10) else traceback.TracebackException(kind, err, err.__traceback__)
        _without_us(told, set())
        text = "".join(told.format())
        if not told.stack and text.startswith("Traceback (most recent call last):\n"):
            text = text.partition("\n")[2]
    except BaseException as inner:  # a guest's __str__, or no stack left
        text = "%s: %s\n(no traceback: %s)\n" % (found["ename"], found["evalue"], type(inner).__name__)
    found["traceback"] = clean(shorten(text))
    return found
