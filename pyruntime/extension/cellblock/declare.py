"""How an extension says what it has: tools, prompt, slash commands and hooks."""

import enum
import inspect
import threading
import typing

from . import convert, data, schema
from .errors import HostError

PURPOSES = ("interactive", "maintenance", "eval")
ROLES = ("sandbox", "extension")
HOOKS = ("session_start", "before_cell", "after_cell", "session_end")


class Action(dict):
    """What a call will do, as a preflight declares it: a name and what it is about.

    Action("notes.delete", title="x") is {"action": "notes.delete", "title": "x"}.
    """

    def __init__(self, name, **about):
        super().__init__(action=name, **about)


class Tool:
    """One tool of an extension.

    handler takes its arguments by name, or one parameter named "arguments" (a
    dataclass, TypedDict, Pydantic model or dict) and then the context; a parameter
    named "context" gets the call's Context. It may be a coroutine function. What it
    returns is JSON data, dataclasses and Pydantic models included.

    name is the handler's unless given. doc is its docstring. schema replaces the
    JSON Schema that is made of the type hints. preflight(arguments, identity)
    returns None, or the Action that the call would do; it does not do it. purposes
    and roles narrow who may call; None stands for all. timeout is a number of
    seconds after which a call is cancelled; None for no limit.
    """

    def __init__(self, handler, name=None, doc=None, schema=None, preflight=None, purposes=None, roles=None, timeout=None, reason=None):
        if not callable(handler):
            raise TypeError("a tool's handler is a function, not %s" % type(handler).__name__)
        self.handler = handler
        self.name = name or getattr(handler, "__name__", "")
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError("%r is no name for a tool; it is an identifier" % (self.name,))
        self.doc = inspect.cleandoc(doc if doc is not None else getattr(handler, "__doc__", None) or "")
        self.preflight = preflight
        self.purposes = _among("purpose", purposes, PURPOSES)
        self.roles = _among("role", roles, ROLES)
        if timeout is not None and not 0 < timeout < 1e9:
            raise ValueError("tool %s: a timeout is a number of seconds" % self.name)
        self.timeout = timeout
        self.reason = reason or ""
        self._shape = Shape(handler, self.name)
        self.schema = self._shape.schema if schema is None else schema
        self.__doc__ = self.doc
        self.__name__ = self.name
        self.__wrapped__ = handler

    def __call__(self, *args, **kwargs):
        """The handler itself, for tests and for other functions of the file."""
        return self.handler(*args, **kwargs)

    def arguments(self, found):
        """found, a JSON object, as the handler's hints say. HostError when it is not."""
        try:
            return self._shape.arguments(found)
        except convert.Mismatch as err:
            raise HostError("invalid-arguments", str(err)) from None

    def run(self, arguments, ctx):
        """Call the handler with what arguments() returned."""
        return self._shape.call(self.handler, arguments, ctx)

    def described(self):
        """What the host is told of the tool."""
        return {
            "name": self.name,
            "doc": self.doc,
            "signature": self._shape.signature,
            "schema": data.plain(self.schema, "the schema"),
            "preflight": self.preflight is not None,
            "purposes": list(self.purposes),
            "roles": list(self.roles),
            "timeoutMs": 0 if self.timeout is None else max(1, int(self.timeout * 1000)),
            "reason": self.reason,
        }


def tool(handler=None, **options):
    """Make a Tool of a function: @tool, or @tool(preflight=…); options as Tool's."""
    if handler is None:
        return lambda function: Tool(function, **options)
    return Tool(handler, **options)


class Slash:
    """A command that a person types, "/name text".

    handler(text, context) returns what to show, or None.
    """

    def __init__(self, name, handler, doc=None):
        if not isinstance(name, str) or not name.replace("-", "_").isidentifier():
            raise ValueError("%r is no name for a slash command" % (name,))
        self.name, self.handler = name, handler
        self.doc = inspect.cleandoc(doc if doc is not None else getattr(handler, "__doc__", None) or "")


class Extension:
    """What one file registers.

    tools are functions or Tools; prompt is text that the model is told with the
    tool's description, or a function without arguments that returns it; slash are
    Slash commands, or a dictionary from name to function; hooks is a dictionary
    from "session_start", "before_cell", "after_cell" or "session_end" to a function
    (event, context), whose failure is noted and stops nothing.
    """

    def __init__(self, name, tools=(), prompt="", slash=(), hooks=None):
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError("%r is no name for an extension; it is an identifier" % (name,))
        self.name = name
        self.tools = {}
        for t in tools:
            t = t if isinstance(t, Tool) else Tool(t)
            if t.name in self.tools:
                raise ValueError("extension %s: there are two tools %s" % (name, t.name))
            self.tools[t.name] = t
        self.prompt = prompt
        commands = [Slash(n, h) for n, h in slash.items()] if isinstance(slash, dict) else list(slash)
        self.slash = {s.name: s for s in commands}
        if len(self.slash) != len(commands):
            raise ValueError("extension %s: there are two slash commands of one name" % name)
        self.hooks = dict(hooks or {})
        for hook, handler in self.hooks.items():
            if hook not in HOOKS:
                raise ValueError("extension %s: %r is none of the hooks %s" % (name, hook, ", ".join(HOOKS)))
            if not callable(handler):
                raise TypeError("extension %s: the hook %s is no function" % (name, hook))

    def described(self):
        """What the host is told of the extension."""
        prompt = self.prompt() if callable(self.prompt) else self.prompt
        if not isinstance(prompt, str):
            raise TypeError("extension %s: its prompt is no text" % self.name)
        return {
            "name": self.name,
            "tools": [t.described() for t in self.tools.values()],
            "prompt": inspect.cleandoc(prompt),
            "slash": [{"name": s.name, "doc": s.doc} for s in self.slash.values()],
            "hooks": list(self.hooks),
        }


loading = threading.local()  # .found: what the file that this thread loads has registered


def register(extension):
    """Register the file's extension: one call, at the top level."""
    if not isinstance(extension, Extension):
        raise TypeError("register takes an Extension, not %s" % type(extension).__name__)
    found = getattr(loading, "found", None)
    if found is not None:  # else a test has imported the file
        found.append(extension)
    return extension


class Shape:
    """How a handler takes its arguments: the schema, the signature, the call."""

    def __init__(self, handler, name):
        params = list(inspect.signature(handler).parameters.values())
        hints = schema.hints_of(handler if inspect.isroutine(handler) else type(handler).__call__)
        self.whole = None  # the hint of a parameter that takes all of them
        self.context = any(p.name == "context" for p in params)
        definitions = {}
        if params and params[0].name == "arguments":
            left = [p.name for p in params[1:] if p.name != "context" and p.default is p.empty]
            if left:
                raise TypeError("tool %s: beside arguments and context nothing is given: %s" % (name, ", ".join(left)))
            self.whole = hints.get("arguments", dict)
            found = schema.of(self.whole, name, definitions=definitions)
            if found.get("type", "object") != "object":
                raise TypeError("tool %s: its arguments are an object, not %s" % (name, found.get("type")))
            found.setdefault("type", "object")
            self.signature = _signature_of(self.whole, handler)
        else:
            found = self._named(params, hints, name, definitions, handler)
        if definitions:
            found["$defs"] = definitions
        self.schema = found

    def _named(self, params, hints, name, definitions, handler):
        found = {"type": "object", "properties": {}}
        self.hints, self.required, self.more, shown = {}, [], False, []
        for p in params:
            if p.name == "context":
                continue
            if p.kind == p.VAR_KEYWORD:
                self.more = True
                shown.append(p.replace(annotation=p.empty))
                continue
            if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL):
                raise TypeError("tool %s: arguments have names: %s has none" % (name, p))
            hint = hints.get(p.name, object)
            if p.default is None and hint is not object:
                hint = typing.Optional[hint]  # as get_type_hints says it before 3.11
            self.hints[p.name] = hint
            one = schema.of(hint, "%s.%s" % (name, p.name), definitions=definitions)
            if p.default is p.empty:
                self.required.append(p.name)
            else:
                schema.add_default(one, p.default)
            found["properties"][p.name] = one
            inner = schema.annotated(hint)[0]
            shown.append(p.replace(annotation=p.empty if inner is object else inner))
        if self.required:
            found["required"] = list(self.required)
        found["additionalProperties"] = self.more
        self.signature = _text(shown, handler)
        return found

    def arguments(self, found):
        if self.whole is not None:
            return convert.value(self.whole, found, "arguments")
        if not self.more:
            return convert.fields(self.hints, self.required, found, "arguments")
        known = {k: v for k, v in found.items() if k in self.hints}
        rest = {k: v for k, v in found.items() if k not in self.hints}
        return dict(convert.fields(self.hints, self.required, known, "arguments"), **rest)

    def call(self, handler, arguments, ctx):
        extra = {"context": ctx} if self.context else {}
        if self.whole is not None:
            return handler(arguments, **extra)
        return handler(**arguments, **extra)


def _among(what, names, known):
    names = (names,) if isinstance(names, str) else tuple(names or ())
    for n in names:
        if n not in known:
            raise ValueError("the %s %r is none of %s" % (what, n, ", ".join(known)))
    return names


def _signature_of(whole, handler):
    """The arguments that a dataclass, TypedDict or model takes, as keywords."""
    whole = schema.annotated(whole)[0]
    if not isinstance(whole, type) or whole is dict:
        return "(**arguments)"
    try:
        hints = schema.hints_of(whole)
        if schema.is_typed_dict(whole):
            params = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in hints]
        else:
            params = [p.replace(kind=p.KEYWORD_ONLY) for p in inspect.signature(whole).parameters.values() if p.kind != p.VAR_KEYWORD]
        return _text([p.replace(annotation=schema.annotated(schema.unmark(hints.get(p.name, p.annotation)))[0]) for p in params], handler)
    except (TypeError, ValueError):
        return "(**arguments)"


def _text(params, handler):
    """A signature's text: without module names, and with defaults that JSON has."""
    shown = []
    for p in params:
        if isinstance(p.default, enum.Enum):
            p = p.replace(default=p.default.value)
        shown.append(p)
    try:
        text = str(inspect.Signature(shown))
    except ValueError:  # a default before a parameter without one
        text = str(inspect.Signature([p if p.kind == p.VAR_KEYWORD else p.replace(kind=p.KEYWORD_ONLY) for p in shown]))
    text = text.replace("*, ", "", 1)
    for module in ("typing.", getattr(handler, "__module__", "") + "."):
        text = text.replace(module, "") if module != "." else text
    return text.replace("NoneType", "None")
