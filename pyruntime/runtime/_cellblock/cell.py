"""Compile and run one cell: statements, the trailing value, top-level await."""

import _ast
import sys

from . import source

ONLY_AST = 0x400  # ast.PyCF_ONLY_AST
TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
COROUTINE = 0x80  # inspect.CO_COROUTINE
FUTURE = 0x1FE0000  # every flag that a __future__ import can set

NOTHING = object()


class Runner:
    """Runs cells in one namespace. One event loop lives as long as it does."""

    def __init__(self, namespace):
        self.namespace = namespace
        self._flags = 0
        self._loop = None

    def run(self, text, name):
        """Run text as the cell called name; its trailing value, or NOTHING."""
        if text[:1] == "\ufeff":
            text = text[1:]
        source.keep(name, text)
        if "class" in text:
            try:
                return self._run(text, name)
            finally:
                source.note_classes(name, self.namespace)
        return self._run(text, name)

    def _run(self, text, name):
        flags = self._flags | TOP_LEVEL_AWAIT
        tree = compile(text, name, "exec", flags | ONLY_AST, True)
        body, last = tree.body, None
        if body and type(body[-1]) is _ast.Expr:
            last = body.pop()
        value = NOTHING
        if body:
            self._exec(compile(tree, name, "exec", flags, True))
        if last is not None:
            code = compile(_ast.Expression(last.value), name, "eval", self._flags | TOP_LEVEL_AWAIT, True)
            value = self._exec(code)
            if _silenced(text, last):
                value = NOTHING
        return value

    def _exec(self, code):
        self._flags |= code.co_flags & FUTURE
        if code.co_flags & COROUTINE:
            return self._await(eval(code, self.namespace))
        return eval(code, self.namespace)

    def _await(self, coroutine):
        import asyncio

        loop = self._loop
        if loop is None or loop.is_closed():
            loop = self._loop = asyncio.new_event_loop()
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # an interrupt: the cell must not run on
                task.cancel()
                try:
                    loop.run_until_complete(task)
                except BaseException:
                    pass
            raise

    def close(self):
        """End the loop and what still waits in it."""
        loop, self._loop = self._loop, None
        if loop is None or loop.is_closed():
            return
        asyncio = sys.modules["asyncio"]
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=0.2))
            loop.close()
        except BaseException:
            pass


def _silenced(text, last):
    """Whether a semicolon follows the trailing expression."""
    if ";" not in text:
        return False
    lines = source.lines_of(text)
    if last.end_lineno > len(lines):
        return False
    rest = lines[last.end_lineno - 1].encode("utf-8", "surrogatepass")[last.end_col_offset:]
    rest += "".join(lines[last.end_lineno:]).encode("utf-8", "surrogatepass")
    return rest.lstrip(b" \t\f\\\n").startswith(b";")
