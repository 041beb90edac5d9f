"""What a host call, or the end of a turn, is as an exception."""


class HostError(Exception):
    """A host call that the host refused or failed.

    code is a word such as "denied", message says more. type names the type of the
    exception where it began ("HostError" for the host's own), and fields are what
    its author declared.
    """

    def __init__(self, code, message, type="HostError", fields=None):
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.type = type
        self.fields = {} if fields is None else fields

    def __str__(self):
        if self.type in ("HostError", ""):
            return "%s: %s" % (self.code, self.message)
        return "%s: %s: %s" % (self.code, self.type, self.message)


class ScopeClosed(HostError):
    """A host call of a cell that has ended or yielded, or of no cell."""


class InvalidArguments(HostError, ValueError):
    """A host call that is refused before anything is sent."""


class TurnYield(BaseException):
    """Raised by a cell, ends it as a control outcome and no error. The argument, if
    there is one, is the cell's value. A cell that has yielded calls the host no more."""


for _kind in (HostError, ScopeClosed, InvalidArguments, TurnYield):
    _kind.__module__ = "cellblock"  # where a cell finds it


def closed(why):
    """A ScopeClosed that says why."""
    return ScopeClosed("scope-closed", why)


def yield_of(err):
    """The TurnYield that err is, or that is all that a group of exceptions holds."""
    if isinstance(err, TurnYield):
        return err
    found = None
    for part in getattr(err, "exceptions", None) or ():
        inner = yield_of(part)
        if inner is None:
            return None
        found = found or inner
    return found
