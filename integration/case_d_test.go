package integration

import (
	"strings"
	"testing"
)

// TestCasesD: Python semantics.
func TestCasesD(t *testing.T) { runCases(t, casesD) }

var casesD = []bugCase{
	{id: "D1", title: "three ways to run a coroutine", cells: []cell{
		{code: `import asyncio; asyncio.run(asyncio.sleep(0.01, result="run"))`, value: "'run'"},
		{code: `loop = asyncio.new_event_loop(); loop.run_until_complete(asyncio.sleep(0.01, result="loop"))`, value: "'loop'"},
		{code: `await asyncio.sleep(0.01, result="top")`, value: "'top'"},
		{code: `import asyncio; asyncio.run(asyncio.sleep(0.01, result="run"))`, value: "'run'"},
	}},

	{id: "D3", title: "source of things defined in a cell", cells: append(append([]cell{
		{code: `
import dataclasses, inspect
@dataclasses.dataclass
class Point:
    x: int = 0
def area(p):
    return p.x * 2`},
		{code: sourceOf, value: "('class Point:', 'return p.x * 2')"}},
		times(10, cell{code: "1"})...),
		cell{code: sourceOf, value: "('class Point:', 'return p.x * 2')"},
		cell{code: `
@dataclasses.dataclass
class Point:
    x: int = 0`},
		cell{code: sourceOf, value: "('class Point:', 'return p.x * 2')"},
	)},

	{id: "D5", title: "traceback shows the cell's lines", cells: []cell{{
		code: "def inner(d):\n    return d[\"missing\"]\n\ninner({})\n", err: "KeyError",
		check: func(t *testing.T, s *session, r reply) {
			if r.Details.Error.Value != "'missing'" {
				t.Errorf("evalue %q", r.Details.Error.Value)
			}
			tb := r.traceback()
			for _, part := range []string{"inner({})", "line 4", `return d["missing"]`, "line 2", "<cell 1>", "KeyError: 'missing'"} {
				contains(t, "traceback", tb, part)
			}
			if n := strings.Count(tb, "File \""); n != 2 {
				t.Errorf("%d frames, want the cell's two:\n%s", n, tb)
			}
		}}}},

	{id: "D7", title: "chained, grouped and annotated errors", needs: []string{needPython311}, cells: []cell{{
		code: `
try:
    {}["k"]
except KeyError as cause:
    inner = ValueError("outer")
    inner.add_note("look here")
    raise ExceptionGroup("many", [inner, TypeError("t")]) from cause`, err: "ExceptionGroup",
		check: func(t *testing.T, s *session, r reply) {
			for _, part := range []string{"KeyError", "direct cause", "ValueError: outer", "look here", "TypeError: t"} {
				contains(t, "traceback", r.traceback(), part)
			}
		}}}},

	{id: "D10", title: "files named like standard modules", cells: []cell{
		{code: `
for name in "random json types email socket ast traceback token site sitecustomize usercustomize codecs asyncio io linecache".split():
    open(name + ".py", "w").write("raise RuntimeError('shadow')\n")`},
		{reset: true},
		{code: "1 + 1", value: "2"},
		{code: "1 / 0", err: "ZeroDivisionError"},
		{code: "import email, random; email.__file__.startswith(os.getcwd())", value: "False"},
	}},
	{id: "D10", title: "files named like standard modules before the start", do: func(t *testing.T, c bugCase) {
		dir := newDir(t)
		for _, name := range strings.Fields("random json types email socket ast traceback token site sitecustomize os re") {
			write(t, dir+"/"+name+".py", "raise RuntimeError('shadow')\n")
		}
		s := open(t, at(dir))
		s.shows("1 + 1", "2")
		lacks(t, "the report", string(s.raises("1 / 0", "ZeroDivisionError").raw), "shadow")
	}},

	{id: "D13", title: "new module after a failed import", cells: []cell{
		{code: "import fresh_mod", err: "ModuleNotFoundError"},
		{code: `open("fresh_mod.py", "w").write("A = 7\n")`},
		{code: "import fresh_mod; fresh_mod.A", value: "7"},
	}},

	{id: "D15", title: "what is shown", cells: []cell{
		{code: "x = 5", silent: true},
		{code: "None", silent: true},
		{code: "x", value: "5"},
		{code: "x  # note", value: "5"},
		{code: "(y := 3)", value: "3"},
		{code: "if True: x", silent: true},
		{code: "def f(): pass", silent: true},
		{code: `"a" "b"`, value: "'ab'"},
		{code: `[print("p"), 1][1]`, value: "1", stdout: "p\n"},
	}},

	{id: "D16", title: "script-like facts", cells: []cell{
		{code: `
import sys
if __name__ == "__main__":
    print("main")
(len(sys.argv) <= 1, any("runner" in a for a in sys.argv), [k for k in globals() if not k.startswith("__")][:3])`,
			value: "(True, False, ['sys'])", stdout: "main\n"},
	}},

	{id: "D18", title: "odd source", cells: []cell{
		{code: ""},
		{code: "# nothing but this"},
		{code: "a = 1\r\nb = 2\r\na + b\r\n", value: "3"},
		{code: "\ufeff1 + 2", value: "3"},
		{code: "a = 1\n\x0c\na + 3", value: "4"},
		{code: "if True:\n\tq = 5\nq", value: "5"},
		{code: "6", value: "6"},
		{code: "s = 'a\x00b'", any: true, check: func(t *testing.T, s *session, r reply) {
			if n := r.ename(); n != "SyntaxError" && n != "ValueError" {
				t.Errorf("a NUL gives %q: %s", n, r)
			}
		}},
		{code: "# -*- coding: latin-1 -*-\n\"é\"", value: "'é'"},
		{code: "big = '" + strings.Repeat("x", 1<<20) + "'\nlen(big)", value: "1048576"},
		{code: "'unmatched", err: "SyntaxError"},
		{code: "(", err: "SyntaxError"},
	}},

	{id: "D20", title: "scoping and metaclasses", cells: []cell{{
		code: `
from enum import Enum
class Color(Enum):
    RED = "r"
names = ["a", "b"]
def pairs():
    return [n + s for n in names for s in suffix]
suffix = "!?"
class Holder:
    numbers = [i for i in range(3)]
(Color("r").name, pairs(), Holder.numbers, [len(pairs()) for _ in range(2)])`,
		value: "('RED', ['a!', 'a?', 'b!', 'b?'], [0, 1, 2], [4, 4])"}}},
}

const sourceOf = `(inspect.getsource(Point).splitlines()[1], inspect.getsource(area).splitlines()[-1].strip())`

// needPython311 asks for an interpreter with exception groups and notes.
var needPython311 = register("python3.11", pythonRuns("ExceptionGroup"))
