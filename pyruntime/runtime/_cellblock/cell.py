"""Compile and run one cell: statements, the trailing value, top-level await."""

import _ast
import sys

from . import source

ONLY_AST = 0x400  # ast.PyCF_ONLY_AST
TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
COROUTINE = 0x80  # inspect.CO_COROUTINE
FUTURE = 0x1FE0000  # every flag that a __future__ import can set

NOTHING = object()
# Seconds, and how often: asyncio.wait_for can lose a cancellation before 3.12 (bpo-37658),
# so that there are further ones. The launcher ends a worker after 2 seconds.
CANCEL_AGAIN, FURTHER = 0.5, 3
_ONE_LINE = frozenset("\n\r\f\\=;#:")
# What asyncio calls for itself, and what the loop calls of ours.
_LOOKED_THROUGH = ("_cellblock", "selectors", "weakref", "_weakrefset")


class Runner:
    """Runs cells in one namespace. One event loop lives as long as it does."""

    def __init__(self, namespace):
        self.namespace = namespace
        self._flags = 0
        self._loop = None
        self._awaited = None  # the running cell's task
        self._driven = None  # the task whose end stops the loop
        self._cancelled = False  # by an interrupt

    def flags(self):
        """The compiler's flags of the next cell."""
        return self._flags | TOP_LEVEL_AWAIT

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
        flags = self.flags()
        code = self._expression(text, name, flags)
        if code is not None:
            return self._evaluate([code])
        tree = source.compiled(text, name, "exec", flags | ONLY_AST)
        last = None
        if tree.body and type(tree.body[-1]) is _ast.Expr:
            last = tree.body.pop()
        parts = []
        if tree.body:
            parts.append(source.compiled(tree, name, "exec", flags))
            self._flags |= parts[0].co_flags & FUTURE
        if last is not None:
            parts.append(source.compiled(_ast.Expression(last.value), name, "eval", self._flags | TOP_LEVEL_AWAIT))
        value = self._evaluate(parts)
        if last is None or _silenced(text, last):
            return NOTHING
        return value

    def _expression(self, text, name, flags):
        """The code of a cell that is one short expression, or None: a call or a name is
        what most cells are, and a tree of it would cost more than all else. What may
        be a statement, or would be warned of twice, is left to the long way."""
        if len(text) > 200 or not _ONE_LINE.isdisjoint(text):
            return None
        try:
            return compile(text, name, "eval", flags, True)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None

    def _evaluate(self, parts):
        if any(code.co_flags & COROUTINE for code in parts):
            # The whole cell, so that a task made before the await is in its loop.
            return self._await(self._inside(parts))
        if self._loop is not None:
            self._offer_loop()
        value = None
        for code in parts:
            value = eval(code, self.namespace)
        return value

    async def _inside(self, parts):
        value = None
        for code in parts:
            value = eval(code, self.namespace)
            if code.co_flags & COROUTINE:
                value = await value
        return value

    def _offer_loop(self):
        """Let asyncio find the session's loop when nothing runs; asyncio.run
        leaves none set, and a loop that the user set stays."""
        events = sys.modules["asyncio"].events
        policy = getattr(events, "_event_loop_policy", None)
        if getattr(getattr(policy, "_local", None), "_loop", None) is None and not self._loop.is_closed():
            events.set_event_loop(self._loop)

    def _await(self, coroutine):
        import asyncio

        loop = self._loop
        if loop is None or loop.is_closed():
            loop = self._loop = asyncio.new_event_loop()
        self._offer_loop()
        task = None
        self._cancelled = False
        try:
            task = self._awaited = loop.create_task(coroutine)
            return self._drive(task)
        except BaseException as err:
            if task is not None:
                self._unwind(task)
            if self._cancelled and isinstance(err, asyncio.CancelledError):
                raise KeyboardInterrupt().with_traceback(err.__traceback__) from None
            raise
        finally:
            self._awaited = None

    def _drive(self, task):
        """Run the loop until the task is done, and return its result. An exception out of
        a callback may leave the loop with a call to stop it; run_until_complete would
        then end early in a later cell."""
        self._driven = task
        task.add_done_callback(self._stop)
        try:
            self._loop.run_forever()
            if not task.done():
                raise RuntimeError("Event loop stopped before the cell ended.")
            return task.result()
        except BaseException:
            if task.done() and not task.cancelled():
                task.exception()  # else asyncio says in a later cell that nobody has asked for it
            raise

    def _stop(self, task):
        if task is self._driven:
            self._loop.stop()

    def _unwind(self, task):
        """End what an interrupt has hit: the cell must not run on."""
        import asyncio

        for _ in range(FURTHER):
            if task.done():
                break
            task.cancel()
            try:
                self._drive(self._loop.create_task(asyncio.wait([task], timeout=CANCEL_AGAIN)))
            except BaseException:
                pass
        if task.done() and not task.cancelled():
            task.exception()  # else asyncio says in a later cell that nobody has asked for it

    def cancel_awaited(self, frame):
        """Stop a cell by cancelling its task, where the interrupt of its main thread
        has hit the loop and not the cell: an exception there would lose what the loop
        was about to run, and what waits for that would wait for ever. Returns False
        when an exception has to do it: the cell's own code runs, or nothing is awaited,
        or the cell has been cancelled and goes on."""
        if self._awaited is None or self._cancelled or not _in_loop(frame):
            return False
        self._cancelled = True
        self._awaited.cancel()
        # That wakes the loop, too, which may be about to wait.
        self._loop.call_soon_threadsafe(self._cancel_later, self._awaited, FURTHER)
        return True

    def _cancel_later(self, task, times):
        if times and not task.done():
            self._loop.call_later(CANCEL_AGAIN, self._cancel_again, task, times)

    def _cancel_again(self, task, times):
        task.cancel()
        self._cancel_later(task, times - 1)

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


def _in_loop(frame):
    """Whether asyncio runs in frame, or what it uses there for itself. Our own code is
    looked through: the loop calls it, or the cell does."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package == "asyncio":
            return True
        if package not in _LOOKED_THROUGH:
            return False
        frame = frame.f_back
    return False


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
