"""Errors that cross the wire with their type, message and declared fields."""

import sys
import traceback

from . import data

MAX_MESSAGE = 65536  # characters of a message
MAX_FIELDS = 1 << 20  # characters of the fields' JSON


class HostError(Exception):
    """A call that the host refused or that failed: code, message, fields.

    A handler that raises one passes all three on to its caller. code is a short
    word such as "not-found"; fields is a dictionary of JSON data, or None. type is
    the name of the exception's type where the error began.
    """

    # For a subclass whose __init__ does not call this one.
    code, fields, type = "failed", {}, "HostError"

    def __init__(self, code, message, fields=None, type="HostError"):
        super().__init__(code, message)
        self.code = str(code)
        self.message = str(message)
        self.fields = {} if fields is None else dict(fields)
        self.type = type

    def __str__(self):
        return "%s: %s" % (self.code, self.message)

    def __getattr__(self, name):
        if name == "message":
            return Exception.__str__(self)  # what the subclass was called with
        raise AttributeError("%s has no %r" % (type(self).__name__, name))


def declared(err):
    """The fields that an exception's author declared, as a dictionary.

    Its attribute "fields" is a dictionary, or names attributes; else it is a
    dataclass, or declares none.
    """
    names = getattr(err, "fields", None)
    if isinstance(names, dict):
        return names
    if isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names):
        return {n: getattr(err, n, None) for n in names}
    return {n: getattr(err, n, None) for n in getattr(err, "__dataclass_fields__", ())}


def report(err):
    """err as the error of a reply, whatever its author's properties and methods do: a
    call whose error could not be told would never be answered."""
    host = issubclass(type(err), HostError)
    found = {
        "type": _text(lambda: err.type if host else type(err).__name__, "Exception")[:200],
        "code": _text(lambda: err.code, "failed")[:200] if host else "failed",
        "message": (_text(lambda: err.message) if host else data.clean(message_of(err)))[:MAX_MESSAGE],
    }
    try:
        fields = data.plain(declared(err))
        if fields and len(data.text(fields)) <= MAX_FIELDS:
            found["fields"] = fields
        elif fields:
            found["message"] += " (its fields are left out: they are too long)"
    except BaseException as why:
        found["message"] += " (its fields are left out: %s)" % data.clean(message_of(why))[:500]
    return found


def _text(get, otherwise=None):
    """What get returns as text; where that raises, otherwise, or what it raised."""
    try:
        return data.clean(str(get()))
    except BaseException as why:
        return otherwise or "<%s>" % type(why).__name__


def message_of(err):
    """The text of an exception, whatever its __str__ does."""
    try:
        return str(err)
    except BaseException as why:
        return "<%s in str()>" % type(why).__name__


def show(err):
    """Print the traceback of err to the log: stderr, or where that has been closed or
    replaced by what does not work, the stderr that the process began with."""
    for stream in (sys.stderr, sys.__stderr__):
        try:
            traceback.print_exception(type(err), err, err.__traceback__, file=stream)
            return
        except BaseException:
            continue
