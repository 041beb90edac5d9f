package kernel

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cellblock/policy"
)

// tiers runs a test in every tier: what a cell shows does not depend on it.
func tiers(t *testing.T, opts Options, test func(t *testing.T, s *Session)) {
	for _, tier := range []Tier{TierProcess, TierJail} {
		t.Run(string(tier), func(t *testing.T) {
			if tier == TierJail {
				needStage(t)
			} else if opts.Mode == policy.Enforce {
				return
			}
			o := opts
			o.Tier = tier
			test(t, open(t, o))
		})
	}
}

func open(t *testing.T, o Options) *Session {
	t.Helper()
	if o.SessionDir == "" {
		o.SessionDir = t.TempDir()
	}
	if o.PythonBin == "" {
		o.PythonBin = "/usr/bin/python3"
	}
	if o.SkillRoots == nil {
		o.SkillRoots = []string{}
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func run(t *testing.T, s *Session, code string) Result {
	t.Helper()
	return s.Call(t.Context(), Call{Code: code})
}

func value(t *testing.T, s *Session, code string) string {
	t.Helper()
	r := run(t, s, code)
	if r.IsError || r.Details.Value == nil {
		t.Fatalf("%s: %+v", code, r)
	}
	return *r.Details.Value
}

func TestStateLivesFromCellToCell(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		run(t, s, "x = 41")
		if got := run(t, s, "print('hi')\nx + 1"); got.Text() != "hi\n42" {
			t.Fatalf("%q", got.Text())
		}
		if got := run(t, s, "y = 1"); got.Text() != "(no output)" {
			t.Fatalf("%q", got.Text())
		}
		if r := s.Call(t.Context(), Call{Code: "never = 1", Reset: true}); r.IsError {
			t.Fatal(r)
		}
		if got := value(t, s, "('x' in globals(), 'never' in globals())"); got != "(False, False)" {
			t.Fatal(got)
		}
	})
}

func TestTimeoutKillsByDefault(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		run(t, s, "x = 41")
		r := s.Call(t.Context(), Call{Code: "import time; time.sleep(60)", Timeout: 250 * time.Millisecond})
		if !r.IsError || r.Details.Error.Name != KernelTimeout || r.Details.Error.Value != "python cell timed out after 0.25s" {
			t.Fatalf("%+v", r.Details.Error)
		}
		r = run(t, s, "'x' in globals()")
		if !strings.HasPrefix(r.Text(), crashNotice) || *r.Details.Value != "False" || !r.Details.StateLost {
			t.Fatalf("%q", r.Text())
		}
		if r = run(t, s, "1"); r.Text() != "1" {
			t.Fatalf("%q", r.Text())
		}
	})
}

func TestTimeoutThatInterruptsKeepsState(t *testing.T) {
	tiers(t, Options{OnTimeout: TimeoutInterrupt}, func(t *testing.T, s *Session) {
		run(t, s, "x = 41")
		r := s.Call(t.Context(), Call{Code: "import time; time.sleep(60)", Timeout: 250 * time.Millisecond})
		if !r.IsError || r.Details.Error.Name != KernelTimeout {
			t.Fatalf("%+v", r.Details.Error)
		}
		if got := value(t, s, "x + 1"); got != "42" {
			t.Fatal(got)
		}
		run(t, s, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);")
		r = s.Call(t.Context(), Call{Code: "while True: pass", Timeout: 250 * time.Millisecond})
		if !r.IsError || r.Details.Error.Name != KernelTimeout || !r.Details.StateLost {
			t.Fatalf("%+v", r.Details)
		}
	})
}

func TestADeadWorkerHasOneCause(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		r := run(t, s, "import os\nprint('so far'); os._exit(7)")
		if r.Details.Error.Name != KernelExited || r.Details.Error.Value != "python kernel exited (7)" || !strings.Contains(r.Text(), "so far") {
			t.Fatalf("%q", r.Text())
		}
		r = run(t, s, "import signal, os; os.kill(os.getpid(), signal.SIGKILL)")
		if r.Details.Error.Value != "python kernel exited (SIGKILL)" {
			t.Fatalf("%+v", r.Details.Error)
		}
		if got := value(t, s, "1 + 1"); got != "2" {
			t.Fatal(got)
		}
	})
}

func TestOutputCap(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		r := run(t, s, "print('x' * 3000000)")
		if want := strings.Repeat("x", 8192) + "\n...[truncated 3000001 chars]...\n" + strings.Repeat("x", 4095) + "\n"; r.Details.Stdout != want {
			t.Fatalf("%d bytes", len(r.Details.Stdout))
		}
		if ok, _ := filepath.Match(filepath.Join(os.TempDir(), "pi-py-kernel-*", "cell-1.out"), r.Details.FullOutputPath); !ok {
			t.Fatalf("%q", r.Details.FullOutputPath)
		}
		body, err := os.ReadFile(r.Details.FullOutputPath)
		if err != nil || len(body) != 3000001 {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		if got := value(t, s, "len(open('"+r.Details.FullOutputPath+"').read())"); got != "3000001" {
			t.Fatal(got)
		}
		path := r.Details.FullOutputPath
		s.Close()
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Fatalf("%s is still there: %v", path, err)
		}
	})
}

func TestLateOutputOfAChildIsBackground(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		run(t, s, "import subprocess; p = subprocess.Popen(['sh', '-c', 'read x; echo late'], stdin=subprocess.PIPE);")
		r := run(t, s, "p.communicate(b'\\n'); print('mine')")
		if r.Details.Stdout != "mine\n" {
			t.Fatalf("%q", r.Details.Stdout)
		}
		found := r.Details.Outputs
		for range 100 {
			if len(found) > 1 {
				break
			}
			time.Sleep(10 * time.Millisecond)
			found = append(found, run(t, s, "").Details.Outputs...)
		}
		last := found[len(found)-1]
		if last.Text != "late\n" || !last.Background || last.Origin != s.name+"/1" {
			t.Fatalf("%+v", found)
		}
	})
}

// TestNothingRunsInAnAbortedWorker: whenever an abort comes, also as a reply does, the next
// call is none of those that it fails: it begins with an interpreter of its own.
func TestNothingRunsInAnAbortedWorker(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		for i := range 12 {
			s.Call(t.Context(), Call{Code: "kept = 1"})
			out := make(chan Result, 1)
			go func() { out <- s.Call(t.Context(), Call{Code: "import time; time.sleep(0.004)"}) }()
			time.Sleep(time.Duration(i) * 700 * time.Microsecond)
			s.Abort()
			aborted := <-out
			r := s.Call(t.Context(), Call{Code: "'kept' in globals()"})
			if r.IsError || r.Details.Value == nil {
				t.Fatalf("abort %d: %+v", i, r.Details.Error)
			}
			if died := aborted.IsError || r.Details.StateLost; died != (*r.Details.Value == "False") {
				t.Errorf("abort %d: lost %v, and the state is there: not %s", i, died, *r.Details.Value)
			}
		}
	})
}

func TestInterruptAndAbort(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		started := make(chan struct{})
		code := "import time; print('in', flush=True)\nwhile True: time.sleep(0.01)"
		go func() {
			<-started
			s.Interrupt()
		}()
		r := s.Call(t.Context(), Call{Code: code, Output: func(_, _ string) { close(started) }})
		if r.Details.Error.Name != "KeyboardInterrupt" {
			t.Fatalf("%+v", r.Details.Error)
		}
		if s.Interrupt() {
			t.Fatal("an interrupt of nothing says that it hit")
		}
		again := make(chan struct{})
		go func() {
			<-again
			s.Abort()
		}()
		r = s.Call(t.Context(), Call{Code: code, Output: func(_, _ string) { close(again) }})
		if r.Details.Error.Name != KernelKilled {
			t.Fatalf("%+v", r.Details.Error)
		}
		run(t, s, "1") // the start of a worker is not part of what is cancelled
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		r = s.Call(ctx, Call{Code: "kept = 1\nimport time; time.sleep(60)"})
		if r.Details.Error == nil || r.Details.Error.Name != "KeyboardInterrupt" {
			t.Fatalf("%+v", r.Details)
		}
		if got := value(t, s, "kept"); got != "1" {
			t.Fatal(got)
		}
	})
}

// outside makes a directory that is no session's, where sessions have the rights to
// write.
func outside(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cellblock-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestReportSaysWhatWouldBeDenied(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		place := outside(t)
		r := run(t, s, "open('"+place+"/x', 'w').close()\nopen('inside', 'w').write('1');")
		if r.Details.AuditPolicy != "blocked 1 out-of-session writes" || !strings.Contains(r.Text(), "[audit policy] blocked 1 mutation(s) outside session cwd:\n") {
			t.Fatalf("%q %q", r.Details.AuditPolicy, r.Text())
		}
		v := r.Details.Policy.Violations
		if len(v) != 1 || v[0].Path != place+"/x" || v[0].Decision != "would be denied" || v[0].Line != 1 {
			t.Fatalf("%+v", v)
		}
		if r = run(t, s, "1"); r.Details.AuditPolicy != "allowed 0 mutations" || r.Details.Audit != nil {
			t.Fatalf("%+v", r.Details)
		}
	})
}

// TestTheHookLooksAsOftenAsIsWanted: where Linux tells of writes it is there for the lines
// alone, without a jail it looks each time, and in mode off it has nothing to look for.
func TestTheHookLooksAsOftenAsIsWanted(t *testing.T) {
	const state = "import gc\n[str((h._brief, h._free)).lower() for h in gc.get_objects() if type(h).__name__ == 'Hook'][0]"
	for _, mode := range []policy.Mode{policy.Off, policy.Report, policy.Enforce} {
		tiers(t, Options{Mode: mode}, func(t *testing.T, s *Session) {
			run(t, s, "1")
			told, err := s.worker.proc.Settle()
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("'(%t, %t)'", told, mode == policy.Off)
			if got := value(t, s, state); got != want || told && mode == policy.Off {
				t.Errorf("mode %s, Linux tells: %v: %s, want %s", mode, told, got, want)
			}
		})
	}
}

func TestEnforceRefusesWhatLiesOutside(t *testing.T) {
	tiers(t, Options{Mode: policy.Enforce}, func(t *testing.T, s *Session) {
		r := run(t, s, "for p in ('/etc/probe-x', '/usr/probe-x', '/var/probe-x'):\n    try: open(p, 'w').write('x'); print(p, 'written')\n    except OSError as e: print(e.errno in (13, 30), end=' ')\nopen('made', 'w').write('1')")
		if r.Details.Stdout != "True True True " || r.Details.Value == nil {
			t.Fatalf("%+v", r.Details)
		}
		if len(r.Details.Policy.Violations) != 3 || !r.Details.Policy.Enforced {
			t.Fatalf("%+v", r.Details.Policy)
		}
		for _, p := range []string{"/etc/probe-x", "/usr/probe-x", "/var/probe-x"} {
			if _, err := os.Lstat(p); !os.IsNotExist(err) {
				t.Fatalf("%s: %v", p, err)
			}
		}
		info, err := os.Stat(filepath.Join(s.dir, "made"))
		if err != nil || !ownedByUs(info) {
			t.Fatalf("%v: what the session made belongs to the session directory's owner", err)
		}
	})
}

func TestAnInterpreterThatCannotServeIsNamedOnEveryCall(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, bin := range []string{"/no/such/python", "no-such-python", dir, broken, "/etc/passwd", "/bin/true"} {
		s := open(t, Options{PythonBin: bin, Tier: TierProcess})
		for range 2 {
			r := run(t, s, "1")
			if !r.IsError || r.Details.Error.Name != ToolError || !strings.Contains(r.Text(), filepath.Base(bin)) {
				t.Fatalf("%s: %q", bin, r.Text())
			}
		}
	}
}

func TestSessionDirectoriesThatCannotServe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "/no/such/dir", file, "/", "/tmp", "/proc/self"} {
		if _, err := Open(Options{SessionDir: dir, Tier: TierProcess}); err == nil || !strings.Contains(err.Error(), "session directory") {
			t.Errorf("%q: %v", dir, err)
		}
	}
	odd := filepath.Join(t.TempDir(), "with space ünï")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	tiers(t, Options{SessionDir: odd}, func(t *testing.T, s *Session) {
		if got := value(t, s, "import os; open('f', 'w').write('1'); os.getcwd()"); got != "'"+odd+"'" {
			t.Fatal(got)
		}
	})
}

func TestResetLeavesNoChildBehind(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		child := value(t, s, "import os, time, subprocess\np = subprocess.Popen(['sleep', '611'])\nkept = 1\np.pid")
		first := s.Info().Generation
		r := s.Call(t.Context(), Call{Reset: true})
		if r.IsError || r.Details.StateLost || r.Text() != "(namespace reset)" {
			t.Fatalf("%+v", r)
		}
		got := value(t, s, "def alive(pid):\n    try: return 'sleep' in open(f'/proc/{pid}/cmdline').read()\n    except OSError: return False\nalive("+child+"), 'kept' in globals()")
		if got != "(False, False)" {
			t.Fatal(got)
		}
		if s.Info().Generation == first {
			t.Fatal("the worker with children still runs")
		}
	})
}

func TestInterpreterOfAVirtualEnvironmentInTmp(t *testing.T) {
	base, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "venv-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(base, "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tiers(t, Options{PythonBin: dir}, func(t *testing.T, s *Session) {
		if got := value(t, s, "sys.prefix"); got != "'"+dir+"'" {
			t.Fatal(got)
		}
	})
}

// A cell that waits for a child in system(3), where Python cannot hear a signal,
// is interrupted with the child and keeps its state.
func TestInterruptReachesWhatACellWaitsFor(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		started := make(chan struct{})
		go func() {
			<-started
			s.Interrupt()
		}()
		r := s.Call(t.Context(), Call{Code: "kept = 1\nos.system('echo in; sleep 1000'); import time; time.sleep(1000)",
			Output: func(_, _ string) { close(started) }})
		if r.Details.Error == nil || r.Details.Error.Name != "KeyboardInterrupt" {
			t.Fatalf("%+v", r.Details)
		}
		if got := value(t, s, "kept"); got != "1" {
			t.Fatal(got)
		}
	})
}

// Fresh pipes are made after cells that left something behind, and only then.
func TestOnlyCellsThatMadeProcessesCostFreshPipes(t *testing.T) {
	needStage(t)
	s := open(t, Options{})
	for code, want := range map[string]bool{"1": false, "import subprocess; subprocess.run(['true'])": true} {
		run(t, s, "0")
		if run(t, s, code); s.worker.forked != want {
			t.Errorf("%s: fresh pipes %v, want %v", code, s.worker.forked, want)
		}
	}
}
