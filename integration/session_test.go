package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
)

// hang is how long a test waits before it calls something hung. It is no
// expectation of speed: those stand in the cases that state one.
const hang = 2 * time.Minute

// pythonBin is the interpreter under test: CELLBLOCK_TEST_PYTHON, or the
// distribution's own, since the numpy and matplotlib cases need its packages.
func pythonBin() string {
	if bin := os.Getenv("CELLBLOCK_TEST_PYTHON"); bin != "" {
		return bin
	}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		return "/usr/bin/python3"
	}
	return "python3"
}

// session is one session under test.
type session struct {
	t      testing.TB
	kernel *kernel.Session // nil for one of a server's
	runs   runner          // where its cells run
	dir    string
}

// runner is a *kernel.Session, or one that a server has (serve_through_test.go).
type runner interface {
	Call(context.Context, kernel.Call) kernel.Result
	Interrupt() bool
	Close() error
}

// option changes what open asks kernel.Open for.
type option func(*kernel.Options)

func mode(name string) option {
	return func(o *kernel.Options) { o.Mode = policy.Mode(name) }
}

func tier(name string) option       { return func(o *kernel.Options) { o.Tier = kernel.Tier(name) } }
func at(dir string) option          { return func(o *kernel.Options) { o.SessionDir = dir } }
func python(bin string) option      { return func(o *kernel.Options) { o.PythonBin = bin } }
func capped(chars int) option       { return func(o *kernel.Options) { o.MaxOutput = chars } }
func skills(roots ...string) option { return func(o *kernel.Options) { o.SkillRoots = roots } }
func cellLimit(d time.Duration) option {
	return func(o *kernel.Options) { o.CellTimeout = d }
}
func onTimeout(what string) option {
	return func(o *kernel.Options) { o.OnTimeout = kernel.OnTimeout(what) }
}
func timeZone(name string) option { return func(o *kernel.Options) { o.TimeZone = name } }
func runAs(uid int) option        { return func(o *kernel.Options) { o.HostUID = uid } }
func profile(name string) option  { return func(o *kernel.Options) { o.Profile = name } }
func answering(f func(string, bool) (string, error)) option {
	return func(o *kernel.Options) { o.Input = f }
}
func memory(bytes int64) option { return func(o *kernel.Options) { o.Limits.MemoryBytes = bytes } }
func tasks(n int64) option      { return func(o *kernel.Options) { o.Limits.Tasks = n } }

// openErr opens a session in mode enforce, tier jail, in a new directory, unless
// the options say otherwise. It is kernel.Open, the way the commands take.
func openErr(t testing.TB, opts ...option) (*session, error) {
	t.Helper()
	o := kernel.Options{PythonBin: pythonBin(), CellTimeout: hang}
	mode("enforce")(&o)
	tier("jail")(&o)
	for _, opt := range opts {
		opt(&o)
	}
	if o.SessionDir == "" {
		o.SessionDir = newDir(t)
	}
	if through() {
		return openThrough(t, o)
	}
	k, err := kernel.Open(o)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { k.Close() })
	return &session{t: t, kernel: k, runs: k, dir: o.SessionDir}, nil
}

// open is openErr for tests in which opening must work.
func open(t testing.TB, opts ...option) *session {
	t.Helper()
	s, err := openErr(t, opts...)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

// newDir makes a session directory whose path has no symbolic links.
func newDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// newDirIn makes a directory outside of /tmp, which is private in a jail.
func newDirIn(t testing.TB, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "cellblock-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// call sends one call and decodes the reply from its JSON.
func (s *session) call(ctx context.Context, c kernel.Call) reply {
	s.t.Helper()
	done := make(chan kernel.Result, 1)
	go func() { done <- s.runs.Call(ctx, c) }()
	select {
	case result := <-done:
		data, err := json.Marshal(result)
		if err != nil {
			s.t.Fatalf("the result cannot be written as JSON: %v", err)
		}
		return decodeReply(s.t, data)
	case <-time.After(2 * hang):
		s.t.Fatalf("no reply within %v to:\n%s", 2*hang, c.Code)
		return reply{}
	}
}

// kernelCall is run without a guard against hanging, for a cell that is known to
// take long and has a limit of its own.
func (s *session) kernelCall(code string) reply {
	s.t.Helper()
	data, err := json.Marshal(s.runs.Call(context.Background(), kernel.Call{Code: code}))
	if err != nil {
		s.t.Fatal(err)
	}
	return decodeReply(s.t, data)
}

// run sends a cell and returns whatever comes back.
func (s *session) run(code string) reply {
	s.t.Helper()
	return s.call(context.Background(), kernel.Call{Code: code})
}

// runLimit is run with a time limit for this cell.
func (s *session) runLimit(code string, limit time.Duration) reply {
	s.t.Helper()
	return s.call(context.Background(), kernel.Call{Code: code, Timeout: limit})
}

// ok runs a cell that must not fail.
func (s *session) ok(code string) reply {
	s.t.Helper()
	r := s.run(code)
	if r.IsError || r.Details.Status != "ok" {
		s.t.Fatalf("the cell failed:\n%s\n→ %s", code, r)
	}
	return r
}

// shows runs a cell whose trailing value must be shown as want.
func (s *session) shows(code, want string) reply {
	s.t.Helper()
	r := s.ok(code)
	if got := r.value(); got != want {
		s.t.Errorf("value %s, want %s, of:\n%s\n→ %s", got, want, code, r)
	}
	return r
}

// raises runs a cell that must end with this exception.
func (s *session) raises(code, ename string) reply {
	s.t.Helper()
	r := s.run(code)
	if !r.IsError || r.Details.Status != "error" || r.ename() != ename {
		s.t.Errorf("ename %q, want %q, of:\n%s\n→ %s", r.ename(), ename, code, r)
	}
	return r
}

// alive checks that the session serves the next cell within two seconds.
func (s *session) alive() {
	s.t.Helper()
	start := time.Now()
	s.shows("1 + 1", "2")
	if took := time.Since(start); took > 10*time.Second {
		s.t.Errorf("the next cell took %v", took)
	}
}

// reset clears the namespace.
func (s *session) reset() reply {
	s.t.Helper()
	r := s.call(context.Background(), kernel.Call{Reset: true})
	if r.IsError {
		s.t.Fatalf("reset: %s", r)
	}
	return r
}

// reload re-imports the skills.
func (s *session) reload() reply {
	s.t.Helper()
	return s.call(context.Background(), kernel.Call{ReloadSkills: true})
}

// path is a path below the session directory.
func (s *session) path(name string) string { return filepath.Join(s.dir, name) }

// read returns a file of the session directory as the host sees it.
func (s *session) read(name string) string {
	s.t.Helper()
	return readFile(s.t, s.path(name))
}

// write puts a file into a directory, with its parents.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readFile returns a file's text.
func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// hostPython runs code with the interpreter under test, outside any jail: the
// control of a case.
func hostPython(t testing.TB, dir, code string) string {
	t.Helper()
	cmd := exec.Command(pythonBin(), "-c", code)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("control outside the jail: %v\n%s\n%s", err, code, out)
	}
	return strings.TrimSpace(string(out))
}

// hostPythonAt runs one line with another interpreter outside any jail.
func hostPythonAt(t testing.TB, bin, code string) string {
	t.Helper()
	out, err := exec.Command(bin, "-c", code).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", bin, err, out)
	}
	return strings.TrimSpace(string(out))
}

// contains fails the test when text lacks part.
func contains(t testing.TB, what, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%s lacks %q:\n%.2000s", what, part, text)
	}
}

// lacks fails the test when text has part.
func lacks(t testing.TB, what, text, part string) {
	t.Helper()
	if strings.Contains(text, part) {
		t.Errorf("%s has %q:\n%.2000s", what, part, text)
	}
}

// eventually waits until cond holds; what names it for the failure.
func eventually(t testing.TB, what string, within time.Duration, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Errorf("not within %v: %s", within, what)
}

// shadowIn is mode shadow, with the launcher's state, and in it the layers, in a
// directory of the test's own.
func shadowIn(state string) option {
	return func(o *kernel.Options) {
		o.Mode = policy.Shadow
		o.State, o.Shadow = append(o.State, state), filepath.Join(state, "shadow")
	}
}
