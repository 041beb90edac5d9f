"""Tools that the host bound for this session, as functions of the namespace."""

import sys
import types

from . import source


_unsigned = {}  # tool's name -> what its signature is made of, until inspect is imported


class Namespace(types.SimpleNamespace):
    """What stands before the dots of a tool's name."""


def install(names, parts, doc, schema, signature, calls):
    """Bind the tool called '.'.join(parts) as a function that asks the host."""
    full = ".".join(parts)
    properties = schema.get("properties")
    order = list(properties) if isinstance(properties, dict) else []

    def tool(*values, **arguments):
        return calls.call(full, _named(full, order, values, arguments))

    def sync(*values, **arguments):
        return calls.sync(full, _named(full, order, values, arguments))

    for function, name in ((tool, parts[-1]), (sync, "sync")):
        function.__name__, function.__qualname__, function.__module__ = name, full if function is tool else full + ".sync", "__main__"
    tool.__doc__ = doc or None
    sync.__doc__ = "Call %s and wait for the answer, also in an event loop." % full
    tool.schema = schema
    tool.sync = sync
    # inspect is heavy, and few cells ask for a signature.
    if not _unsigned:
        source.after_import("inspect", _sign_all)
    _unsigned[full] = (tool, sync, signature, schema)
    if "inspect" in sys.modules:
        _sign_all(sys.modules["inspect"])
    place = names
    for part in parts[:-1]:
        space = place.get(part)
        if not isinstance(space, Namespace):  # whatever else had the name
            space = place[part] = Namespace()
        place = vars(space)
    place[parts[-1]] = tool


def _named(full, order, values, arguments):
    if len(values) > len(order):
        raise TypeError("%s() takes %d positional arguments but %d were given" % (full, len(order), len(values)))
    for name, value in zip(order, values):
        if name in arguments:
            raise TypeError("%s() got multiple values for argument %r" % (full, name))
        arguments[name] = value
    return arguments


def _sign_all(inspect):
    while _unsigned:
        _sign(inspect, *_unsigned.popitem()[1])


def _sign(inspect, tool, sync, signature, schema):
    """Give the functions the signature that help() shows."""
    found = None
    if signature:
        room = {}
        try:
            exec(compile("def f%s: pass" % signature, "<signature>", "exec", 0x1000000), room)  # annotations stay text
            found = inspect.signature(room["f"])
        except Exception:  # a default that means nothing here
            pass
    if found is None:
        found = _signature_of(inspect, schema)
    if found is not None:
        tool.__signature__ = sync.__signature__ = found


def _signature_of(inspect, schema):
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not all(n.isidentifier() for n in properties):
        return None
    for kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        parameters = []
        try:
            for name, one in properties.items():
                default = inspect.Parameter.empty
                if name not in required:
                    default = one.get("default") if isinstance(one, dict) else None
                parameters.append(inspect.Parameter(name, kind, default=default))
            return inspect.Signature(parameters)
        except ValueError:  # one that may be left out before one that may not; a keyword
            continue
    return None
