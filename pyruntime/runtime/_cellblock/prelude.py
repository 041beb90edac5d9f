"""Names that every cell has without importing them.

A module is bound when a cell first mentions its name: an import that no cell
needs would cost every cold start, and a new session's globals() stays empty.
"""

import builtins
import os
import sys

# What modules declare; builtins have it so that a skill needs no import for it.
AUDIT = builtins._AUDIT = []


def _json():
    import json

    return json


def _re():
    import re

    return re


def _subprocess():
    import subprocess

    return subprocess


def _path():
    from pathlib import Path

    return Path


def _preflight():
    from . import preflight

    return preflight.preflight


NAMES = {
    "json": _json,
    "re": _re,
    "os": lambda: os,
    "sys": lambda: sys,
    "subprocess": _subprocess,
    "Path": _path,
    "preflight": _preflight,
    "_AUDIT": lambda: AUDIT,
}


def mentions(text, name):
    """Whether name stands in text as a whole word."""
    at = text.find(name)
    while at >= 0:
        before, after = text[max(at - 1, 0): at], text[at + len(name): at + len(name) + 1]
        if not ("a" + before).isidentifier() or not before:
            if not ("a" + after).isidentifier() or not after:
                return True
        at = text.find(name, at + 1)
    return False


def bind(text, namespace):
    """Bind what text mentions and the namespace has not."""
    for name, make in NAMES.items():
        if name in text and name not in namespace and mentions(text, name):
            namespace[name] = make()
