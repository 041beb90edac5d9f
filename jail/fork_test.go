package jail

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cellblock/jail/plan"
	"cellblock/pyruntime"
)

// startParent starts a warm parent of the real interpreter and source.
func startParent(t testing.TB) *Parent {
	t.Helper()
	dir := t.TempDir()
	if err := pyruntime.WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	p, err := StartParent(t.Context(), ParentOptions{Argv: pyruntime.ParentCommand(python, "/proc/self/fd/4", 3, 5), Env: []string{"PATH=/usr/bin:/bin"}, Source: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func forkedSpec(t testing.TB) Spec {
	t.Helper()
	spec := testSpec(t, TreeReadOnly, python)
	spec.Forked = true
	return spec
}

// startForked starts a worker of the parent's and returns the launcher's end of its wire.
func startForked(t testing.TB, parent *Parent, p *plan.Plan) (*Process, net.Conn, error) {
	t.Helper()
	return startFailing(t, parent, p, 0)
}

// startFailing is startForked with a call that fails.
func startFailing(t testing.TB, parent *Parent, p *plan.Plan, call int) (*Process, net.Conn, error) {
	t.Helper()
	ours, theirs, err := conversation("wire")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	process, err := Start(context.Background(), p, StartOptions{Wire: theirs, Stderr: os.Stderr, Parent: parent, ParentSource: "/tmp", failCall: call})
	theirs.Close()
	if process != nil {
		t.Cleanup(func() { process.Kill(); process.Wait() })
	}
	return process, ours, err
}

// ask has the worker execute code.
func ask(t testing.TB, wire net.Conn, code string) string {
	t.Helper()
	_ = wire.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(wire, `{"id":1,"op":"install-runtime","session":"s","directory":"/tmp"}`+"\n"+`{"id":2,"op":"eval","session":"s","code":%s}`+"\n", strconv.Quote(code))
	lines := bufio.NewScanner(wire)
	last := ""
	for len(last) < 7 || last[:7] != `{"id":2` && last[:8] != `{"id": 2` {
		if !lines.Scan() {
			return "gone"
		}
		last = lines.Text()
	}
	return last
}

func compiled(t testing.TB, spec Spec) *plan.Plan {
	t.Helper()
	p, err := Compile(spec, Probe())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestForkedWorker: two workers of one parent have jails of their own, and answer.
func TestForkedWorker(t *testing.T) {
	parent := startParent(t)
	p := compiled(t, forkedSpec(t))
	var spaces []string
	for range 2 {
		process, wire, err := startForked(t, parent, p)
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, wire, `str(6 * 7)`); !strings.Contains(got, `"42"`) {
			t.Errorf("it says %s", got)
		}
		space := ""
		for _, ns := range []string{"user", "mnt", "pid", "ipc", "uts", "cgroup", "net"} {
			link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", process.Pid(), ns))
			if err != nil {
				t.Fatal(err)
			}
			space += link
			if slices.ContainsFunc(spaces, func(s string) bool { return strings.Contains(s, link) }) {
				t.Errorf("both are in %s", link)
			}
		}
		spaces = append(spaces, space)
		checkCgroup(t, process)
		if report := process.Report(); len(report.Witness) != len(p.Witness) {
			t.Errorf("%d results of %d checks", len(report.Witness), len(p.Witness))
		}
	}
}

// TestForkedWorkerEndIsToldApart: as that of a worker that was executed.
func TestForkedWorkerEndIsToldApart(t *testing.T) {
	parent := startParent(t)
	spec := forkedSpec(t)
	spec.Limits.MemoryBytes = 128 << 20
	p := compiled(t, spec)
	for code, want := range map[string]string{
		`__import__("os")._exit(7)`:                            "exit code 7",
		`__import__("os").kill(__import__("os").getpid(), 11)`: "signal 11 (SIGSEGV)",
		`[bytearray(b"x") * (1 << 26) for _ in range(100)]`:    "memory limit",
	} {
		process, wire, err := startForked(t, parent, p)
		if err != nil {
			t.Fatal(err)
		}
		said := ask(t, wire, code)
		if want == "memory limit" && len(process.Report().Cgroups) == 0 {
			// Kept by a resource limit, which refuses and ends nobody.
			if !strings.Contains(said, "MemoryError") {
				t.Errorf("%s: it says %.300s", code, said)
			}
			continue
		}
		select {
		case <-process.Done():
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the jail does not end", code)
		}
		if got := process.Wait().Cause(); got != want {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
	}
	process, wire, err := startForked(t, parent, p)
	if err != nil {
		t.Fatal(err)
	}
	_ = ask(t, wire, `__import__("subprocess").Popen(["sleep", "1000"]).pid`)
	process.Kill()
	if got := process.Wait(); got.Cause() != "killed" || got.Signal != syscall.SIGKILL {
		t.Errorf("killed: %+v", got)
	}
}

// TestForkedStepsAreWitnessed: a worker that has left out one of the steps that confine it
// does not start. No-new-privileges it has from its parent.
func TestForkedStepsAreWitnessed(t *testing.T) {
	parent := startParent(t)
	whole := compiled(t, forkedSpec(t))
	confining := map[plan.Op]bool{plan.OpDropCaps: true, plan.OpObserve: true, plan.OpSeccomp: true, plan.OpLandlock: true, plan.OpJoin: true}
	tried := 0
	for i, st := range whole.Steps {
		if st.Side != plan.Fork || !confining[st.Op] {
			continue
		}
		if st.Op == plan.OpSeccomp && st.Slot > 0 {
			continue // all of them at once, below
		}
		p := *whole
		p.Steps = slices.DeleteFunc(slices.Clone(whole.Steps), func(other plan.Step) bool {
			return other.Side == plan.Fork && other.Op == st.Op
		})
		tried++
		if process, _, err := startForked(t, parent, &p); err == nil {
			process.Kill()
			t.Errorf("step %d, %s: it starts without", i, st.Op)
		}
	}
	if tried < 5 {
		t.Errorf("%d steps were left out: %s", tried, whole)
	}
	if _, _, err := startForked(t, parent, whole); err != nil {
		t.Errorf("control: with all steps: %v", err)
	}
}

func TestEveryCallOfAForkedWorkerMayFail(t *testing.T) {
	parent := startParent(t)
	p := compiled(t, forkedSpec(t))
	process, _, err := startForked(t, parent, p)
	if err != nil {
		t.Fatal(err)
	}
	all, failed := process.forked.made, 0
	for n := 1; n <= all; n++ {
		process, _, err := startFailing(t, parent, p, n)
		switch {
		case err == nil:
			process.Kill()
			<-process.Done()
		case errors.As(err, new(*StepError)):
			failed++
		default:
			t.Errorf("call %d of %d: %v", n, all, err)
		}
	}
	if failed < 50 { // the bounding set alone has more than 40
		t.Errorf("%d of %d calls ended the start", failed, all)
	}
	parent.mu.Lock()
	waited := len(parent.waits)
	parent.mu.Unlock()
	if waited > 1 {
		t.Errorf("%d workers are waited for", waited)
	}
}

// TestParentsEnd: workers outlive either process of their parent; how they end is known as
// long as the one that waits for them is there, and a parent that forks no more ends with
// the last of them.
func TestParentsEnd(t *testing.T) {
	p := compiled(t, forkedSpec(t))
	for name, end := range map[string]func(*Parent){
		"released":             (*Parent).Release,
		"the warm one killed":  func(p *Parent) { _ = syscall.Kill(p.Pids()[1], syscall.SIGKILL) },
		"the warm one stopped": func(p *Parent) { _ = syscall.Kill(p.Pids()[1], syscall.SIGSTOP) },
	} {
		parent := startParent(t)
		process, wire, err := startForked(t, parent, p)
		if err != nil {
			t.Fatal(name, err)
		}
		end(parent)
		if _, _, err := startForked(t, parent, p); err == nil || !strings.Contains(err.Error(), "warm parent") {
			t.Errorf("%s: forked of it: %v", name, err)
		}
		within(t, name+": it forks no more", parent.Done())
		select {
		case <-parent.Gone():
			t.Errorf("%s: it ended before its worker", name)
		case <-time.After(50 * time.Millisecond):
		}
		if got := ask(t, wire, `str(6 * 7)`); !strings.Contains(got, `"42"`) {
			t.Errorf("%s: its worker says %s", name, got)
		}
		_ = ask(t, wire, `__import__("os")._exit(7)`)
		if got := process.Wait().Cause(); got != "exit code 7" {
			t.Errorf("%s: its worker: %s", name, got)
		}
		within(t, name+": it ends with its last worker", parent.Gone())
	}
	for name, signal := range map[string]syscall.Signal{"the one that waits killed": syscall.SIGKILL, "the one that waits stopped": syscall.SIGSTOP} {
		parent := startParent(t)
		process, wire, err := startForked(t, parent, p)
		if err != nil {
			t.Fatal(name, err)
		}
		_ = syscall.Kill(parent.Pids()[0], signal)
		if got := ask(t, wire, `str(6 * 7)`); !strings.Contains(got, `"42"`) {
			t.Errorf("%s: its worker says %s", name, got)
		}
		process.Kill()
		within(t, name+": the jail ends", process.Done())
		if got := process.Wait(); got.Err == nil {
			t.Errorf("%s: nobody could tell how it ended: %+v", name, got)
		}
		within(t, name+": it forks no more", parent.Done())
	}
}

// TestAbandonedBesideAStoppedParent: a start that is given up ends although nobody waits for
// what was forked for it.
func TestAbandonedBesideAStoppedParent(t *testing.T) {
	parent := startParent(t)
	p := compiled(t, forkedSpec(t))
	if err := syscall.Kill(parent.Pids()[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		const last = 40 // a call after the fork into the jail
		if _, _, err := startFailing(t, parent, p, last); err == nil {
			t.Error("it started, although a call has failed")
		}
	}()
	within(t, "the start", ended)
}

// TestForksThatNobodyWaitsFor: a cancelled one takes no answer from the next.
func TestForksThatNobodyWaitsFor(t *testing.T) {
	parent := startParent(t)
	p := compiled(t, forkedSpec(t))
	_ = syscall.Kill(parent.Pids()[1], syscall.SIGSTOP)
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := parent.fork(ctx, []int{fd, fd, fd, fd, fd, fd}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a fork of a stopped parent: %v", err)
		}
		cancel()
	}
	_ = syscall.Kill(parent.Pids()[1], syscall.SIGCONT)
	process, wire, err := startForked(t, parent, p)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, wire, `str(6 * 7)`); !strings.Contains(got, `"42"`) {
		t.Errorf("it says %s", got)
	}
	process.Kill()
	process.Wait()
}

func within(t *testing.T, what string, happens <-chan struct{}) {
	t.Helper()
	select {
	case <-happens:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: not within 30 s", what)
	}
}

// TestParentsThatCannotBe: the error has what the program said.
func TestParentsThatCannotBe(t *testing.T) {
	for want, argv := range map[string][]string{
		"no such file": {"/usr/bin/there-is-none"},
		"told so":      {"/bin/sh", "-c", "echo told so >&2; exit 3"},
		"ended before": {"/bin/sh", "-c", "echo no json >&3; sleep 100"},
	} {
		if p, err := StartParent(t.Context(), ParentOptions{Argv: argv, Source: "/"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, %v", argv, p, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := StartParent(ctx, ParentOptions{Argv: []string{"/bin/sleep", "100"}, Source: "/"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that is never ready: %v", err)
	}
}
