package extension

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"cellblock/kernel/host"
	"cellblock/pyruntime"
)

// TestMain wants no process's reader left behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("cellblock/jail/spawner.spawning"))
}

// launch is how the tests start workers.
func launch(t *testing.T) Launch {
	t.Helper()
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Fatal(err)
	}
	source := t.TempDir()
	if err := pyruntime.WriteExtensionTo(source); err != nil {
		t.Fatal(err)
	}
	return Launch{Python: python, Source: source, LogDir: t.TempDir()}
}

// write makes a root of files by name; each begins with the import of cellblock.
func write(t *testing.T, files map[string]string) Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("import cellblock\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Root{Dir: dir}
}

// register registers the files of roots, which are to have no warnings.
func register(t *testing.T, l Launch, roots ...Root) []Extension {
	t.Helper()
	files, warnings := Discover(roots)
	r := Share(l)
	t.Cleanup(r.Release)
	known, more := r.Register(t.Context(), files)
	if warnings = append(warnings, more...); len(warnings) > 0 {
		t.Fatal(warnings)
	}
	return known
}

// door answers nested calls with the tools themselves, as the door of a session does.
func door(s **Session) func(context.Context, host.Call, string, json.RawMessage) (json.RawMessage, error) {
	return func(ctx context.Context, from host.Call, tool string, arguments json.RawMessage) (json.RawMessage, error) {
		return do(ctx, *s, host.Call{ID: from.ID + "+", Identity: from.Identity, Tool: tool, Arguments: arguments, Chain: append(append([]string{}, from.Chain...), from.Tool)})
	}
}

func do(ctx context.Context, s *Session, c host.Call) (json.RawMessage, error) {
	for _, tool := range s.Tools() {
		if tool.Name == c.Tool {
			return tool.Do(ctx, c)
		}
	}
	return nil, failure(host.CodeUnknown, "there is no tool %s", c.Tool)
}

func session(t *testing.T, l Launch, known []Extension) *Session {
	t.Helper()
	var s *Session
	s = New(Options{Launch: l, Name: "test", Call: door(&s)}, known)
	t.Cleanup(s.Close)
	return s
}

func call(t *testing.T, s *Session, tool, arguments string) (string, *host.Error) {
	t.Helper()
	return callIn(t.Context(), t, s, tool, arguments)
}

func callIn(ctx context.Context, t *testing.T, s *Session, tool, arguments string) (string, *host.Error) {
	t.Helper()
	value, err := do(ctx, s, host.Call{ID: "h1", Identity: host.Identity{Session: "s1", Workspace: "/srv", Purpose: host.Interactive, Role: host.RoleSandbox}, Tool: tool, Arguments: json.RawMessage(arguments)})
	if err == nil {
		return string(value), nil
	}
	var failed *host.Error
	if !errors.As(err, &failed) {
		t.Errorf("%s: %v is no error of the host", tool, err)
		return "", failure("", "%v", err)
	}
	return "", failed
}

func TestAToolIsCalledInTheSessionsOwnWorker(t *testing.T) {
	l := launch(t)
	known := register(t, l, write(t, map[string]string{"sums.py": `
import os
def add(a: int, b: int = 1): return {"z": a + b, "a": None}
def pid(): return os.getpid()
def who(context): return [context.session_id, context.workspace, os.getcwd(), os.getsid(0) == os.getpid()]
cellblock.register(cellblock.Extension(name="sums", tools=[add, pid, who], prompt="It adds."))
`}))
	a, b := session(t, l, known), session(t, l, known)
	if a.Prompt() != "It adds." || len(a.Tools()) != 3 || a.Tools()[0].Signature != "(a: int, b: int = 1)" {
		t.Fatalf("%q, %+v", a.Prompt(), a.Tools())
	}
	if value, err := call(t, a, "sums.add", `{"a": 2}`); value != `{"z":3,"a":null}` {
		t.Errorf("%s, %v", value, err)
	}
	if value, _ := call(t, a, "sums.who", `{}`); value != `["s1","/srv","/",true]` {
		t.Error(value)
	}
	first, _ := call(t, a, "sums.pid", "")
	again, _ := call(t, a, "sums.pid", "")
	other, _ := call(t, b, "sums.pid", "")
	if first == "" || first != again || first == other {
		t.Errorf("workers %s, %s and %s", first, again, other)
	}
	a.Replace(known)
	if fresh, _ := call(t, a, "sums.pid", ""); fresh == first || fresh == "" {
		t.Errorf("after a reload worker %s still serves", fresh)
	}
}

func TestWhatIsNoExtensionIsAWarningAndStopsNothing(t *testing.T) {
	l := launch(t)
	l.StartTime = 1500e6
	root := write(t, map[string]string{
		"a.py": "cellblock.register(cellblock.Extension(name='good'))", "b.py": "1/0", "c.py": "while True: pass",
		"d.py": "import os; os._exit(3)", "e.py": "cellblock.register(cellblock.Extension(name='good'))", "f.py": "cellblock.register(cellblock.Extension(name='host'))",
		"g.py": "import ctypes; ctypes.string_at(0)", "h.py": "import os; os.write(3, b'{}\\n')", "i.py": "cellblock.register(cellblock.Extension(name='last'))",
		"_helper.py": "1/0", "test_a.py": "1/0", "a_test.py": "1/0",
	})
	files, warnings := Discover([]Root{root, {Dir: filepath.Join(root.Dir, "absent")}})
	if len(warnings) > 0 || len(files) != 9 {
		t.Fatal(files, warnings)
	}
	r := Share(l)
	defer r.Release()
	known, warnings := r.Register(t.Context(), files)
	var got []string
	for _, w := range warnings {
		got = append(got, filepath.Base(w.Path)+": "+w.Why)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{"b.py: line 2: division", "c.py: it did not load within 1.5s", "d.py: loading it: the extension worker ended (exit code 3)", "e.py: there is an extension good already",
		"f.py: the name host is the launcher's own", "g.py: loading it: the extension worker ended (killed by SIGSEGV)", "h.py: loading it: the extension worker ended (it broke the protocol"} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning %q", want)
		}
	}
	if len(known) != 2 || known[1].Name != "last" || len(warnings) != 7 {
		t.Errorf("%v\n%s", known, all)
	}
}

func TestOnlyTheOperatorsOwnFilesAreTaken(t *testing.T) {
	root := write(t, map[string]string{"ok.py": "", "open.py": "", "target.txt": ""})
	in := func(name string) string { return filepath.Join(root.Dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(in("open.py"), 0o666))
	must(os.Symlink("target.txt", in("link.py")))
	must(os.Mkdir(in("dir.py"), 0o755))
	must(os.WriteFile(in("bad\nname\x1b[2J.py"), nil, 0o644))
	must(os.WriteFile(in("half\xff.py"), nil, 0o644))
	must(os.WriteFile(in("latin.py"), []byte("x = '\xff'"), 0o644))
	files, warnings := Discover([]Root{root})
	if len(files) != 2 || files[0].Root != "" {
		t.Errorf("%+v", files)
	}
	for _, want := range []string{"link.py\": is a symbolic link", "open.py\": can be written by others (mode 0666)", "latin.py\": is not UTF-8", `half\xff.py": has a name`, "cannot import each other"} {
		if text := joined(warnings); !strings.Contains(text, want) {
			t.Errorf("no warning %q in\n%s", want, text)
		}
	}
	if text := joined(warnings); strings.ContainsAny(text, "\x1b") || strings.Contains(text, "dir.py\": is a dir") {
		t.Errorf("%q", text)
	}
	// A link in the place of the root, or on the way to it.
	base := t.TempDir()
	must(os.Symlink(root.Dir, filepath.Join(base, "linked")))
	must(os.Symlink(filepath.Dir(root.Dir), filepath.Join(base, ".cellblock")))
	for _, r := range []Root{{Dir: filepath.Join(base, "linked")}, {Dir: filepath.Join(base, ".cellblock", filepath.Base(root.Dir)), Within: base}} {
		if files, warnings := Discover([]Root{r}); len(files) > 0 || !strings.Contains(joined(warnings), "symbolic link") {
			t.Errorf("%s: %v, %v", r.Dir, files, warnings)
		}
	}
	// A directory that others can write in.
	must(os.Chmod(root.Dir, 0o777))
	if files, warnings := Discover([]Root{root}); len(files) > 0 || !strings.Contains(joined(warnings), "can be written by others") {
		t.Error(files, warnings)
	}
	must(os.Chmod(root.Dir, 0o755))
}

func joined(warnings []Warning) string {
	var lines []string
	for _, w := range warnings {
		lines = append(lines, w.String())
	}
	return strings.Join(lines, "\n")
}

func TestFilesImportEachOtherAndRunAsRegistered(t *testing.T) {
	l := launch(t)
	root := write(t, map[string]string{"_shared.py": "NAME = 'shared'", "a.py": `
import _shared
def name(): return _shared.NAME
cellblock.register(cellblock.Extension(name="a", tools=[name]))
`})
	known := register(t, l, root)
	s := session(t, l, known)
	// What is put there after registration does not run before a reload.
	if err := os.WriteFile(filepath.Join(root.Dir, "a.py"), []byte("1/0"), 0o644); err != nil {
		t.Fatal(err)
	}
	if value, err := call(t, s, "a.name", ""); value != `"shared"` {
		t.Error(value, err)
	}
}
