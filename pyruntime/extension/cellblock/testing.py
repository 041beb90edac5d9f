"""For an author's own tests: a context without a host."""

from .context import Context
from .errors import HostError


def context(tools=None, session_id="test", workspace="/", purpose="interactive", scope="scope-1", cell=1, deadline=None):
    """A Context as a handler gets it. tools is a dictionary from a host tool's name
    to a function that answers it; other calls raise HostError("unknown")."""
    known = dict(tools or {})

    def call(name, arguments):
        if name not in known:
            raise HostError("unknown", "host call %r: there is no tool of this name" % name)
        return known[name](**arguments)

    identity = {"session": session_id, "workspace": workspace, "generation": 1, "cell": cell, "scope": scope, "purpose": purpose, "role": "sandbox"}
    return Context(identity, call, deadline)


def expire(context):
    """Make a context expire, as it does when its call returns."""
    context._live = False
