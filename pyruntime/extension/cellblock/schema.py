"""JSON Schema of type hints."""

import collections.abc
import dataclasses
import enum
import types
import typing

from . import data

_SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
SETS = (set, frozenset, collections.abc.Set)
MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
_MARKS = tuple(
    getattr(typing, n) for n in ("Required", "NotRequired", "ReadOnly") if hasattr(typing, n)
)


class Unsupported(TypeError):
    """A type hint for which there is no JSON Schema."""


def is_pydantic(hint):
    """Whether hint is a Pydantic model; Pydantic itself is not imported."""
    return isinstance(hint, type) and (
        hasattr(hint, "model_json_schema") or (hasattr(hint, "parse_obj") and hasattr(hint, "__fields__"))
    )


def is_typed_dict(hint):
    """Whether hint is a TypedDict."""
    return isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__total__") and hasattr(hint, "__annotations__")


def hints_of(owner):
    """The type hints of a function or class, Annotated kept."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError as err:
        raise Unsupported("%s: %s in a type hint" % (getattr(owner, "__qualname__", owner), err)) from None


def unmark(hint):
    """hint without Required, NotRequired and ReadOnly, which say nothing of the type."""
    while typing.get_origin(hint) in _MARKS and _MARKS:
        hint = typing.get_args(hint)[0]
    return hint


def annotated(hint):
    """(hint without Annotated, its description or None)."""
    if typing.get_origin(hint) is getattr(typing, "Annotated", None):
        inner, *notes = typing.get_args(hint)
        return inner, next((n for n in notes if isinstance(n, str)), None)
    return hint, None


def of(hint, where="", seen=(), definitions=None):
    """The schema of hint. where names it in errors; definitions collects "$defs"."""
    hint = unmark(hint)
    inner, doc = annotated(hint)
    if doc is not None or inner is not hint:
        found = of(inner, where, seen, definitions)
        return dict(found, description=doc) if doc is not None else found
    if hint is typing.Any or hint is object:
        return {}
    if hint is None:
        return {"type": "null"}
    if isinstance(hint, typing.TypeVar):
        return {}
    if hasattr(hint, "__supertype__"):  # NewType
        return of(hint.__supertype__, where, seen, definitions)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS:
        return {"anyOf": [of(a, where, seen, definitions) for a in args]}
    if origin is typing.Literal:
        return {"enum": [_scalar(a, where) for a in args]}
    base = origin or hint
    if base in _SIMPLE:
        return {"type": _SIMPLE[base]}
    if base is tuple:
        return _tuple(args, where, seen, definitions)
    if base in LISTS or base in SETS:
        found = {"type": "array"}
        if args:
            found["items"] = of(args[0], where, seen, definitions)
        if base in SETS:
            found["uniqueItems"] = True
        return found
    if base in MAPS:
        found = {"type": "object"}
        if args:
            if annotated(args[0])[0] is not str:
                raise Unsupported("%s: the keys of %s are no strings; JSON has no others" % (where, hint))
            found["additionalProperties"] = of(args[1], where, seen, definitions)
        return found
    if isinstance(base, type) and issubclass(base, enum.Enum):
        return {"enum": [_scalar(m, where) for m in base]}
    if is_pydantic(base):
        return _pydantic(base, definitions if definitions is not None else {})
    if base in seen:
        raise Unsupported("%s: %s holds itself" % (where, base.__name__))
    if is_typed_dict(base):
        fields = hints_of(base)
        required = [n for n in fields if n in base.__required_keys__]
        return _object(fields, required, base, where, seen, definitions)
    if dataclasses.is_dataclass(base):
        hints = hints_of(base)
        fields = {f.name: hints[f.name] for f in dataclasses.fields(base) if f.init}
        required = [f.name for f in dataclasses.fields(base) if f.init and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
        found = _object(fields, required, base, where, seen, definitions)
        for f in dataclasses.fields(base):
            if f.init and f.default is not dataclasses.MISSING:
                add_default(found["properties"][f.name], f.default)
        return found
    raise Unsupported("%s: there is no JSON Schema for %s" % (where, getattr(hint, "__name__", hint)))


def add_default(schema, value):
    """Say the default where JSON can."""
    try:
        schema["default"] = data.plain(value)
    except TypeError:
        pass


def _scalar(value, where):
    if isinstance(value, enum.Enum):
        value = value.value
    if value is not None and type(value) not in (str, int, float, bool):
        raise Unsupported("%s: %r is no string, number, boolean or None" % (where, value))
    return value


def _tuple(args, where, seen, definitions):
    if not args:
        return {"type": "array"}
    if len(args) == 2 and args[1] is Ellipsis:
        return {"type": "array", "items": of(args[0], where, seen, definitions)}
    if args == ((),):  # Tuple[()] before 3.11
        args = ()
    found = {"type": "array", "minItems": len(args), "maxItems": len(args)}
    if args:
        found["prefixItems"] = [of(a, where, seen, definitions) for a in args]
    return found


def _object(fields, required, owner, where, seen, definitions):
    found = {"type": "object", "properties": {}}
    for name, hint in fields.items():
        found["properties"][name] = of(hint, "%s.%s" % (where or owner.__name__, name), seen + (owner,), definitions)
    if required:
        found["required"] = required
    found["additionalProperties"] = False
    return found


def _pydantic(model, definitions):
    if hasattr(model, "model_json_schema"):
        found = dict(model.model_json_schema(ref_template="#/$defs/{model}"))
    else:
        found = dict(model.schema(ref_template="#/$defs/{model}"))
    for key in ("$defs", "definitions"):
        definitions.update(found.pop(key, {}))
    return found
