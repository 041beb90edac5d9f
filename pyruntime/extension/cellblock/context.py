"""What a handler is given beside its arguments, for as long as its call lasts."""

import time


class ContextExpired(RuntimeError):
    """A context was used after the call that it was made for had returned."""


class Identity:
    """Who makes a call, as the host knows it. Attributes are read-only.

    session_id, workspace (the session's directory), generation, cell, scope (of
    the cell in which the call began), purpose ("interactive", "maintenance" or
    "eval") and role ("sandbox" or "extension").
    """

    __slots__ = ("_known",)
    _NAMES = {"session_id": "session", "workspace": "workspace", "generation": "generation", "cell": "cell", "scope": "scope", "purpose": "purpose", "role": "role"}

    def __init__(self, known):
        object.__setattr__(self, "_known", dict(known))

    def __getattr__(self, name):
        if name in self._NAMES:
            return self._known.get(self._NAMES[name])
        raise AttributeError("an identity has no %r; it has %s" % (name, ", ".join(self._NAMES)))

    def __setattr__(self, name, value):
        raise AttributeError("an identity cannot be changed")

    def __repr__(self):
        return "Identity(%s)" % ", ".join("%s=%r" % (n, getattr(self, n)) for n in self._NAMES)


class Host:
    """The host's tools, for one call's handler."""

    __slots__ = ("_context",)

    def __init__(self, context):
        self._context = context

    def call(self, tool, **arguments):
        """Make a host call in the scope of the call that is being served.

        It goes through the same door as a cell's, with the role "extension", and
        the policy decides. In a coroutine it returns an awaitable, elsewhere it
        blocks and returns the value. HostError when it is refused or fails;
        ContextExpired when the call has returned; KeyboardInterrupt, or
        asyncio.CancelledError in a coroutine, when it was cancelled.
        """
        return self._context._checked()._call(tool, arguments)


class Context:
    """One call's context. Whoever uses it after the call has returned gets
    ContextExpired, other threads included."""

    __slots__ = ("_identity", "_ends", "_call", "_live", "_cancelled", "_callbacks", "_host")

    def __init__(self, identity, call, deadline=None):
        self._identity = identity if isinstance(identity, Identity) else Identity(identity)
        self._call = call
        # Kept by the clock that nobody sets: the host counts by it, too.
        self._ends = None if deadline is None else time.monotonic() + deadline - time.time()
        self._live = True
        self._cancelled = False
        self._callbacks = []
        self._host = Host(self)

    def _checked(self):
        if not self._live:
            raise ContextExpired("this context's call has returned: a context is of use during its own call only")
        return self

    identity = property(lambda self: self._checked()._identity, doc="who makes the call: an Identity")
    session_id = property(lambda self: self.identity.session_id, doc="the session's name")
    purpose = property(lambda self: self.identity.purpose, doc='what the cell is run for: "interactive", "maintenance" or "eval"')
    workspace = property(lambda self: self.identity.workspace, doc="the session's directory")
    scope = property(lambda self: self.identity.scope, doc="the id of the execution scope in which the call began")
    host = property(lambda self: self._checked()._host, doc="the host's tools: a Host")
    deadline = property(lambda self: self._deadline(), doc="when the call is cancelled, in seconds as time.time() counts now; None for never")
    cancelled = property(lambda self: self._checked()._cancelled, doc="whether the call was cancelled")

    def on_cancel(self, callback):
        """Call callback, without arguments and in another thread, when the call is
        cancelled: for what KeyboardInterrupt does not reach, such as a query that
        runs in a library of C. It is called at once if that has happened already.
        """
        self._checked()._callbacks.append(callback)
        if self._cancelled:
            callback()

    def remaining(self):
        """Seconds until the deadline, at least 0; None for no deadline."""
        ends = self._checked()._ends
        return None if ends is None else max(0.0, ends - time.monotonic())

    def _deadline(self):
        ends = self._checked()._ends
        return None if ends is None else time.time() + ends - time.monotonic()
