"""What a cell shows, told by the replies of a live worker."""

import os
import sys
import unittest

from client import Host


class Cells(unittest.TestCase):
    Host = Host

    def setUp(self):
        self.host = self.Host()
        self.addCleanup(self.host.close)

    def value(self, code):
        reply = self.host.cell(code)
        self.assertEqual(reply["status"], "ok", reply)
        return reply.get("value")

    def test_only_a_trailing_expression_is_shown(self):
        for code, want in (
            ("x = 5", None), ("None", None), ("x", "5"), ("x  # note", "5"), ("(y := 3)", "3"), ("if True: x", None),
            ("def f(): pass", None), ('"a" "b"', "'ab'"), ("x;", None), ("(x) ;", None), ("_", "'ab'"), ("", None), ("# only", None),
        ):
            self.assertEqual(self.value(code), want, code)

    def test_state_lives_from_cell_to_cell(self):
        self.value("import os; v = 1; os.environ['MARK'] = '1'; os.makedirs('sub'); os.chdir('sub')")
        self.assertEqual(self.value("(v, os.environ['MARK'], os.path.basename(os.getcwd()))"), "(1, '1', 'sub')")

    def test_reset_takes_back_names_directory_and_environment(self):
        self.value("import os, sys; v = 1; os.environ['MARK'] = '1'; os.makedirs('sub'); os.chdir('sub'); sys.path.insert(0, '/x')")
        self.host.request("install-runtime", directory=self.host.directory, reset=True)
        code = "import os, sys; ('v' in globals(), 'MARK' in os.environ, '/x' in sys.path, os.getcwd() == %r, json.dumps(1))" % self.host.directory
        self.assertEqual(self.value(code), "(False, False, False, True, '1')")

    def test_prelude_needs_no_import(self):
        self.assertEqual(self.value("json.dumps([1]), re.sub('a', 'b', 'a'), os.sep, sys.byteorder, Path('x').name, callable(preflight), subprocess.PIPE"),
                         "('[1]', 'b', '/', %r, 'x', True, -1)" % sys.byteorder)

    def test_a_new_session_has_no_names_of_ours(self):
        self.assertEqual(self.value("import sys\n[k for k in globals() if not k.startswith('__')][:3], sys.argv, '__file__' in globals(), __name__"),
                         "(['sys'], [''], False, '__main__')")

    def test_three_ways_to_run_a_coroutine(self):
        self.assertEqual(self.value("import asyncio; asyncio.run(asyncio.sleep(0.01, result='run'))"), "'run'")
        self.assertEqual(self.value("loop = asyncio.new_event_loop(); loop.run_until_complete(asyncio.sleep(0.01, result='loop'))"), "'loop'")
        self.assertEqual(self.value("await asyncio.sleep(0.01, result='top')"), "'top'")
        self.assertEqual(self.value("asyncio.run(asyncio.sleep(0.01, result='run'))"), "'run'")
        self.assertEqual(self.value("l = []\nasync def g():\n    yield 1\nasync for i in g():\n    l.append(i)\nl"), "[1]")

    def test_one_loop_serves_every_cell(self):
        self.value("import asyncio; event = asyncio.Event(); waiting = asyncio.ensure_future(event.wait()); await asyncio.sleep(0)")
        self.assertEqual(self.value("event.set(); await waiting"), "True")
        self.value("asyncio.run(asyncio.sleep(0))")
        self.value("later = asyncio.ensure_future(asyncio.sleep(0, 'x'))")
        self.assertEqual(self.value("task = asyncio.create_task(asyncio.sleep(0, 'y'))\nawait later, await task"), "('x', 'y')")

    def test_what_an_exception_left_in_the_loop_does_not_reach_the_next_cell(self):
        self.value("import asyncio\ndef strike():\n    raise SystemExit(3)\nasync def f():\n    asyncio.get_running_loop().call_soon(strike)")
        self.assertEqual(self.host.cell("await f()")["error"]["ename"], "SystemExit")
        self.assertEqual(self.value("await asyncio.sleep(0.01, 'whole')"), "'whole'")
        self.assertEqual(self.host.cell("asyncio.get_running_loop().stop(); await asyncio.sleep(60)")["error"]["ename"], "RuntimeError")
        self.assertEqual(self.value("await asyncio.sleep(0.01, 'whole')"), "'whole'")

    def test_an_error_behind_an_await_shows_only_the_cell(self):
        text = self.host.cell("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1 / 0\nawait f()")["error"]["traceback"]
        self.assertEqual([line for line in text.splitlines() if line.startswith("  File")],
                         ['  File "<cell 1>", line 5, in <module>', '  File "<cell 1>", line 4, in f'])

    def test_traceback_shows_the_cell_and_nothing_of_ours(self):
        reply = self.host.cell('def inner(d):\n    return d["missing"]\n\ninner({})')
        error = reply["error"]
        self.assertEqual((error["ename"], error["evalue"]), ("KeyError", "'missing'"))
        self.assertIn('File "<cell 1>", line 4, in <module>\n    inner({})\n', error["traceback"])
        self.assertIn('line 2, in inner\n    return d["missing"]\n', error["traceback"])
        self.assertNotIn("_cellblock", error["traceback"])

    def test_chained_errors(self):
        reply = self.host.cell("try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('outer') from e")
        self.assertIn("direct cause", reply["error"]["traceback"])
        self.assertNotIn("_cellblock", reply["error"]["traceback"])

    @unittest.skipIf(sys.version_info < (3, 11), "exception groups came with Python 3.11")
    def test_groups_and_notes(self):
        reply = self.host.cell("err = ValueError('outer'); err.add_note('look here')\nraise ExceptionGroup('many', [err, TypeError('t')])")
        self.assertEqual(reply["error"]["ename"], "ExceptionGroup")
        for part in ("ValueError: outer", "look here", "TypeError: t"):
            self.assertIn(part, reply["error"]["traceback"])

    def test_source_of_things_defined_in_a_cell(self):
        code = ("import inspect, dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int = 0\ndef area(p):\n    return p.x * 2\n"
                "(inspect.getsource(Point).splitlines()[1], inspect.getsource(area).splitlines()[-1].strip())")
        self.assertEqual(self.value(code), "('class Point:', 'return p.x * 2')")
        self.value("Kept = Point")
        for _ in range(10):
            self.value("1")
        self.value("@dataclasses.dataclass\nclass Point:\n    y: int = 1")
        self.assertEqual(self.value("inspect.getsource(Kept).splitlines()[2].strip(), inspect.getsource(Point).splitlines()[2].strip()"), "('x: int = 0', 'y: int = 1')")
        self.assertEqual(self.value("import linecache; linecache.checkcache(); linecache.clearcache(); inspect.getsource(area).splitlines()[0]"), "'def area(p):'")

    def test_exits_are_reported_and_the_session_lives(self):
        self.value("kept = 5")
        for code, shown in (("import sys; sys.exit(3)", "3"), ("exit()", "None"), ("quit()", "None"), ('raise SystemExit("bye")', "bye")):
            error = self.host.cell(code)["error"]
            self.assertEqual((error["ename"], error["evalue"]), ("SystemExit", shown), code)
        self.assertEqual(self.value("kept"), "5")

    def test_names_and_shapes_without_end_are_cut(self):
        for letter in ("x", "\u5b57", "\U0001d4b3"):
            error = self.host.cell("raise type(%r * 100_000, (Exception,), {})('short')" % letter)["error"]
            self.assertEqual((error["ename"], error["evalue"]), (letter * 1000, "short"))
        reply = self.host.cell("class Odd:\n    shape = (1,) * 100_000\n    def __len__(self): return 1\n    def __repr__(self): return 'x' * 1_000_000\nOdd()")
        self.assertEqual(reply["shapeHint"][:25], "Odd len=1 shape=(1, 1, 1,")
        self.assertEqual(len(reply["shapeHint"]), 1000)

    def test_a_finalizer_that_parses_does_not_hurt_what_is_parsed(self):
        # Debian's 3.11.2 and others: https://github.com/python/cpython/issues/106905
        self.host.cell("""
import ast, gc
class Parses:
    def __del__(self):
        def deep(n):
            return deep(n - 1) if n else ast.parse("1 + (2 * 3)")
        deep(50)
        again()
def again():
    one = Parses()
    one.own = one
again(); gc.set_threshold(50, 1, 1)""")
        code = "[%s]\nlen([%s])" % (", ".join("(%d, [%d], {%d: 'x'})" % (n, n, n) for n in range(300)), ", ".join(str(n) for n in range(300)))
        for _ in range(3):
            reply = self.host.cell(code, keep=True)
            self.assertEqual((reply["status"], reply.get("value")), ("ok", "300"), reply.get("error"))

    def test_odd_source(self):
        for code in ("x = 1\r\ny = 2\r\n", "\ufeffx = 1", "x = 1\n\f\ny = 2", "if True:\n\tx = 1", "x = 1", "#" * 1_000_000):
            self.value(code)
        self.assertEqual(self.value('# -*- coding: latin-1 -*-\n"é"'), "'é'")
        self.assertEqual(self.host.cell("x = 'a")["error"]["ename"], "SyntaxError")
        self.assertIn(self.host.cell("x = 'a\0b'")["error"]["ename"], ("SyntaxError", "ValueError"))
        self.assertEqual(self.value("1 + 1"), "2")

    def test_lone_surrogates(self):
        self.assertIn("a\\ud800b", self.host.cell('print("a\\ud800b")')["stdout"])
        self.assertEqual(self.value('"\\udcff"'), "'\\udcff'")
        self.host.cell('"\ud800"')
        self.assertEqual(self.value('"next"'), "'next'")

    def test_a_huge_value_is_shown_by_its_shape(self):
        reply = self.host.cell("list(range(100000))")
        self.assertEqual((reply.get("value"), reply["shapeHint"]), (None, "list len=100000"))
        self.assertEqual(self.host.cell("[['x' * 100000]]")["shapeHint"], "list len=1")
        self.assertEqual(self.value('{"a": float("nan"), "b": [float("inf")]}'), "{'a': nan, 'b': [inf]}")

    def test_files_named_like_standard_modules(self):
        self.value("for n in ('random', 'json', 'types', 'traceback', 'asyncio', 'inspect', 'site'):\n    open(n + '.py', 'w').write('raise RuntimeError(1)')")
        with self.Host(self.host.directory) as host:
            self.assertEqual(host.cell("import json, random, inspect; json.dumps(1)").get("value"), "'1'")
            self.assertEqual(host.cell("1 / 0")["error"]["ename"], "ZeroDivisionError")

    def test_a_module_written_after_its_import_failed(self):
        self.assertEqual(self.host.cell("import fresh_mod")["error"]["ename"], "ModuleNotFoundError")
        self.value('open("fresh_mod.py", "w").write("A = 7\\n");')
        self.assertEqual(self.value("import fresh_mod; fresh_mod.A"), "7")

    def test_scoping_and_metaclasses(self):
        code = ("from enum import Enum\nclass Color(Enum): RED = 'r'\nnames = ['a', 'b']\ndef get(): return [n + s for n in names for s in suffix]\n"
                "suffix = '!?'\nclass K:\n    vals = [i for i in range(3)]\n(Color('r').name, get(), K.vals)")
        self.assertEqual(self.value(code), "('RED', ['a!', 'a?', 'b!', 'b?'], [0, 1, 2])")

    def test_future_imports_hold_for_later_cells(self):
        self.value("from __future__ import annotations")
        self.assertEqual(self.value("def f(x: nothing_here): pass\nf.__annotations__"), "{'x': 'nothing_here'}")

    def test_rich_values(self):
        code = "class R:\n    def _repr_html_(self): return '<b>'\n    def _repr_png_(self): return b'\\x89PNG'\nR()"
        self.assertEqual(self.host.cell(code)["reprs"], [{"image/png": "iVBORw==", "text/html": "<b>"}])

    def test_audit_entries_belong_to_one_cell(self):
        reply = self.host.cell("_AUDIT.append({'op': 'write', 'path': '/etc/hosts'}); _AUDIT.append({'bad': {1, 2}, 'n': float('nan')})")
        self.assertEqual(reply["audit"], [{"op": "write", "path": "/etc/hosts"}, {"bad": [1, 2], "n": "nan"}])
        self.assertNotIn("audit", self.host.cell("len(_AUDIT)"))

    def test_a_short_expression_is_a_cell_like_any_other(self):
        self.host.cell("import asyncio\ndef f(x): return x")
        for code, value in (("1+1", "2"), ("f(None)", None), ("f(7)  ", "7"), ("await asyncio.sleep(0, 5)", "5"), ("(f(1),", "SyntaxError"), ("f(1)/0", "ZeroDivisionError"), (" f(1)", "IndentationError"), ("", None), ("pass", None)):
            reply = self.host.cell(code)
            long = self.host.cell("# a comment makes it no short one\n" + code)
            self.assertEqual(reply.get("error", {}).get("ename") or reply.get("value"), value, code)
            for name in ("status", "value"):
                self.assertEqual(reply.get(name), long.get(name), code)
            if "error" in reply and value != "SyntaxError":
                self.assertIn("    " + code.strip(), reply["error"]["traceback"])
                self.assertEqual(reply["error"]["evalue"].partition(" (<cell")[0], long["error"]["evalue"].partition(" (<cell")[0])

    def test_the_source_of_many_cells_is_bounded(self):
        reply = self.host.cell("""
import sys
source = sys.modules["_cellblock.source"]
before = len(source.sources)
for i in range(200000): source.keep("<cell x%d>" % i, "1")
source.keep("<cell x1>", "1"), source.keep("<cell x1>", "22")
(len(source.sources) < 140000, source._kept == sum(len(t) + source._ENTRY for t in source.sources.values()))
""")
        self.assertEqual(reply["value"], "(True, True)")


if __name__ == "__main__":
    unittest.main()
