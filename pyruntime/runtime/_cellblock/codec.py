"""Strict JSON for the wire, from the accelerators alone.

Importing the json package costs a cold interpreter several milliseconds (it
brings re and enum); a first cell needs neither. The C accelerator's functions
have kept their signatures from CPython 3.9 to 3.14; where they are missing the
json package serves.
"""

try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner
except ImportError:  # an interpreter without the accelerator
    make_encoder = None


def _refuse(obj):
    raise TypeError("not JSON: " + type(obj).__name__)


def _constant(name):
    raise ValueError("not JSON: " + name)


def _pairs(pairs):
    found = {}
    for key, value in pairs:
        if key in found:
            raise ValueError("duplicate key " + repr(key)[:80])
        found[key] = value
    return found


class _Rules:
    strict = True
    object_hook = None
    object_pairs_hook = staticmethod(_pairs)
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_constant)
    memo = {}


if make_encoder is not None:
    _encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)
    _scan = make_scanner(_Rules())

    def dumps(obj):
        """Text of obj, ASCII only. TypeError or ValueError when it is not JSON."""
        return "".join(_encode(obj, 0))

    def loads(text):
        """The one JSON value that text holds. ValueError otherwise."""
        start = len(text) - len(text.lstrip(" \t\r\n"))
        try:
            value, end = _scan(text, start)
        except (StopIteration, SystemError):
            # The accelerator raises json's own error, and nothing at all where the
            # json package has not been imported.
            raise ValueError("no JSON value") from None
        if text[end:].strip(" \t\r\n"):
            raise ValueError("text after the JSON value")
        return value
else:
    import json as _json

    def dumps(obj):
        """Text of obj, ASCII only. TypeError or ValueError when it is not JSON."""
        return _json.dumps(obj, allow_nan=False, check_circular=False, separators=(",", ":"))

    def loads(text):
        """The one JSON value that text holds. ValueError otherwise."""
        return _json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)


def clean(text):
    """text without lone surrogates, which no strict JSON reader takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


MAX_NAME = 1_000  # of an exception's class: four bytes a character at most, and the wire takes 4096
MAX_VALUE = 20_000  # characters of an exception's text


def name_of(err):
    """The name of an exception's class, as a reply takes it."""
    return clean(type(err).__name__[:MAX_NAME])


def value_of(err):
    """str(err), or why that could not be had. SystemExit shows its code."""
    try:
        text = str(err.code) if isinstance(err, SystemExit) else str(err)
    except BaseException as inner:
        text = "<%s in str()>" % type(inner).__name__
    return clean(text[:MAX_VALUE])


MAX_NESTING = 48  # levels of one argument; the wire takes 64 of a whole message
MAX_KEYS = 4096  # of one object
MAX_KEY = 4096  # bytes of a key or a name
MAX_BITS = 14280  # of a whole number: 4,299 digits, and the wire takes 4,300 bytes of one


def short(text):
    """Whether text is no longer than the wire takes a key or a name."""
    return len(text) * 4 <= MAX_KEY or len(text.encode("utf-8")) <= MAX_KEY


def misnamed(name):
    """Why name cannot be asked for as a tool; None when it can."""
    if not name:
        return "a tool's name has to say something"
    if clean(name) != name:
        return "half a surrogate pair is no part of a tool's name"
    if not short(name):
        return "a tool's name has at most %d bytes" % MAX_KEY
    if name.startswith("host."):
        return "names in host. are the launcher's own"
    return None


def strict(obj, depth=0):
    """obj as plain JSON data. TypeError or ValueError when it is not JSON: what is
    asked of the host is what was written, or nothing."""
    if obj is None or obj is True or obj is False:
        return obj
    if isinstance(obj, str):
        text = str.__str__(obj)
        if clean(text) != text:
            raise ValueError("half a surrogate pair is no text")
        return text
    if isinstance(obj, int):
        number = int(obj)
        if number.bit_length() > MAX_BITS:
            raise ValueError("a whole number with more than %d bits" % MAX_BITS)
        return number
    if isinstance(obj, float):
        number = float(obj)
        if number - number != 0:
            raise ValueError("%r is no JSON number" % number)
        return number
    if depth >= MAX_NESTING:
        raise ValueError("more than %d levels" % MAX_NESTING)
    if isinstance(obj, dict):
        if len(obj) > MAX_KEYS:
            raise ValueError("an object with more than %d keys" % MAX_KEYS)
        found = {}
        for key, value in list(obj.items()):
            if not isinstance(key, str):
                raise TypeError("a key of type %s is no text" % type(key).__name__)
            key = strict(key)
            if not short(key):
                raise ValueError("a key of more than %d bytes" % MAX_KEY)
            found[key] = strict(value, depth + 1)
        return found
    if isinstance(obj, (list, tuple)):
        return [strict(value, depth + 1) for value in list(obj)]
    raise TypeError("an object of type %s is not JSON" % type(obj).__name__)


def describe(obj, depth=0):
    """obj as JSON data; what JSON cannot hold is described, never dropped."""
    if obj is None or obj is True or obj is False:
        return obj
    kind = type(obj)
    if kind is str:
        return clean(obj)
    if kind is int:
        # Beyond 2**53 a reader of JSON may round: say it in text instead.
        return obj if -(1 << 53) <= obj <= 1 << 53 else _text(obj)
    if kind is float:
        return obj if obj - obj == 0 else repr(obj)
    if depth < 16:
        if kind is dict:
            return {k if type(k) is str and clean(k) == k else _text(k): describe(v, depth + 1) for k, v in list(obj.items())[:4096]}
        if kind is list or kind is tuple:
            return [describe(v, depth + 1) for v in list(obj)[:4096]]
        if kind is set or kind is frozenset:
            return [describe(v, depth + 1) for v in sorted(obj, key=_text)[:4096]]
    return _text(obj)


def _text(obj):
    try:
        return clean(repr(obj) if isinstance(obj, (str, bytes)) else str(obj))[:4096]
    except BaseException as err:  # a guest's __str__ may raise anything
        return "<%s: %s in str()>" % (type(obj).__name__, type(err).__name__)
