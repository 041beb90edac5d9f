package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cellblock/policy"
	"cellblock/policy/audit"
)

// recorded closes a session, verifies its log and returns the records.
func recorded(t *testing.T, s *Session) []audit.Record {
	t.Helper()
	path := s.Info().Audit
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	v, err := audit.Verify(path)
	if err != nil || !v.Clean() || !v.Closed {
		t.Fatalf("%v: %+v", err, v)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []audit.Record
	for e, err := range audit.Read(bytes.NewReader(data)) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Record)
	}
	return out
}

func auditFile(t *testing.T) string { return filepath.Join(t.TempDir(), "audit", "s.jsonl") }

func ops(records []audit.Record) (list []string) {
	for _, r := range records {
		list = append(list, r.Op)
	}
	return list
}

// find returns the first record of an operation.
func find(t *testing.T, records []audit.Record, op string) audit.Record {
	t.Helper()
	i := slices.IndexFunc(records, func(r audit.Record) bool { return r.Op == op })
	if i < 0 {
		t.Fatalf("no record %s: %v", op, ops(records))
	}
	return records[i]
}

func TestASessionIsRecordedFromStartToEnd(t *testing.T) {
	answer := func(prompt string, _ bool) (string, error) { return "s3cret answer", nil }
	tiers(t, Options{Input: answer, Env: []string{"MY_TOKEN=canary-1234567", "PLAIN=harmless-7"}}, func(t *testing.T, s *Session) {
		o := s.opts
		s.Close()
		o.Audit = auditFile(t)
		s, place := open(t, o), outside(t)
		run(t, s, "x = input('who? ')")
		run(t, s, "for i in range(3): open('"+place+"/canary-1234567', 'w').close()")
		run(t, s, "1 / 0 # t0ps3cret in the code")
		s.Call(t.Context(), Call{Reset: true})
		s.Call(t.Context(), Call{ReloadSkills: true})
		run(t, s, "import os; os._exit(7)")
		run(t, s, "2")
		path, worker := o.Audit, s.Info().WorkerPID
		got := recorded(t, s)
		want := []string{"session.start",
			"cell.start", "host.call", "host.return", "cell.end",
			"cell.start", "write", "cell.end",
			"cell.start", "cell.end",
			"reset", "reset.end", "reload", "reload.end",
			"cell.start", "worker.end", "cell.end",
			"worker.start", "cell.start", "cell.end", "worker.end", "session.end"}
		// A reset gives the worker up when it had processes or threads.
		if i := slices.Index(ops(got), "reset"); got[i+1].Op == audit.OpWorkerEnd && got[i+2].Op == audit.OpWorkerStart {
			got = slices.Delete(got, i+1, i+3)
		}
		if !slices.Equal(ops(got), want) {
			t.Fatalf("\n%v\n%v", ops(got), want)
		}
		start := got[0]
		digests, _ := start.Facts["digests"].(map[string]any)
		if start.Facts["tier"] != string(o.Tier) || start.Facts["mode"] != "report" || start.PID == 0 || start.Program == "" ||
			digests["policy"] == "" || digests["runtime"] == "" || start.Policy != digests["policy"].(string)[:16] {
			t.Errorf("%+v", start)
		}
		if witness, _ := start.Facts["witness"].([]any); o.Tier == TierJail && (len(witness) < 10 || digests["plan"] == nil) {
			t.Errorf("the start record has no witness or no plan: %+v", start)
		}
		w := find(t, got, "write")
		source := map[Tier]audit.Source{TierJail: audit.SourceOS, TierProcess: audit.SourceHook}[o.Tier]
		if w.Decision != audit.WouldDeny || w.Rule == "" || w.Source != source || w.PID == 0 || w.Times() != 3 || w.Cell != 2 ||
			!strings.HasPrefix(w.Target, place+"/") || w.Facts["line"] == nil {
			t.Errorf("%+v", w)
		}
		if c := find(t, got, "host.call"); c.Source != audit.SourceHost || c.Target != "input" || c.Decision != audit.Allowed || c.Facts["prompt"] != "who? " || c.Cell != 1 {
			t.Errorf("%+v", c)
		}
		if end := got[16]; end.Facts["error"] != KernelExited || end.Reason != "7" || end.Scope != s.name+"/4" {
			t.Errorf("%+v", end)
		}
		if end := got[15]; end.Reason != "7" {
			t.Errorf("%+v", end)
		}
		if last := got[len(got)-1]; last.Facts["cells"] != json.Number("5") || got[17].PID != worker {
			t.Errorf("%+v, worker %d %+v", last, worker, got[17])
		}
		data, _ := os.ReadFile(path)
		for _, secret := range []string{"canary-1234567", "s3cret answer", "t0ps3cret"} {
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("%q stands in the log", secret)
			}
		}
	})
}

func TestControlAndRefusedCallsAreRecorded(t *testing.T) {
	s := open(t, Options{Tier: TierProcess, Audit: auditFile(t)})
	started := make(chan struct{})
	go func() {
		for <-started; !s.Interrupt(); time.Sleep(20 * time.Millisecond) {
		}
	}()
	s.Call(t.Context(), Call{Code: "print(1, flush=True)\nimport time; time.sleep(60)", Output: func(_, _ string) { close(started) }})
	again := make(chan struct{})
	go func() { <-again; s.Abort() }()
	s.Call(t.Context(), Call{Code: "print(1, flush=True)\nimport time; time.sleep(60)", Output: func(_, _ string) { close(again) }})
	s.Call(t.Context(), Call{Code: "while True: pass", Timeout: 100 * time.Millisecond})
	got := recorded(t, s)
	if r := find(t, got, audit.OpInterrupt); r.Cell != 1 || r.Source != audit.SourceKernel {
		t.Errorf("%+v", r)
	}
	if r := find(t, got, audit.OpAbort); r.Cell != 2 {
		t.Errorf("%+v", r)
	}
	if got[len(got)-2].Facts["error"] != KernelTimeout {
		t.Errorf("%v", ops(got))
	}

	flood := withFake(t, `
for n in range(1, 20001):
    say({"id": n, "op": "host", "name": "shell.run", "arguments": {"token": "t0ps3cret"}})
    f.readline()
say({"id": m["id"], "value": {"status": "ok"}})`, Options{Audit: auditFile(t)})
	if r := run(t, flood, "1"); r.IsError {
		t.Fatalf("%+v", r.Details.Error)
	}
	got = recorded(t, flood)
	total := int64(0)
	for _, r := range got {
		if r.Op == audit.OpHostCall {
			total += r.Times()
			if r.Decision != audit.Denied || r.Target != "shell.run" || r.Rule == "" {
				t.Errorf("%+v", r)
			}
		}
	}
	if total != 20000 || len(got) > 10 {
		t.Errorf("%d records stand for %d refused calls", len(got), total)
	}
}

// brokenLog makes every later write of a session's log fail.
func brokenLog(t *testing.T, path string) (repair func()) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limit := old
	limit.Cur = uint64(info.Size())
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALogThatCannotBeWrittenRefusesUnderEnforceAndIsSaidUnderReport(t *testing.T) {
	needStage(t)
	for _, mode := range []policy.Mode{policy.Report, policy.Enforce} {
		t.Run(string(mode), func(t *testing.T) {
			s := open(t, Options{Mode: mode, Audit: auditFile(t)})
			run(t, s, "x = 1")
			repair := brokenLog(t, s.Info().Audit)
			defer repair()
			r := run(t, s, "x = 2")
			notes := strings.Join(r.Details.Notes, "\n")
			if !strings.Contains(notes, "could not be written") || !strings.Contains(notes, s.Info().Audit) {
				t.Fatalf("%+v", r)
			}
			switch refused := r.Details.Error != nil && r.Details.Error.Name == ToolError; {
			case mode == policy.Enforce && !refused:
				t.Fatalf("ran without a record: %+v", r)
			case mode == policy.Report && r.IsError:
				t.Fatalf("report blocked: %+v", r.Details.Error)
			}
			for _, c := range []Call{{Reset: true}, {ReloadSkills: true}} {
				if r := s.Call(t.Context(), c); r.IsError != (mode == policy.Enforce) {
					t.Errorf("%+v: %+v", c, r)
				}
			}
			repair()
			want := map[policy.Mode]string{policy.Report: "NameError", policy.Enforce: "1"}[mode]
			r = run(t, s, "x")
			if r.Details.Value == nil && r.Details.Error.Name != want || r.Details.Value != nil && *r.Details.Value != want {
				t.Fatalf("%+v", r)
			}
			if len(r.Details.Notes) != 0 {
				t.Errorf("%q", r.Details.Notes)
			}
			gap := find(t, recorded(t, s), audit.OpGap)
			if gap.Count == 0 || !strings.Contains(gap.Reason, "file too large") {
				t.Errorf("%+v", gap)
			}
		})
	}
}

func TestAnEndThatCouldNotBeRecordedRefusesTheNextCall(t *testing.T) {
	needStage(t)
	s := open(t, Options{Mode: policy.Enforce, Audit: auditFile(t)})
	repair := func() {}
	defer func() { repair() }()
	broken := false
	r := s.Call(t.Context(), Call{Code: "print('done', flush=True)", Output: func(_, _ string) {
		if !broken {
			repair, broken = brokenLog(t, s.record.path()), true
		}
	}})
	if r.IsError || len(r.Details.Notes) != 1 || !strings.Contains(r.Details.Notes[0], "the next call is refused") {
		t.Fatalf("%+v", r)
	}
	if r := run(t, s, "1"); r.Details.Error == nil || r.Details.Error.Name != ToolError || !strings.Contains(r.Text(), "make room") {
		t.Fatalf("%+v", r)
	}
	repair()
	if got := value(t, s, "1"); got != "1" {
		t.Fatal(got)
	}
}

func TestTheLogIsNeitherInTheSessionNorSeenByIt(t *testing.T) {
	needStage(t)
	dir := t.TempDir()
	if _, err := Open(Options{SessionDir: dir, Audit: filepath.Join(dir, "audit", "s.jsonl")}); err == nil {
		t.Error("the session directory may hold its own record")
	}
	for _, mode := range []policy.Mode{policy.Report, policy.Enforce} {
		place, err := os.MkdirTemp("/var/tmp", "cellblock-audit-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(place) })
		if err := os.Chmod(place, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(place, "audit", "s.jsonl")
		s := open(t, Options{Mode: mode, Audit: path})
		r := run(t, s, "import os\nfor f in ('"+path+"', '"+path+".head'):\n    for how in (lambda: open(f).read(), lambda: open(f, 'a').write('x'), lambda: os.remove(f), lambda: os.rename(f, f + '2')):\n        try: how(); print('DONE', f)\n        except OSError: pass\nprint(os.path.exists('"+filepath.Dir(place)+"'), any(os.readlink('/proc/self/fd/' + n).endswith('.jsonl') for n in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + n)))")
		if r.Details.Stdout != "True False\n" {
			t.Errorf("%s: %+v", mode, r.Text())
		}
		recorded(t, s)
	}
}

func TestNothingHappenedLeavesNoLog(t *testing.T) {
	s := open(t, Options{Tier: TierProcess, Audit: auditFile(t)})
	path := s.Info().Audit
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("%v", left)
	}
	s = open(t, Options{Tier: TierProcess, Audit: auditFile(t), PythonBin: "/no/such/python"})
	run(t, s, "1")
	if got := recorded(t, s); !slices.Equal(ops(got), []string{"worker.fail", "session.end"}) || got[0].Decision != audit.Incomplete {
		t.Errorf("%+v", got)
	}
	one := open(t, Options{Tier: TierProcess, Audit: auditFile(t)})
	_, err := Open(Options{Tier: TierProcess, SessionDir: t.TempDir(), PythonBin: "/usr/bin/python3", Audit: one.Info().Audit})
	var opened *audit.OpenError
	if !errors.As(err, &opened) || !errors.Is(err, audit.ErrLocked) {
		t.Errorf("two sessions on one log: %v", err)
	}
}

func TestInfoHasTheFactsOfTheJail(t *testing.T) {
	needStage(t)
	s := open(t, Options{})
	if i := s.Info(); i.WorkerPID != 0 || i.Witness != nil || i.Digests.Policy == "" {
		t.Errorf("before the start: %+v", i)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	i := s.Info()
	if len(i.Witness) < 10 || len(i.Limits) < 3 || len(i.Digests.Plan) != 64 || len(i.Digests.Spec) != 64 || len(i.Digests.Runtime) != 64 {
		t.Errorf("%+v", i)
	}
	for _, w := range i.Witness {
		if w.Got == "" || w.Got == "done" || w.Reason == "" {
			t.Errorf("%+v", w)
		}
	}
	for _, l := range i.Limits {
		if l.By == "cgroup" {
			t.Errorf("limit %s: which version of cgroup keeps it is not said", l.Name)
		}
	}
	if command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", i.WorkerPID)); err != nil || !bytes.Contains(command, []byte("boot.py")) {
		t.Errorf("pid %d is not the worker: %q, %v", i.WorkerPID, command, err)
	}
}

func TestDoctorShowsWhatAJailOnThisHostKeeps(t *testing.T) {
	needStage(t)
	r, err := Doctor(t.Context(), Options{PythonBin: "/usr/bin/python3"})
	if err != nil || r.Jail != JailWorks || len(r.Witness) < 10 || len(r.Limits) < 3 || r.Missing != nil {
		t.Errorf("%v: %s %+v %+v", err, r.Jail, r.Limits, r.Missing)
	}
	r, err = Doctor(t.Context(), Options{PythonBin: "/no/such/python"})
	if err != nil || r.Jail == JailWorks || len(r.Features.Findings) == 0 {
		t.Errorf("%v: %s", err, r.Jail)
	}
}
