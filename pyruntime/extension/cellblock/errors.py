"""Errors that cross the wire with their type, message and declared fields."""

from . import data

MAX_MESSAGE = 65536  # characters of a message
MAX_FIELDS = 1 << 20  # characters of the fields' JSON


class HostError(Exception):
    """A call that the host refused or that failed: code, message, fields.

    A handler that raises one passes all three on to its caller. code is a short
    word such as "not-found"; fields is a dictionary of JSON data, or None. type is
    the name of the exception's type where the error began.
    """

    def __init__(self, code, message, fields=None, type="HostError"):
        super().__init__(code, message)
        self.code = str(code)
        self.message = str(message)
        self.fields = {} if fields is None else dict(fields)
        self.type = type

    def __str__(self):
        return "%s: %s" % (self.code, self.message)


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
    """err as the error of a reply."""
    if isinstance(err, HostError):
        found = {"type": err.type, "code": err.code, "message": err.message}
    else:
        found = {"type": type(err).__name__, "code": "failed", "message": message_of(err)}
    found["type"] = data.clean(str(found["type"]))[:200]
    found["code"] = data.clean(str(found["code"]))[:200]
    found["message"] = data.clean(found["message"])[:MAX_MESSAGE]
    try:
        fields = data.plain(declared(err))
        if fields and len(data.text(fields)) <= MAX_FIELDS:
            found["fields"] = fields
        elif fields:
            found["message"] += " (its fields are left out: they are too long)"
    except Exception as why:  # an author's own property may raise anything
        found["message"] += " (its fields are left out: %s)" % data.clean(message_of(why))[:500]
    return found


def message_of(err):
    """The text of an exception, whatever its __str__ does."""
    try:
        return str(err)
    except BaseException as why:
        return "<%s in str()>" % type(why).__name__
