"""The trailing value: its text, its shape, its rich representations."""

import sys

from . import codec

MAX_HINT = 1_000  # characters: the wire takes 4096 bytes
MAX_RICH = 7 << 20  # characters of all rich results and figures of a cell; the wire's bound is 8 MiB
MIMES = {
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_svg_": "image/svg+xml",
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
}
_ALLOWED = set(MIMES.values()) | {"text/plain", "image/gif", "image/webp", "application/pdf"}
_PLAIN = (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range, type(None))
# Classes whose repr shows every item, so that a lower bound of its length can be
# had without building it; their subclasses too, unless they have a repr of their own.
_LISTS = (list.__repr__, tuple.__repr__, set.__repr__, frozenset.__repr__)
_TEXTS = (str.__repr__, bytes.__repr__, bytearray.__repr__)


def _left(obj, left, above):
    """left less a lower bound of len(repr(obj)); negative as soon as it is over.

    Walks built-in containers and stops when nothing is left; what it does not
    know counts as nothing. It calls no foreign code. above holds the ids of the
    containers around obj: one inside itself is shown as [...].
    """
    text = type(obj).__repr__
    if text in _TEXTS:
        return left - len(obj) - 2
    if text is int.__repr__:
        # A digit needs 3.33 bits. repr of a huge int is slow (CVE-2020-10735).
        return left - obj.bit_length() // 4 - 1
    if text is dict.__repr__:
        parts, least = dict.items(obj), 4
    elif text in _LISTS or text is _deque():
        parts, least = obj, 2
    else:
        return left
    if len(parts) * least > left + least:
        return -1
    if id(obj) in above or len(above) > 60:
        return left
    above.add(id(obj))
    for part in parts:
        if least == 4:
            left = _left(part[0], left - 4, above)
            part = part[1]
        else:
            left -= 2
        left = _left(part, left, above)
        if left < 0:
            break
    above.discard(id(obj))
    return left


def _deque():
    found = sys.modules.get("_collections")
    return found.deque.__repr__ if found is not None else None


def shape(value):
    """What stands in for a value that is too long, such as list len=100000."""
    name = type(value).__name__
    try:
        hint = "%s len=%d" % (name, len(value))
    except BaseException:
        return ""
    dims = getattr(value, "shape", None)
    if type(dims) is tuple and all(type(d) is int for d in dims):
        hint += " shape=" + repr(dims)
    return codec.clean(hint[:MAX_HINT])


def text_of(value, cap):
    """(text, hint): one of them is empty. Raises what the value's repr raises."""
    if _left(value, cap + 2, set()) < 0:
        hint = shape(value)
        if hint:
            return None, hint
        return "<%s of %d bits>" % (type(value).__name__, value.bit_length()), ""
    text = codec.clean(repr(value))
    if len(text) > cap:
        hint = shape(value)
        if hint:
            return None, hint
        text = text[: cap * 2 // 3] + "\n...[truncated %d chars]...\n" % len(text) + text[-(cap // 6):]
    return text, ""


def rich(value, note):
    """[{mime: text or base64}] of a value that offers representations."""
    if type(value) in _PLAIN or isinstance(value, type):
        return []
    kind = type(value)
    found = {}
    bundle = getattr(kind, "_repr_mimebundle_", None)
    if bundle is not None:
        data = _call(value, "_repr_mimebundle_", note, include=None, exclude=None)
        if type(data) is tuple and data:
            data = data[0]
        if type(data) is dict:
            for mime, body in data.items():
                if mime in _ALLOWED and mime != "text/plain":
                    _add(found, mime, body, note)
    for method, mime in MIMES.items():
        if mime not in found and getattr(kind, method, None) is not None:
            body = _call(value, method, note)
            if type(body) is tuple and body:
                body = body[0]
            if body is not None:
                _add(found, mime, body, note)
    return [found] if found else []


def _call(value, method, note, **keywords):
    try:
        return getattr(value, method)(**keywords)
    except Exception as err:
        note("%s of %s failed: %s" % (method, type(value).__name__, type(err).__name__))
        return None


def _add(found, mime, body, note):
    if isinstance(body, (bytes, bytearray)):
        if mime.startswith("image/svg"):
            body = bytes(body).decode("utf-8", "replace")
        else:
            import binascii

            body = binascii.b2a_base64(bytes(body), newline=False).decode("ascii")
    elif mime == "application/json":
        body = codec.dumps(codec.describe(body))
    elif not isinstance(body, str):
        note("%s is %s, not text or bytes" % (mime, type(body).__name__))
        return
    if sum(map(len, found.values())) + len(body) > MAX_RICH:
        note("%s left out: more than %d characters" % (mime, MAX_RICH))
        return
    found[mime] = codec.clean(str(body))


def figures(note, size=0):
    """Base64 PNG of each Matplotlib figure left open; they are closed.

    size is how much of the bound the value's representations have taken.
    """
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    import binascii
    import io

    out = []
    for number in list(pyplot.get_fignums())[:64]:
        body = io.BytesIO()
        try:
            pyplot.figure(number).savefig(body, format="png")
            text = binascii.b2a_base64(body.getvalue(), newline=False).decode("ascii")
            size += len(text)
            if size > MAX_RICH:
                note("figure %d left out: more than %d characters" % (number, MAX_RICH))
            else:
                out.append(text)
        except Exception as err:
            note("figure %d: %s: %s" % (number, type(err).__name__, err))
    pyplot.close("all")
    return out
