"""The trailing value: its text, its shape, its rich representations."""

import sys

from . import codec

MAX_RICH = 7 << 20  # characters of base64 or text of all rich results of a cell
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


class _TooLong(Exception):
    pass


def _bounded(obj, left, depth=0):
    """repr(obj) when it has at most left characters; _TooLong otherwise.

    Only exact built-in containers are walked, so that the text is the one that
    repr gives; anything else answers for itself.
    """
    kind = type(obj)
    if kind is str or kind is bytes:
        if len(obj) > left:
            raise _TooLong
    elif kind in (list, tuple, dict, set, frozenset) and obj:
        if 3 * len(obj) - 2 > left + 2 or depth > 50:
            raise _TooLong
        used = 0
        for item in obj.items() if kind is dict else obj:
            for part in item if kind is dict else (item,):
                used += _bounded(part, left - used, depth + 1) + 2
                if used > left + 2:
                    raise _TooLong
        return used
    elif kind is int:
        # repr of a huge int is refused or slow (CVE-2020-10735).
        if obj.bit_length() > 4 * left:
            raise _TooLong
    text = repr(obj)
    if len(text) > left:
        raise _TooLong
    return len(text)


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
    return hint


def text_of(value, cap):
    """(text, hint): one of them is empty. Raises what the value's repr raises."""
    if type(value) in _PLAIN:
        try:
            _bounded(value, cap)
        except _TooLong:
            hint = shape(value)
            if hint:
                return None, hint
            return "<%s of %d bits>" % (type(value).__name__, value.bit_length()), ""
        except RecursionError:
            pass
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
    if hasattr(kind, "_cellblock_no_such_method_"):  # answers to any name: a mock
        return []
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


def figures(note):
    """Base64 PNG of each Matplotlib figure left open; they are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    import binascii
    import io

    out, size = [], 0
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
