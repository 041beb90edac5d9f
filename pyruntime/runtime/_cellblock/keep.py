"""Which statements of earlier cells still define something.

Only places in the cells' text are reported: the host has the text itself, and
takes no code from here. Functions, classes, imports and plain constants count;
what a name got by running other code cannot be had again from source.
"""

import _ast
import sys
import types

from . import source

ONLY_AST = 0x400  # ast.PyCF_ONLY_AST
MAX_STATEMENTS = 4096  # reported at once; the oldest are left out
MAX_OTHERS = 256  # names
MAX_NAME = 255  # characters of a name that is reported
_NONE = object()
_COMPREHENSIONS = (_ast.ListComp, _ast.SetComp, _ast.DictComp, _ast.GeneratorExp)
_FUNCTIONS = (_ast.FunctionDef, _ast.AsyncFunctionDef)


class Statement:
    """One statement at the top of a cell, and what its names are bound to."""

    __slots__ = ("cell", "start", "end", "kind", "names", "live", "needs", "literal", "plain", "spelled")

    def __init__(self, cell, start, end, kind, names, needs, literal):
        self.cell = cell
        self.start = start  # bytes of UTF-8 in the cell's text
        self.end = end
        self.kind = kind
        self.names = names
        self.live = {}  # the names it still defines -> the objects
        self.needs = needs  # names that are looked up when it runs
        self.literal = literal  # of a constant
        self.plain = True  # not decorated
        self.spelled = frozenset()  # of an import: what it names


class Definitions:
    """What one namespace still has of the definitions that cells made."""

    def __init__(self):
        self.statements = []
        self.others = {}  # names that were bound in other ways, the newest last

    def note(self, text, cell, flags, before, namespace, error):
        """After a cell: what its statements defined, as far as they came to run. Whatever
        else is not as it was before the cell is among the other names, however it came.
        before has the ids of the namespace's values then."""
        if text[:1] == "\ufeff":
            text, skipped = text[1:], 3
        else:
            skipped = 0
        name = source.name_of(cell)
        try:
            body = source.compiled(text, name, "exec", flags | ONLY_AST).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            body = []
        reached = _reached(error, name)
        raw = text.encode("utf-8", "surrogatepass")
        lines = _line_starts(raw)
        new, others = {}, {}
        for node in body:
            if reached is not None and (node.end_lineno or node.lineno) >= reached:
                break
            kind, names = _kind_of(node)
            made = kind and self._statement(node, kind, names, raw, lines, cell, skipped, flags, name)
            for bound in names if made else _bound(node):
                earlier = new.pop(bound, [])
                others.pop(bound, None)
                if not made:
                    others[bound] = None
                elif bound == "*" or _loads(made, bound):
                    new[bound] = [old for old in earlier if bound == "*" or _loads(old, bound)] + [made]
                else:
                    new[bound] = [made]
        fresh = []
        for bound, several in new.items():
            value = namespace.get(bound, _NONE)
            for made in several:
                if bound == "*":
                    made.live[bound] = None
                elif value is not _NONE and _fits(made, bound, value, name):
                    made.live[bound] = value
                if made not in fresh:
                    fresh.append(made)
        fresh = sorted((made for made in fresh if made.live and not self._imported(made)), key=lambda made: made.start)
        self.statements += fresh
        brought = _brought(fresh, namespace)
        others.update((bound, None) for bound, value in list(namespace.items()) if before.get(bound) != id(value) and bound not in brought)
        for bound in list(others) + list(brought):
            self.others.pop(bound, None)
        self.others.update(others)
        self._drop(namespace, {bound: made for made in fresh for bound in made.live})

    def _statement(self, node, kind, names, raw, lines, cell, skipped, flags, name):
        """The node as a statement that can be run by itself; None when it cannot."""
        first = node
        for decorator in getattr(node, "decorator_list", ()):
            if decorator.lineno < first.lineno:
                first = decorator
        start = lines[first.lineno - 1] + (node.col_offset if first is node else 0)
        end = lines[node.end_lineno - 1] + node.end_col_offset
        try:
            again = source.compiled(raw[start:end].decode("utf-8"), name, "exec", flags | ONLY_AST)
            if len(again.body) != 1 or _kind_of(again.body[0]) != (kind, names):
                return None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        literal = _literal(node.value) if kind == "constant" else _NONE
        made = Statement(cell, start + skipped, end + skipped, kind, names, _needs(node), literal)
        made.plain = not getattr(node, "decorator_list", ())
        if kind == "import":
            module = "." * (getattr(node, "level", 0) or 0) + (getattr(node, "module", "") or "")
            made.spelled = frozenset((module, a.name, a.asname) for a in node.names)
        return made

    def _imported(self, made):
        """Whether an earlier import has done all that this one did."""
        return made.kind == "import" and any(
            made.spelled <= old.spelled and all(old.live.get(name, _NONE) is value for name, value in made.live.items())
            for old in self.statements)

    def _drop(self, namespace, newest):
        """Forget what is not true any more, but not what a later definition
        needed when it ran: a default argument has the constant's old value."""
        for made in self.statements:
            for bound in list(made.live):
                newer = newest.get(bound, made)
                # "import a.b" and "import a.c" bind one name, and both are wanted.
                beside = made.kind == newer.kind == "import" and not made.spelled <= newer.spelled
                if newer is not made and not beside or bound != "*" and not _still(made, namespace.get(bound, _NONE), made.live[bound]):
                    del made.live[bound]
                    self.others.setdefault(bound)  # unless another statement has it
        needed, stays = set(), []
        for made in reversed(self.statements):
            if made.live or needed.intersection(made.names):
                stays.append(made)
                needed.difference_update(made.names)
                needed |= made.needs
        self.statements = stays[::-1]
        bound = {name for made in self.statements for name in made.live}
        self.others = {name: None for name in self.others if name in namespace and name not in bound}

    def report(self):
        """What the reply to a cell says; the places are bytes of each cell's code."""
        kept = [
            {"cell": made.cell, "start": made.start, "end": made.end, "kind": made.kind, "names": sorted(made.live)}
            for made in self.statements[-MAX_STATEMENTS:]
        ]
        others = [name for name in self.others if name[:1] != "_" and len(name) <= MAX_NAME]
        return {"kept": kept, "others": others[-MAX_OTHERS:]}


def _reached(error, name):
    """The line of the cell at which an error ended it; None when it ran through."""
    if error is None:
        return None
    line, trace = 0, error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == name and code.co_name == "<module>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _loads(made, bound):
    """Whether a statement binds a name to a package by loading a part of it: "import a.b"
    and "import a.c" are both wanted."""
    return made.kind == "import" and any(not module and alias is None and name.partition(".")[0] == bound for module, name, alias in made.spelled)


def _brought(fresh, namespace):
    """Names that "from module import *" has bound."""
    found = set()
    for made in fresh:
        if "*" in made.live:
            for module, _, _ in made.spelled:
                theirs = getattr(sys.modules.get(module), "__dict__", {})
                found.update(name for name, value in list(namespace.items()) if theirs.get(name, _NONE) is value)
    return found


def _line_starts(raw):
    """Where each line begins, as the compiler counts lines."""
    starts, at = [0], 0
    while at < len(raw):
        byte = raw[at]
        at += 1
        if byte == 13 and raw[at:at + 1] == b"\n":
            at += 1
        if byte == 10 or byte == 13:
            starts.append(at)
    return starts


def _kind_of(node):
    """The kind of definition that a statement is, and its names; None for others."""
    if isinstance(node, _FUNCTIONS):
        kind, names = "function", [node.name]
    elif isinstance(node, _ast.ClassDef):
        kind, names = "class", [node.name]
    elif isinstance(node, _ast.Import):
        kind, names = "import", [a.asname or a.name.partition(".")[0] for a in node.names]
    elif isinstance(node, _ast.ImportFrom):
        kind, names = "import", [a.asname or a.name for a in node.names]
    elif isinstance(node, _ast.Assign):
        kind, names = "constant", [t.id for t in node.targets if isinstance(t, _ast.Name)]
        if len(names) != len(node.targets) or _literal(node.value) is _NONE:
            return None, []
    elif isinstance(node, _ast.AnnAssign):
        if not isinstance(node.target, _ast.Name) or node.value is None or _literal(node.value) is _NONE:
            return None, []
        kind, names = "constant", [node.target.id]
    else:
        return None, []
    if any(len(name) > MAX_NAME for name in names):
        return None, []
    return kind, names


def _literal(node):
    """The value of a literal made of literals; _NONE for any other expression."""
    if isinstance(node, _ast.Constant):
        return node.value
    if isinstance(node, _ast.UnaryOp) and isinstance(node.op, (_ast.USub, _ast.UAdd)):
        value = _literal(node.operand)
        if type(value) not in (int, float, complex):
            return _NONE
        return -value if isinstance(node.op, _ast.USub) else value
    if isinstance(node, (_ast.Tuple, _ast.List, _ast.Set)):
        values = [_literal(item) for item in node.elts]
        if any(value is _NONE for value in values):
            return _NONE
        try:
            return {_ast.Tuple: tuple, _ast.List: list, _ast.Set: set}[type(node)](values)
        except TypeError:  # a set of lists
            return _NONE
    if isinstance(node, _ast.Dict):
        keys = [_NONE if key is None else _literal(key) for key in node.keys]
        values = [_literal(value) for value in node.values]
        if any(value is _NONE for value in keys + values):
            return _NONE
        try:
            return dict(zip(keys, values))
        except TypeError:
            return _NONE
    return _NONE


def _same(value, literal):
    """Whether a value is just what the literal says; runs no code of the guest's."""
    kind = type(literal)
    if type(value) is not kind:
        return False
    if kind in (tuple, list):
        return len(value) == len(literal) and all(map(_same, list(value), literal))
    if kind is dict:
        return len(value) == len(literal) and all(
            _same(a, b) and _same(value_a, value_b) for (a, value_a), (b, value_b) in zip(list(value.items()), literal.items()))
    if kind is set:
        # A subclass of str with an own hash could stand in it.
        return len(value) == len(literal) and all(type(item) in (str, bytes, int, float, complex, bool, type(None), tuple) for item in list(value)) and value == literal
    if kind is float or kind is complex:
        return repr(value) == repr(literal)  # nan, and the sign of zero
    return value == literal


def _still(made, value, was):
    return value is was and (made.literal is _NONE or _same(value, made.literal))


def _fits(made, bound, value, name):
    """Whether a value can be what the statement has just bound."""
    if made.kind == "constant":
        return _same(value, made.literal)
    if not made.plain:
        return True  # a decorator may return any object
    if made.kind == "function":
        return type(value) is types.FunctionType and value.__code__.co_filename == name and value.__code__.co_name == bound
    if made.kind == "class":
        return isinstance(value, type) and type.__dict__["__name__"].__get__(value) == bound
    return True


def _needs(node):
    """Names that a definition looks up when it runs, not when it is called."""
    names, waiting = set(), [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _ast.Name) and isinstance(node.ctx, _ast.Load):
            names.add(node.id)
        for field in node._fields:
            if field == "body" and isinstance(node, _FUNCTIONS + (_ast.Lambda,)):
                continue
            waiting += _nodes(getattr(node, field, None))
    return names


def _nodes(value):
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, _ast.AST)]


def _bound(node):
    """Names that a statement may bind or delete in the cell's namespace."""
    found, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _ast.Name) and not isinstance(node.ctx, _ast.Load):
            found.append(node.id)
        elif isinstance(node, _FUNCTIONS + (_ast.ClassDef,)):
            found.append(node.name)
            continue
        elif isinstance(node, (_ast.Lambda,) + _COMPREHENSIONS):
            continue
        elif isinstance(node, (_ast.Import, _ast.ImportFrom)):
            found += [a.asname or a.name.partition(".")[0] for a in node.names]
        elif type(node).__name__ in ("ExceptHandler", "MatchAs", "MatchStar") and node.name:
            found.append(node.name)
        elif type(node).__name__ == "MatchMapping" and node.rest:
            found.append(node.rest)
        for field in node._fields:
            waiting += _nodes(getattr(node, field, None))
    return found
