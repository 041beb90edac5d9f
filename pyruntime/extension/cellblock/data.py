"""JSON data of Python values: what may cross, and as what."""

import enum
import json

from _cellblock import codec

MAX_DEPTH = 60  # nesting; the host reads 64


def clean(text):
    """text without lone surrogates, which no strict JSON reader takes."""
    return str.encode(text, "utf-8", "backslashreplace").decode("utf-8")


def text(value):
    """JSON text of plain data."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def plain(value, where="the result", depth=0):
    """value as JSON data, keys in their order.

    Dataclasses become objects of their fields, enumerations their values, Pydantic
    models what they dump. TypeError names what is no data, and where it is; ValueError
    what is more than the host takes: an object of over 4,096 keys, a key of over 4,096
    bytes, a whole number of over 14,280 bits.
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        if clean(value) != value:
            raise TypeError("%s holds a lone surrogate, which is no text" % where)
        return value
    if kind is int:
        if value.bit_length() > codec.MAX_BITS:
            raise ValueError("%s is a whole number of %d bits; at most %d are passed on" % (where, value.bit_length(), codec.MAX_BITS))
        return value
    if kind is float:
        if value - value != 0:
            raise TypeError("%s is %r, which JSON does not have" % (where, value))
        return value
    if depth > MAX_DEPTH:
        raise TypeError("%s is nested too deep" % where)
    if isinstance(value, enum.Enum):
        return plain(value.value, where, depth + 1)
    if isinstance(value, dict):
        found = {}
        for key, item in value.items():
            if isinstance(key, enum.Enum):
                key = key.value
            if not isinstance(key, str):
                raise TypeError("%s has the key %.80r, which is no string" % (where, key))
            name = plain(str.__str__(key), where)
            if not codec.short(name):
                raise ValueError("%s has a key of %d characters; at most %d bytes are passed on" % (where, len(name), codec.MAX_KEY))
            found[name] = plain(item, "%s[%.40r]" % (where, key), depth + 1)
        if len(found) > codec.MAX_KEYS:
            raise ValueError("%s has %d keys; at most %d are passed on" % (where, len(found), codec.MAX_KEYS))
        return found
    if isinstance(value, (list, tuple)):
        return [plain(item, "%s[%d]" % (where, at), depth + 1) for at, item in enumerate(value)]
    if isinstance(value, (str, int, float)):  # a subclass
        base = str if isinstance(value, str) else int if isinstance(value, int) else float
        return plain(base(value), where, depth + 1)
    if hasattr(kind, "model_dump"):
        return plain(value.model_dump(mode="json"), where, depth + 1)
    if hasattr(kind, "__fields__") and hasattr(value, "json"):
        return plain(json.loads(value.json()), where, depth + 1)
    if hasattr(kind, "__dataclass_fields__"):
        return plain({n: getattr(value, n) for n in kind.__dataclass_fields__}, where, depth + 1)
    raise TypeError("%s is of type %s, which is no JSON data" % (where, kind.__name__))
