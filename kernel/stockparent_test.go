package kernel

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/jail"
)

// TestStockForksForWhoFindsNone: a session that finds no worker ready has its own forked of
// its kind's parent, in its own jail, and starts one afresh when that has ended.
func TestStockForksForWhoFindsNone(t *testing.T) {
	st := newStocked(t, StockOptions{Way: WayFork, Max: 1}, Options{})
	st.prepare(t)
	var parent *jail.Parent
	st.mu.Lock()
	st.giving++ // nothing is made meanwhile
	for _, k := range st.kinds {
		parent = k.parent.Parent
	}
	st.mu.Unlock()
	if _, ready := st.started(t, st.options(t, "a")); !ready {
		t.Fatalf("the first found none: %+v", st.Stats())
	}
	s, ready := st.started(t, st.options(t, "b"))
	if got := parentOf(t, s.Info().WorkerPID); ready || got != parent.Pids()[0] {
		t.Errorf("ready %v, child of %d and not of %d: %+v", ready, got, parent.Pids()[0], st.Stats())
	}
	if got := value(t, s, "open('own', 'w').write('mine'); __import__('os').getcwd()"); got != "'"+s.dir+"'" {
		t.Errorf("it works in %s", got)
	}
	if r := run(t, s, "open('../a/own', 'w')"); r.Details.Error == nil {
		t.Error("it writes to another's directory")
	}
	if err := syscall.Kill(parent.Pids()[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-parent.Done()
	s, ready = st.started(t, st.options(t, "c"))
	if got := value(t, s, "6 * 7"); ready || got != "42" {
		t.Errorf("without a parent: %s", got)
	}
	if got := st.Stats(); got.Failed == 0 || !strings.Contains(got.Why, "warm parent") {
		t.Errorf("%+v", got)
	}
}

// TestStockOutlivesItsParents: a worker is made of a new parent at once when the last one
// has ended, also while one is being forked.
func TestStockOutlivesItsParents(t *testing.T) {
	st := newStocked(t, StockOptions{Way: WayFork, Max: 1}, Options{})
	st.prepare(t)
	for i := range 2 {
		st.mu.Lock()
		var last *jail.Parent
		for _, k := range st.kinds {
			last = k.parent.Parent
		}
		st.mu.Unlock()
		if err := syscall.Kill(last.Pids()[i], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-last.Done() // else the start that is under way finds out
		}
		if s, ready := st.started(t, st.options(t, []string{"b", "c"}[i])); !ready {
			t.Errorf("none was ready: %+v", st.Stats())
		} else if got := value(t, s, "6 * 7"); got != "42" {
			t.Error(got)
		}
		st.prepare(t)
	}
	if got := st.Stats(); got.Failed != 0 || got.Made < 3 {
		t.Errorf("%+v", got)
	}
}

// parentOf is the parent of a process, on the host.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	parent, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// TestMemoryRunsOutForSessionsFirst: a session's score is above the launcher's, and one that
// a launcher with CAP_SYS_RESOURCE has given is final.
func TestMemoryRunsOutForSessionsFirst(t *testing.T) {
	inBothWays(t, func(t *testing.T, way StockWay) {
		st := newStocked(t, StockOptions{Way: way, Max: 1}, Options{})
		st.prepare(t)
		s, ready := st.started(t, st.options(t, "a"))
		run(t, s, `
def score(new=None):
    fd = os.open("/proc/self/oom_score_adj", os.O_RDWR if new else os.O_RDONLY)
    try:
        if new: os.write(fd, new)
        return int(os.pread(fd, 20, 0))
    except PermissionError: return "refused"
    finally: os.close(fd)`)
		if got := value(t, s, "score()"); !ready || got != "500" {
			t.Errorf("ready %v, its score is %s", ready, got)
		}
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, caps, _ := strings.Cut(string(status), "CapEff:\t")
		caps, _, _ = strings.Cut(caps, "\n")
		set, err := strconv.ParseUint(caps, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		want := "499"
		if set&(1<<unix.CAP_SYS_RESOURCE) != 0 {
			want = "'refused'"
		}
		if got := value(t, s, `score(b"499")`); got != want {
			t.Errorf("lowered by one: %s, want %s", got, want)
		}
		if got := value(t, s, `score(b"-1")`); got != "'refused'" {
			t.Errorf("lowered below the launcher's: %s", got)
		}
	})
}
