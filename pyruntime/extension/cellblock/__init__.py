"""What an extension of cellblock is written with.

A file in ~/.cellblock/extensions or in a project's .cellblock/extensions makes one
call of register:

    import cellblock

    def add(a: int, b: int = 1) -> int:
        "Add two numbers."
        return a + b

    cellblock.register(cellblock.Extension(name="sums", tools=[add]))

Cells then call sums.add(2, b=3), when the policy allows that call. Extensions run
with the operator's rights in a process of their own; what crosses is JSON.

Standard library only, CPython 3.9 to 3.14.
"""

from .context import Context, ContextExpired, Host, Identity
from . import data, testing
from .declare import Action, Extension, Slash, Tool, register, tool
from .errors import HostError
from .schema import Unsupported

__all__ = [
    "Action",
    "Context",
    "ContextExpired",
    "Extension",
    "Host",
    "HostError",
    "Identity",
    "Slash",
    "Tool",
    "Unsupported",
    "register",
    "testing",
    "tool",
]
