"""What every message of a worker has to keep to, from PROTOCOL.md: the clients hold each
line against it, as the launcher does, which ends a worker that does not."""

import json


class Broken(AssertionError):
    """A line that the launcher would end the worker for."""


def read(line):
    """The message of a line. Broken when it is out of bounds."""
    message = json.loads(line.decode("utf-8"), object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant)
    _look(message, 1)
    return message


def _object(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Broken("a key twice")
    return found


def _constant(text):
    raise Broken(text)


def _number(text):
    if len(text) > 4300:
        raise Broken("a number of %d bytes" % len(text))
    return float(text) if set(text) & set(".eE") else int(text)


def _look(value, depth):
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise Broken("half a surrogate pair") from None
    if isinstance(value, (dict, list)) and depth > 64:
        raise Broken("more than 64 levels")
    if isinstance(value, dict):
        if len(value) > 4096:
            raise Broken("%d keys" % len(value))
        for key, item in value.items():
            _look(key, depth)
            if len(key.encode("utf-8")) > 4096:
                raise Broken("a key of %d bytes" % len(key.encode("utf-8")))
            _look(item, depth + 1)
        if value.get("op") == "host":
            name = value["name"]
            if type(name) is not str or not 0 < len(name.encode("utf-8")) <= 4096:
                raise Broken("the name %.80r" % (name,))
            if name == "host.cancel" and type(value["arguments"].get("call")) is not int:
                raise Broken("host.cancel of %.80r" % (value["arguments"],))
    if isinstance(value, list):
        for item in value:
            _look(item, depth + 1)
