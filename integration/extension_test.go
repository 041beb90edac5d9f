package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cellblock/integration/need"
	"cellblock/kernel"
	"cellblock/policy"
)

// extensible is what an extension's session needs beside its own directory: a home and
// a place for the launcher's state, as the commands give them.
type extensible struct{ home, state, dir string }

// newExtensible makes them outside of /tmp, with the files beneath the home's or the
// project's .cellblock/extensions by their names, such as "home/sums.py".
func newExtensible(t testing.TB, files map[string]string) extensible {
	t.Helper()
	base := newDirIn(t, "/var/tmp")
	e := extensible{filepath.Join(base, "home"), filepath.Join(base, "state"), filepath.Join(base, "project")}
	for _, dir := range []string{e.home, e.dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		where, file, _ := strings.Cut(name, "/")
		write(t, filepath.Join(base, where, ".cellblock", "extensions", file), "import cellblock\n"+text)
	}
	e.trust(t)
	return e
}

// trust makes the project's extensions, as they are now, ones that sessions load.
func (e extensible) trust(t testing.TB) {
	t.Helper()
	if _, _, err := kernel.TrustExtensions(filepath.Join(e.state, "trust"), e.dir, false); err != nil {
		t.Fatal(err)
	}
}

// options are those of a session whose policy allows the tools.
func (e extensible) options(tools ...string) option {
	return func(o *kernel.Options) {
		o.SessionDir, o.Home, o.State = e.dir, e.home, []string{e.state}
		o.Trust, o.ExtensionLogs, o.Runtime = filepath.Join(e.state, "trust"), filepath.Join(e.state, "logs"), filepath.Join(e.state, "runtime")
		o.Shadow = filepath.Join(e.state, "shadow")
		doc, err := kernel.BuiltInPolicy("default")
		if err != nil {
			panic(err) // it is embedded
		}
		for i, tool := range tools {
			doc.Tools.Rules = append(doc.Tools.Rules, policy.ToolRule{ID: fmt.Sprintf("tool%d", i), Tool: tool, Effect: policy.Allow, Reason: "a test calls it"})
		}
		o.Policy = &doc
	}
}

const sums = `
import os
SECRET = "extension-secret-4711"
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b
def where(context): return [os.getpid(), os.getcwd(), context.workspace]
def again(a: int, context): return context.host.call("proj.double", a=a)
def alone(context): return context.host.call("proj.hidden")
cellblock.register(cellblock.Extension(name="sums", tools=[add, where, again, alone]))
`

const project = `
def double(a: int): return 2 * a
def hidden(): return "no rule allows it"
cellblock.register(cellblock.Extension(name="proj", tools=[double, hidden]))
`

// inModes runs a test in the modes that have a jail.
func inModes(t *testing.T, test func(t *testing.T, mode option)) {
	for _, name := range []string{"report", "enforce", "shadow"} {
		t.Run(name, func(t *testing.T) {
			if name == "shadow" {
				require(t, needOverlay)
			}
			test(t, mode(name))
		})
	}
}

// TestACellCallsExtensions: from files to a value in the cell, by the policy alone.
func TestACellCallsExtensions(t *testing.T) {
	inModes(t, func(t *testing.T, mode option) {
		e := newExtensible(t, map[string]string{"home/sums.py": sums, "project/proj.py": project})
		s := open(t, e.options("sums.*", "proj.double"), mode)
		s.shows(`sums.add(a=1, b=2)`, "3")
		s.shows(`sums.again(a=21)`, "42")
		if got := s.ok(`sums.where()`).value(); !strings.Contains(got, "'/'") || !strings.Contains(got, e.dir) {
			t.Errorf("the worker: %s", got)
		}
		for code, want := range map[string]string{
			`proj.hidden()`:                   "denied",
			`sums.alone()`:                    "denied", // the extension's role does not widen what the policy allows
			`sums.add(a="1")`:                 "invalid-arguments",
			`sums.add(a=1, identity="other")`: "invalid-arguments",
		} {
			if r := s.run(code); r.ename() != "HostError" || !strings.Contains(r.text(), want) {
				t.Errorf("%s: %s", code, r)
			}
		}
		s.reset()
		s.shows(`sums.add(a=1)`, "2")
	})
}

// TestExtensionCodeIsOutOfReach: the sandbox neither reads, changes, imports nor
// evaluates what an extension is made of.
func TestExtensionCodeIsOutOfReach(t *testing.T) {
	inModes(t, func(t *testing.T, mode option) {
		e := newExtensible(t, map[string]string{"home/sums.py": sums, "project/proj.py": project})
		file := filepath.Join(e.home, ".cellblock/extensions/sums.py")
		// The control: without a jail the same user reads and writes it.
		contains(t, "the file outside", hostPython(t, e.dir, fmt.Sprintf("open(%q, 'a').close(); print(open(%q).read())", file, file)), "4711")
		s := open(t, e.options("sums.*", "proj.double"), mode)
		s.ok("import os, sys, gc, types; sums.add(a=1)")
		for _, code := range []string{
			fmt.Sprintf("open(%q).read()", file), fmt.Sprintf("open(%q, 'w')", file), fmt.Sprintf("os.listdir(os.path.dirname(%q))", file),
			"open('.cellblock/extensions/proj.py').read()", "open('.cellblock/extensions/new.py', 'w')", "os.rename('.cellblock', 'moved')", "os.rmdir('.cellblock')",
			"os.symlink('/tmp', '.cellblock/extensions/link')", fmt.Sprintf("os.rename(%q, %q)", filepath.Join(e.home, ".cellblock"), filepath.Join(e.home, "moved")),
			"__import__('_extension')", "__import__('cellblock.declare')",
		} {
			if r := s.run(code); !r.IsError {
				t.Errorf("%s: %s", code, r)
			}
		}
		// Nothing of it is in the interpreter, whatever is looked through.
		s.shows(`[o for o in gc.get_objects() if isinstance(o, types.ModuleType) and hasattr(o, "SECRET")]`, "[]")
		s.shows(`[p for p in os.listdir("/proc") if p.isdigit() and b"boot.py" in open("/proc/%s/cmdline" % p, "rb").read() and int(p) != os.getpid()]`, "[]")
		// What looks like code stays data.
		for _, argument := range []string{`"{0.__class__}"`, `{"py/object": "os.system"}`, `"__import__('os').getpid()"`, `"%(a)s"`} {
			if r := s.run("sums.add(a=" + argument + ")"); r.ename() != "HostError" {
				t.Errorf("%s: %s", argument, r)
			}
		}
		if text := readFile(t, file); !strings.HasSuffix(text, sums) {
			t.Error("the file was changed")
		}
	})
}

// TestAPlantedExtensionIsNotLoaded: what a session, or whoever else made the directory,
// puts where extensions are looked for does not run until the operator has trusted it,
// and only as it was then.
func TestAPlantedExtensionIsNotLoaded(t *testing.T) {
	const plant = "import os; os.makedirs('.cellblock/extensions'); open('.cellblock/extensions/evil.py', 'w').write('import cellblock\\ncellblock.register(cellblock.Extension(name=\"evil\"))')"
	for _, where := range []string{".", "sub"} {
		t.Run(where, func(t *testing.T) {
			e := newExtensible(t, nil)
			next := e
			next.dir = filepath.Join(e.dir, where)
			if err := os.MkdirAll(next.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			s := open(t, e.options())
			s.ok(fmt.Sprintf("import os; os.chdir(%q)", where))
			s.ok(plant)
			names := func(k *kernel.Session) string {
				known, warnings := k.Extensions(context.Background())
				return fmt.Sprint(len(known), warnings)
			}
			afresh := func(what, want, why string) {
				t.Helper()
				s := open(t, next.options())
				if got := names(s.kernel); !strings.HasPrefix(got, want) || !strings.Contains(got, why) {
					t.Errorf("%s: %s", what, got)
				}
				s.kernel.Close()
			}
			if where == "." {
				// Not even when it is trusted while the session can change it.
				next.trust(t)
			}
			if _, _, err := s.kernel.ReloadExtensions(context.Background()); err != nil {
				t.Fatal(err)
			}
			if got := names(s.kernel); strings.HasPrefix(got, "1") {
				t.Errorf("loaded in the same session: %s", got)
			}
			s.kernel.Close()
			if _, _, err := kernel.TrustExtensions(filepath.Join(e.state, "trust"), next.dir, true); err != nil {
				t.Fatal(err)
			}
			afresh("the next session", "0", "is not trusted")
			next.trust(t)
			afresh("once it is trusted", "1", "") // the control
			file := filepath.Join(next.dir, ".cellblock/extensions/evil.py")
			write(t, file, readFile(t, file)+"\n")
			afresh("changed", "0", "has changed since it was trusted")
			next.trust(t)
			write(t, filepath.Join(next.dir, ".cellblock/extensions/_helper.py"), "")
			afresh("with a helper beside it", "1", "cannot import each other")
		})
	}
}

// TestByteCodeOfAProjectIsNotRun: what is trusted is source; byte code beside it, which
// need not be made from it, is not read.
func TestByteCodeOfAProjectIsNotRun(t *testing.T) {
	e := newExtensible(t, map[string]string{"project/one.py": "import _helper\ndef who() -> str: return _helper.WHO\ncellblock.register(cellblock.Extension(name='one', tools=[who]))",
		"project/_helper.py": "WHO = 'source'"})
	root := filepath.Join(e.dir, ".cellblock/extensions")
	// Byte code that is not checked against its source (PEP 552), of another source.
	const compile = `import sys, os, py_compile, importlib.util
source = sys.argv[1] + "/_other.txt"
open(source, "w").write("WHO = 'byte code'")
py_compile.compile(source, importlib.util.cache_from_source(sys.argv[1] + "/_helper.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
os.remove(source)
sys.path.insert(0, sys.argv[1])
import _helper
print(_helper.WHO)`
	control, err := exec.Command(pythonBin(), "-c", compile, root).CombinedOutput()
	if err != nil || strings.TrimSpace(string(control)) != "byte code" {
		t.Fatalf("the control: %s, %v", control, err)
	}
	e.trust(t)
	s := open(t, e.options("one.who"))
	s.shows("one.who()", "'source'")
}

// TestReportCannotMakeTheHomesExtensions: in report the host's files are changed with the
// user's rights, but not where extensions are looked for.
func TestReportCannotMakeTheHomesExtensions(t *testing.T) {
	e := newExtensible(t, nil)
	s := open(t, e.options(), mode("report"))
	place := filepath.Join(e.home, ".cellblock")
	if r := s.run(fmt.Sprintf("import os; os.makedirs(%q)", filepath.Join(place, "extensions"))); !r.IsError {
		t.Errorf("%s", r)
	}
	s.ok(fmt.Sprintf("open(%q, 'w').close()", filepath.Join(e.home, "beside"))) // the control
	if left, _ := os.ReadDir(place); len(left) > 0 {
		t.Error(left)
	}
}

const slow = `
import time
def deaf():
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass
def naps():
    while True:
        time.sleep(0.01)
def echo(text: str): return text
cellblock.register(cellblock.Extension(name=__file__.rpartition("/")[2][:-3], tools=[deaf, naps, echo]))
`

// TestInterruptOfACellInAnExtension: both ends are interrupted; what does not unwind is
// given up, and says so until the session is reset.
func TestInterruptOfACellInAnExtension(t *testing.T) {
	e := newExtensible(t, map[string]string{"home/slow.py": slow})
	s := open(t, e.options("slow.*"))
	s.ok("kept = 1")
	interrupted := func(code string) {
		t.Helper()
		done := make(chan reply, 1)
		go func() { done <- s.run(code) }()
		time.Sleep(700 * time.Millisecond)
		if !s.kernel.Interrupt() {
			t.Error("nothing was interrupted")
		}
		if r := <-done; r.ename() != "KeyboardInterrupt" {
			t.Errorf("%s: %s", code, r)
		}
	}
	interrupted("slow.naps()")
	s.shows("(kept, slow.echo(text='alive'))", "(1, 'alive')")
	interrupted("slow.deaf()")
	r := s.run("slow.echo(text='late')")
	if r.ename() != "HostError" || !strings.Contains(r.text(), "retired") {
		t.Errorf("%s", r)
	}
	s.reset()
	s.shows("slow.echo(text='again')", "'again'")
}

// TestExtListAndDoctorTellOfEachFile: what is loaded, and why the rest is not, on lines of
// our own whatever a file is called.
func TestExtListAndDoctorTellOfEachFile(t *testing.T) {
	e := newExtensible(t, map[string]string{"home/sums.py": sums, "home/broken.py": "1/0", "project/proj.py": project, "project/odd\x1b[2Jname.py": "x"})
	if err := os.Chmod(filepath.Join(e.dir, ".cellblock/extensions/proj.py"), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := func(args ...string) outcome {
		return command(t).env("HOME="+e.home, "XDG_STATE_HOME="+e.state).run(append(args, "--session", e.dir, "--python", pythonBin())...)
	}
	list := cmd("ext", "list")
	contains(t, "ext list", list.stdout, "sums.add(a: int, b: int = 1)  Add two numbers.")
	for _, out := range []string{list.stderr, cmd("doctor").stdout} {
		contains(t, "the warnings", out, "line 2: division by zero")
		contains(t, "the warnings", out, "can be written by others (mode 0666)")
		contains(t, "the warnings", out, `odd\x1b[2Jname.py`)
		lacks(t, "the warnings", out, "\x1b[2J")
	}
	if list.code != 0 {
		t.Errorf("exit code %d", list.code)
	}
	none := cmd("run", "--no-extensions", "-c", "sums.add(a=1)")
	contains(t, "run --no-extensions", none.stderr, "NameError")
}

// TestExtTest: counts come from what pytest reports of each test, and a runner that fails
// without a failing test is an error.
func TestExtTest(t *testing.T) {
	if err := exec.Command(systemPython, "-c", "import pytest").Run(); err != nil {
		need.Absent(t, "pytest", "there is none for "+systemPython)
	}
	dir, home := newDirIn(t, "/var/tmp"), newDirIn(t, "/var/tmp")
	for name, text := range map[string]string{
		"shared.py":       "VALUE = 3",
		"test_good.py":    "import shared, cellblock, os, sys\ndef test_one(): assert shared.VALUE == 3\ndef test_own(): assert not [m for m in sys.modules if m == 'test_mixed']\ndef test_printed(): print('1000 failed')",
		"test_mixed.py":   "import pytest\ndef test_no(): assert 1 == 2\n@pytest.mark.skip\ndef test_skip(): pass\n@pytest.mark.xfail\ndef test_known(): assert 0\n@pytest.fixture\ndef f(): 1/0\ndef test_fixture(f): pass",
		"ends_test.py":    "import os\ndef test_ends(): os._exit(0)",
		"test_syntax.py":  "def f(:",
		"test_none.py":    "x = 1",
		"test_exit.py":    "import pytest\ndef test_first(): pass\ndef test_leaves(): pytest.exit('enough', returncode=0)\ndef test_unseen(): assert 0",
		"test_early.py":   "import pytest\npytest.exit('enough', returncode=0)\ndef test_unseen(): assert 0",
		"test_fork.py":    "import os, time\ndef test_forks():\n    if os.fork() == 0: return\n    os.wait()\ndef test_no(): assert 0",
		"test_between.py": "import pytest\n@pytest.fixture(autouse=True)\ndef leaves(request):\n    yield\n    request.session.shouldstop = 'enough'\ndef test_one(): pass\ndef test_unseen(): assert 0",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	junit := filepath.Join(dir, "out.xml")
	out := command(t).env("HOME="+home).run("ext", "test", "--python", pythonBin(), "--session", dir, "--json", "--junit", junit, dir)
	var report struct {
		Records []struct{ File, Node, Outcome, Message string }
	}
	if err := json.Unmarshal([]byte(out.stdout), &report); err != nil || out.code != 1 {
		t.Fatalf("exit code %d, %v\n%s%s", out.code, err, out.stdout, out.stderr)
	}
	want := map[string]string{
		"test_good.py::test_one": "passed", "test_good.py::test_own": "passed", "test_good.py::test_printed": "passed", "test_mixed.py::test_no": "failed", "test_mixed.py::test_skip": "skipped",
		"test_mixed.py::test_known": "xfailed", "test_mixed.py::test_fixture": "error", "ends_test.py::test_ends": "error", "test_syntax.py": "error", "test_none.py": "error",
		"test_exit.py::test_first": "passed", "test_exit.py::test_leaves": "error", "test_early.py": "error",
		"test_fork.py::test_forks": "passed", "test_fork.py::test_no": "failed", "test_between.py::test_one": "passed", "test_between.py": "error",
	}
	for _, r := range report.Records {
		if want[r.Node] != r.Outcome {
			t.Errorf("%s: %s (%s), want %q", r.Node, r.Outcome, r.Message, want[r.Node])
		}
		delete(want, r.Node)
	}
	if len(want) > 0 {
		t.Errorf("no record of %v", want)
	}
	contains(t, "JUnit's file", readFile(t, junit), `tests="17" failures="2" errors="7"`)
	good := command(t).env("HOME="+home).run("ext", "test", "--python", pythonBin(), "--session", dir, filepath.Join(dir, "test_good.py"))
	if good.code != 0 || !strings.HasPrefix(good.stdout, "3 tests: 3 passed (") {
		t.Errorf("exit code %d: %s%s", good.code, good.stdout, good.stderr)
	}
	if none := command(t).env("HOME="+home).run("ext", "test", "--python", pythonBin(), "--session", dir, filepath.Join(dir, "absent")); none.code != 2 {
		t.Errorf("exit code %d: %s", none.code, none.stderr)
	}
}

const systemPython = "/usr/bin/python3"
