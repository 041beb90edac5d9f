"""From JSON data to the types that a handler's hints name."""

import dataclasses
import enum
import typing

from . import schema


class Mismatch(ValueError):
    """Data that is not of the type that a hint names; says where and why."""


def _wrong(where, want, have):
    return Mismatch("%s: want %s, have %s" % (where, want, type(have).__name__))


def value(hint, found, where):
    """found, JSON data, as hint says. Mismatch when it is not."""
    if hint is str or hint is int or hint is float or hint is bool:  # most are, and each call asks
        return _simple(hint, found, where)
    hint = schema.annotated(schema.unmark(hint))[0]
    if hint is typing.Any or hint is object or isinstance(hint, typing.TypeVar):
        return found
    if hasattr(hint, "__supertype__"):
        return value(hint.__supertype__, found, where)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is type(None):
        if found is not None:
            raise _wrong(where, "null", found)
        return None
    if origin in schema.UNIONS:
        return _union(args, found, where)
    if origin is typing.Literal:
        return _one_of(args, [a.value if isinstance(a, enum.Enum) else a for a in args], found, where)
    base = origin or hint
    if base in (str, bool, int, float):
        return _simple(base, found, where)
    if base is tuple:
        return _tuple(args, found, where)
    if base in schema.LISTS or base in schema.SETS:
        if not isinstance(found, list):
            raise _wrong(where, "an array", found)
        items = [value(args[0], v, "%s[%d]" % (where, i)) for i, v in enumerate(found)] if args else found
        return items if base in schema.LISTS else frozenset(items) if base is frozenset else set(items)
    if base in schema.MAPS:
        if not isinstance(found, dict):
            raise _wrong(where, "an object", found)
        return {k: value(args[1], v, "%s.%s" % (where, k)) for k, v in found.items()} if args else found
    if isinstance(base, type) and issubclass(base, enum.Enum):
        members = list(base)
        return _one_of(members, [m.value for m in members], found, where)
    if schema.is_pydantic(base):
        try:
            return base.model_validate(found) if hasattr(base, "model_validate") else base.parse_obj(found)
        except ValueError as err:  # Pydantic's ValidationError is one
            raise Mismatch("%s: %s" % (where, err)) from None
    if schema.is_typed_dict(base):
        return fields(schema.hints_of(base), base.__required_keys__, found, where)
    if dataclasses.is_dataclass(base):
        hints = schema.hints_of(base)
        known = [f for f in dataclasses.fields(base) if f.init]
        required = [f.name for f in known if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
        return base(**fields({f.name: hints[f.name] for f in known}, required, found, where))
    raise schema.Unsupported("%s: there is no conversion to %s" % (where, hint))


def fields(hints, required, found, where):
    """An object's members by their hints, as a dictionary."""
    if not isinstance(found, dict):
        raise _wrong(where, "an object", found)
    for name in found:
        if name not in hints:
            raise Mismatch("%s: there is no %s" % (where, name))
    for name in hints:
        if name in required and name not in found:
            raise Mismatch("%s: %s is missing" % (where, name))
    return {name: value(hints[name], v, "%s.%s" % (where, name)) for name, v in found.items()}


def _simple(base, found, where):
    if base is bool or base is str:
        if type(found) is not base:
            raise _wrong(where, "a string" if base is str else "true or false", found)
        return found
    if type(found) is int:
        return float(found) if base is float else found
    if type(found) is float:
        if base is float:
            return found
        if found == int(found):  # 3.0 is a whole number in JSON Schema
            return int(found)
    raise _wrong(where, "a number" if base is float else "a whole number", found)


def _same(a, b):
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _one_of(members, values, found, where):
    for member, one in zip(members, values):
        if _same(one, found):
            return member
    raise Mismatch("%s: %.80r is none of %s" % (where, found, ", ".join(repr(v) for v in values)))


def _union(args, found, where):
    why = []
    for a in args:
        try:
            return value(a, found, where)
        except Mismatch as err:
            why.append(str(err))
    raise Mismatch("%s: it fits none: %s" % (where, "; ".join(why)))


def _tuple(args, found, where):
    if not isinstance(found, list):
        raise _wrong(where, "an array", found)
    if not args:
        return tuple(found)
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(value(args[0], v, "%s[%d]" % (where, i)) for i, v in enumerate(found))
    if args == ((),):
        args = ()
    if len(args) != len(found):
        raise Mismatch("%s: want %d items, have %d" % (where, len(args), len(found)))
    return tuple(value(a, v, "%s[%d]" % (where, i)) for i, (a, v) in enumerate(zip(args, found)))
