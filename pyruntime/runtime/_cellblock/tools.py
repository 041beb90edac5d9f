"""Tools that the host bound for this session, as functions of the namespace."""

import types


class Namespace(types.SimpleNamespace):
    """What stands before the dots of a tool's name."""


def install(names, parts, doc, schema, call):
    """Bind the tool called '.'.join(parts) as a function that asks the host."""
    full = ".".join(parts)

    def tool(**arguments):
        return call(full, arguments)

    tool.__name__ = tool.__qualname__ = parts[-1]
    tool.__doc__ = doc
    tool.__module__ = "__main__"
    tool.schema = schema
    if len(parts) == 1:
        names[parts[0]] = tool
        return
    place = names.setdefault(parts[0], Namespace())
    for part in parts[1:-1]:
        if not hasattr(place, part):
            setattr(place, part, Namespace())
        place = getattr(place, part)
    setattr(place, parts[-1], tool)
