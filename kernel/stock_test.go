package kernel

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cellblock/jail/enter"
	"cellblock/policy"
)

// stocked is a stock, and sessions' options by the name of their directory.
type stocked struct {
	*Stock
	room string
	opts Options
}

func newStocked(t *testing.T, o StockOptions, opts Options) stocked {
	t.Helper()
	needStage(t)
	// Not in /tmp, which is each jail's own.
	room, err := os.MkdirTemp("/var/tmp", "cellblock-stock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(room) })
	if err := os.Chmod(room, 0o755); err != nil {
		t.Fatal(err)
	}
	o.Sessions = room
	st, err := OpenStock(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	if opts.Mode == "" {
		opts.Mode = policy.Enforce
	}
	opts.PythonBin, opts.SkillRoots = "/usr/bin/python3", []string{}
	return stocked{st, room, opts}
}

// options are those of a session in a directory of that name.
func (s stocked) options(t *testing.T, name string) Options {
	t.Helper()
	o := s.opts
	o.SessionDir, o.Stock = filepath.Join(s.room, name), s.Stock
	if err := os.MkdirAll(o.SessionDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return o
}

func (s stocked) prepare(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Prepare(ctx, s.options(t, "first")); err != nil {
		t.Fatal(err)
	}
}

// started opens a session and says whether its worker came from stock.
func (s stocked) started(t *testing.T, o Options) (*Session, bool) {
	t.Helper()
	session := open(t, o)
	if err := session.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return session, session.Info().Stock
}

// inBothWays runs a test of a stock whose workers are executed, and of one whose are forked.
func inBothWays(t *testing.T, test func(*testing.T, StockWay)) {
	for _, way := range []StockWay{WayExec, WayFork} {
		t.Run(string(way), func(t *testing.T) { test(t, way) })
	}
}

// TestStock: sessions get workers that were ready, each its own, with nothing of
// another in it, and the stock is filled again.
func TestStock(t *testing.T) { inBothWays(t, testStock) }

func testStock(t *testing.T, way StockWay) {
	for _, mode := range []policy.Mode{policy.Report, policy.Enforce} {
		t.Run(string(mode), func(t *testing.T) {
			st := newStocked(t, StockOptions{Way: way, Min: 2}, Options{Mode: mode})
			st.prepare(t)
			seen := map[int]bool{}
			for _, name := range []string{"a", "b", "c"} {
				st.prepare(t)
				s, ready := st.started(t, st.options(t, name))
				if !ready {
					t.Fatalf("session %s had to start a worker: %+v", name, st.Stats())
				}
				if pid := s.Info().WorkerPID; pid == 0 || seen[pid] {
					t.Errorf("worker %d serves a second session", pid)
				} else {
					seen[pid] = true
				}
				if got := value(t, s, "import os; ('x' in globals(), os.path.exists('/tmp/x'), os.listdir('.'), os.getcwd())"); got != "(False, False, [], '"+s.dir+"')" {
					t.Errorf("session %s begins with %s", name, got)
				}
				run(t, s, "x = 1; open('/tmp/x', 'w').close(); open('own', 'w').write('mine')")
				if body, err := os.ReadFile(filepath.Join(s.dir, "own")); string(body) != "mine" {
					t.Errorf("the session's file on the host: %q, %v", body, err)
				}
				// The last of the witness's checks is the directory's.
				witness := s.Info().Witness
				if last := witness[len(witness)-1]; last.Act != "attached" || last.Arg != s.dir || last.Got != "yes" {
					t.Errorf("the witness says of the directory: %+v", last)
				}
			}
			o := st.options(t, "extended")
			if err := os.MkdirAll(filepath.Join(o.SessionDir, ".cellblock", "extensions"), 0o755); err != nil {
				t.Fatal(err)
			}
			st.prepare(t)
			extended, ready := st.started(t, o)
			if !ready {
				t.Errorf("a session with a place for extensions had to start a worker: %+v", st.Stats())
			}
			for _, code := range []string{"open('.cellblock/planted', 'w')", "__import__('os').listdir('.cellblock')", "__import__('os').rename('.cellblock', 'moved')"} {
				if r := run(t, extended, code); r.Details.Error == nil {
					t.Errorf("%s: %+v", code, r.Details)
				}
			}
			if mode == policy.Enforce {
				s, _ := st.started(t, st.options(t, "d"))
				if r := run(t, s, "open('../a/own', 'a')"); r.Details.Error == nil || !strings.Contains(r.Details.Error.Value, "Read-only file system") {
					t.Errorf("a write to another session's directory: %+v", r.Details)
				}
				if len(r(t, s)) != 1 {
					t.Errorf("the refusal is not told of under the session's own policy")
				}
			}
			st.prepare(t)
			if got := st.Stats(); got.Given < 3 || got.Failed != 0 || got.Unfit != 0 || got.Ready < 2 || got.Bytes == 0 {
				t.Errorf("stats: %+v", got)
			}
		})
	}
}

// r are the notes of a refused write in the session's directory of another.
func r(t *testing.T, s *Session) []string {
	t.Helper()
	var notes []string
	result := run(t, s, "try: open('../a/own', 'a')\nexcept OSError: pass")
	for _, a := range result.Details.Audit {
		if strings.Contains(string(a), filepath.Join(filepath.Dir(s.dir), "a/own")) {
			notes = append(notes, string(a))
		}
	}
	return notes
}

// TestStockIsOfOneKind: a session that wants a jail that differs in anything starts its
// own worker, and so does one that no stock can be kept for.
func TestStockIsOfOneKind(t *testing.T) {
	st := newStocked(t, StockOptions{Max: 1}, Options{})
	st.prepare(t)
	for name, change := range map[string]func(*Options){
		"variable":  func(o *Options) { o.Env = []string{"A=b"} },
		"limit":     func(o *Options) { o.Limits.MemoryBytes = 1 << 30 },
		"output":    func(o *Options) { o.Limits.OutputBytes = 1 << 20 },
		"mode":      func(o *Options) { o.Mode = policy.Report },
		"network":   func(o *Options) { o.Mode = policy.Report; o.Net = policy.NetNone },
		"time zone": func(o *Options) { o.TimeZone = "Asia/Tokyo" },
		"rule": func(o *Options) {
			o.Policy = parsed(t, "version: 1\nname: x\nfs: {rules: [{path: \"${session}\", access: [write], effect: allow, reason: r}, {path: /srv, access: [read], effect: deny, reason: r}]}\n")
		},
	} {
		o := st.options(t, "kind")
		change(&o)
		if _, ready := st.started(t, o); ready {
			t.Errorf("%s: the worker was made for another kind of session", name)
		}
	}
	missed := st.Stats().Missed
	for name, change := range map[string]func(*Options){
		"in another directory": func(o *Options) { o.SessionDir = t.TempDir() },
		"rule in the session": func(o *Options) {
			o.Policy = parsed(t, "version: 1\nname: x\nfs: {rules: [{path: \"${session}\", access: [write], effect: allow, reason: r}, {path: \"${session}/kept\", access: [write], effect: deny, reason: r}]}\n")
		},
		"a part of the changes": func(o *Options) {
			o.Policy = parsed(t, "version: 1\nname: x\nfs: {rules: [{path: \"${session}\", access: [create], effect: allow, reason: r}]}\n")
		},
		"no changes": func(o *Options) { o.Policy = parsed(t, "version: 1\nname: x\nfs: {}\n") },
	} {
		before := st.Stats().Unfit
		o := st.options(t, "unfit")
		change(&o)
		if _, ready := st.started(t, o); ready {
			t.Errorf("%s: from stock", name)
		}
		if got := st.Stats(); got.Unfit != before+1 || got.Why == "" {
			t.Errorf("%s: %+v, want it counted with the reason", name, got)
		}
	}
	if got := st.Stats().Missed; got != missed {
		t.Errorf("sessions that no stock can be kept for are demand: %d after %d", got, missed)
	}
}

func parsed(t *testing.T, text string) *policy.Document {
	t.Helper()
	doc, err := policy.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &doc
}

// TestStockFailsClosed: a worker whose directory could not be attached serves nobody,
// and its session starts one of its own.
func TestStockFailsClosed(t *testing.T) { inBothWays(t, testStockFailsClosed) }

func testStockFailsClosed(t *testing.T, way StockWay) {
	st := newStocked(t, StockOptions{Way: way}, Options{})
	for n := 1; n <= enter.Steps; n++ {
		st.prepare(t)
		failed := st.Stats().Failed
		enter.Fail = n
		s, ready := st.started(t, st.options(t, "s"+strconv.Itoa(n)))
		enter.Fail = 0
		if ready {
			t.Errorf("step %d failed, and the worker is from stock", n)
		}
		if got := st.Stats().Failed; got == failed {
			t.Errorf("step %d: the failure is not counted", n)
		}
		if got := value(t, s, "open('f', 'w').write('ab')"); got != "2" {
			t.Errorf("step %d: the session's own worker: %s", n, got)
		}
	}
}

// TestStockSparesTheDead: a worker that has ended while it was ready is not given out.
func TestStockSparesTheDead(t *testing.T) { inBothWays(t, testStockSparesTheDead) }

func testStockSparesTheDead(t *testing.T, way StockWay) {
	st := newStocked(t, StockOptions{Way: way, Min: 2}, Options{})
	st.prepare(t)
	st.mu.Lock()
	for _, k := range st.kinds {
		for _, w := range k.ready {
			if err := syscall.Kill(w.proc.Pid(), syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			<-w.proc.Done()
		}
	}
	st.mu.Unlock()
	s, _ := st.started(t, st.options(t, "a"))
	if got := value(t, s, "6 * 7"); got != "42" {
		t.Error(got)
	}
}

// TestStockSparesTheStopped: a worker that answers nothing costs its session time, and not
// its start; what was wrong is told.
func TestStockSparesTheStopped(t *testing.T) { inBothWays(t, testStockSparesTheStopped) }

func testStockSparesTheStopped(t *testing.T, way StockWay) {
	st := newStocked(t, StockOptions{Way: way, Min: 1}, Options{StartTimeout: 3 * time.Second})
	st.prepare(t)
	st.mu.Lock()
	for _, k := range st.kinds {
		for _, w := range k.ready {
			if err := syscall.Kill(w.proc.Pid(), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
	}
	st.mu.Unlock()
	s, ready := st.started(t, st.options(t, "a"))
	if got := value(t, s, "6 * 7"); ready || got != "42" {
		t.Errorf("from stock: %v, and it says %s", ready, got)
	}
	if now := st.Stats(); now.Failed == 0 || !strings.Contains(now.Why, "was not ready within 1s") {
		t.Errorf("%+v", now)
	}
}

// TestStockIsNotOlderThanTheHost: what is to be hidden and was not there when a worker
// was made, or was another file, has no cover in its jail, so that its session starts
// another one.
func TestStockIsNotOlderThanTheHost(t *testing.T) { inBothWays(t, testStockIsNotOlderThanTheHost) }

func testStockIsNotOlderThanTheHost(t *testing.T, way StockWay) {
	for name, before := range map[string]bool{"a new file": false, "another file": true} {
		t.Run(name, func(t *testing.T) {
			st := newStocked(t, StockOptions{Way: way, Max: 1}, Options{})
			secret := st.room + "-secret"
			put := func(text string) {
				t.Helper()
				// A new file, under its name in one step.
				if err := os.WriteFile(secret+".new", []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(secret+".new", secret); err != nil {
					t.Fatal(err)
				}
			}
			defer os.Remove(secret)
			if before {
				put("old secret")
			}
			st.opts.Policy = parsed(t, "version: 1\nname: x\nfs: {rules: [{path: \"${session}\", access: [write], effect: allow, reason: r}, {path: \""+secret+"\", access: [read], effect: deny, reason: r}]}\n")
			st.prepare(t)
			put("secret")
			s, _ := st.started(t, st.options(t, "a"))
			if r := run(t, s, "open('"+secret+"').read()"); r.Details.Error == nil {
				t.Errorf("what came after the worker was made can be read: %+v", r.Details)
			}
			if got := value(t, s, "6 * 7"); got != "42" {
				t.Error(got)
			}
		})
	}
}

// TestStockWaitsForHandingOut: while a session waits for its worker none is made, and
// afterwards what was given is made up for.
func TestStockWaitsForHandingOut(t *testing.T) {
	st := newStocked(t, StockOptions{Max: 1}, Options{})
	st.prepare(t)
	w, _ := st.take(open(t, st.options(t, "a")))
	if w == nil {
		t.Fatalf("no worker: %+v", st.Stats())
	}
	defer w.discard()
	if st.makeOne(t.Context()) {
		t.Error("one is made while another is on its way")
	}
	st.given()
	st.prepare(t)
	if got := st.Stats(); got.Made != 2 || got.Given != 1 {
		t.Errorf("%+v", got)
	}
}

// TestNoParentThatASessionCouldChange: the parent runs outside of any jail, so that an
// interpreter that is not the system's own, or that some session of the kind may change,
// is executed in the jail alone. What was planted in it never runs outside.
func TestNoParentThatASessionCouldChange(t *testing.T) {
	base := newStocked(t, StockOptions{}, Options{})
	venv := base.room + "-venv"
	t.Cleanup(func() { os.RemoveAll(venv) })
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	writes := func(path string) *policy.Document {
		return parsed(t, "version: 1\nname: x\nfs: {rules: [{path: \"${session}\", access: [write], effect: allow, reason: r}, {path: "+path+", access: [write], effect: allow, reason: r}]}\n")
	}
	for name, change := range map[string]func(*Options){
		"a virtual environment":           func(o *Options) { o.PythonBin = venv },
		"one that may be changed":         func(o *Options) { o.PythonBin, o.Policy = venv, writes(venv) },
		"the system's, with a write rule": func(o *Options) { o.Policy = writes("/usr/local/lib") },
	} {
		t.Run(name, func(t *testing.T) {
			st := newStocked(t, StockOptions{Way: WayFork}, Options{})
			o := st.options(t, "first")
			change(&o)
			if err := st.Prepare(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			st.mu.Lock()
			for _, k := range st.kinds {
				if k.parent.Parent != nil {
					t.Error("it has a parent")
				}
			}
			st.mu.Unlock()
			if got := st.Stats(); got.Ready == 0 || !strings.Contains(got.Why, "workers are executed") {
				t.Errorf("%+v", got)
			}
		})
	}
	control := newStocked(t, StockOptions{Way: WayFork}, Options{})
	control.prepare(t)
	control.mu.Lock()
	defer control.mu.Unlock()
	for _, k := range control.kinds {
		if k.parent.Parent == nil {
			t.Errorf("control: the system's own has none: %s", control.stats.Why)
		}
	}
}

// TestStockStaysInItsBudget: without memory for a worker none is kept.
func TestStockStaysInItsBudget(t *testing.T) {
	st := newStocked(t, StockOptions{Budget: 1 << 20}, Options{})
	for _, name := range []string{"a", "b"} {
		if _, ready := st.started(t, st.options(t, name)); ready {
			t.Error("a worker is kept that is larger than the budget")
		}
	}
	if got := st.Stats(); got.Made != 0 || got.Missed != 2 {
		t.Errorf("%+v", got)
	}
}

// TestStockOptions: what cannot be kept is said at once.
func TestStockOptions(t *testing.T) {
	for name, o := range map[string]StockOptions{
		"nowhere":         {Sessions: "/var/tmp/there-is-nothing"},
		"in a jail's own": {Sessions: "/tmp"},
		"the whole tree":  {Sessions: "/"},
		"negative":        {Sessions: "/var/tmp", Min: -1},
		"max below min":   {Sessions: "/var/tmp", Min: 3, Max: 2},
		"another way":     {Sessions: "/var/tmp", Way: "spawn"},
	} {
		st, err := OpenStock(o)
		if err == nil {
			st.Close()
			t.Errorf("%s: opened", name)
		} else if !errors.As(err, new(*OptionError)) {
			t.Errorf("%s: %v, want an OptionError", name, err)
		}
	}
	if err := (*Stock)(nil).Close(); err != nil {
		t.Error(err)
	}
	st := newStocked(t, StockOptions{}, Options{})
	o := st.options(t, "a")
	o.PythonBin = "/usr/bin/there-is-none"
	if err := st.Prepare(t.Context(), o); err == nil {
		t.Error("prepared with an interpreter that there is not")
	}
}

// TestStockEnds: with its stock every worker that nobody has ends, and a session keeps
// the one that it has.
func TestStockEnds(t *testing.T) { inBothWays(t, testStockEnds) }

func testStockEnds(t *testing.T, way StockWay) {
	st := newStocked(t, StockOptions{Way: way, Min: 3}, Options{})
	st.prepare(t)
	s, ready := st.started(t, st.options(t, "a"))
	if !ready {
		t.Fatal("not from stock")
	}
	var pids []int
	st.mu.Lock()
	for _, k := range st.kinds {
		for _, w := range k.ready {
			pids = append(pids, w.proc.Pid())
		}
	}
	st.mu.Unlock()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("worker %d after the end of its stock: %v", pid, err)
		}
	}
	if got := value(t, s, "6 * 7"); got != "42" {
		t.Error(got)
	}
	if _, ready := st.started(t, st.options(t, "b")); ready {
		t.Error("a closed stock gives workers out")
	}
	if err := st.Prepare(t.Context(), st.options(t, "c")); err == nil {
		t.Error("a closed stock prepares")
	}
}
