package integration

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// leftovers describes what these launchers, by pid, and their jails have on this
// host: the processes that work in the marker's directory or name it, the mounts,
// cgroup directories and temp directories. What launchers of other users, or of
// another run of these tests, have is not told.
func leftovers(t testing.TB, marker string, launchers map[int]bool) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		// A worker's working directory is its session directory.
		cwd, _ := os.Readlink("/proc/" + e.Name() + "/cwd")
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if e.Name() != strconv.Itoa(os.Getpid()) && (strings.Contains(cwd, marker) || strings.Contains(string(line), marker)) {
			found["process "+e.Name()+" "+strings.ReplaceAll(string(line), "\x00", " ")] = true
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if strings.Contains(line, "cellblock") || strings.Contains(line, "pi-py-kernel") || strings.Contains(line, marker) {
			found["mount "+line] = true
		}
	}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || filepath.Base(filepath.Dir(path)) != "cellblock" {
			return nil
		}
		// Named by pid namespace, launcher's pid, its start and a number.
		if part := strings.Split(d.Name(), "-"); len(part) > 1 {
			if pid, err := strconv.Atoi(part[1]); err == nil && launchers[pid] {
				found["cgroup "+path] = true
			}
		}
		return nil
	})
	for _, name := range tempDirectories(t, launchers) {
		found["temp directory "+name] = true
	}
	return found
}

// tempDirectories lists the session temp directories that carry one of these
// launchers' pids.
func tempDirectories(t testing.TB, launchers map[int]bool) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), "pi-py-kernel-*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		rest := strings.TrimPrefix(filepath.Base(path), "pi-py-kernel-")
		pid, _, _ := strings.Cut(rest, "-")
		if n, err := strconv.Atoi(pid); err == nil && launchers[n] {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

// TestSIGKILL kills the launcher at random moments, 200 times: after the next
// start nothing of the dead ones is left.
func TestSIGKILL(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	dir := newDirIn(t, "/var/tmp")
	launchers, groups := map[int]bool{}, 0
	before := leftovers(t, dir, launchers)
	const cells = `import os, subprocess
if not os.fork():
    os.setsid()
    import time; time.sleep(300); os._exit(0)
subprocess.Popen(["sleep", "300"])
# %%
print("x" * 100000)
# %%
import time; time.sleep(300)`
	for i := range rounds {
		l := startLauncher(t, dir, cells)
		// From before the clone of the stage to the middle of the third cell.
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		l.kill()
		launchers[l.cmd.Process.Pid] = true
		if i%50 == 49 {
			for what := range leftovers(t, dir, launchers) {
				if !before[what] {
					groups++
				}
			}
		}
	}
	if rounds == 200 && groups == 0 {
		t.Error("control: no killed launcher left anything to sweep, so the moments are too early")
	}
	// The next start sweeps.
	out := command(t).run("run", "--mode", "enforce", "--session", dir, "--python", pythonBin(), "-c", "1 + 1")
	if out.code != 0 || !strings.Contains(out.stdout, "2") {
		t.Errorf("the next start: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	var extra []string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		extra = extra[:0]
		for what := range leftovers(t, dir, launchers) {
			if !before[what] {
				extra = append(extra, what)
			}
		}
		if len(extra) == 0 || time.Now().After(end) {
			break
		}
	}
	if len(extra) > 0 {
		t.Errorf("%d things are left after the next start:\n%s", len(extra), strings.Join(extra, "\n"))
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the session directory holds %v, %v", entries, err)
	}
}

// TestEndsWhole: closing a session ends its daemons and takes its temp
// directory and cgroup away.
func TestEndsWhole(t *testing.T) {
	dir := newDirIn(t, "/var/tmp")
	launchers := map[int]bool{os.Getpid(): true}
	s := open(t, at(dir))
	s.ok(`
import signal, time
if not os.fork():
    os.setsid()
    for n in range(1, 32):
        try: signal.signal(n, signal.SIG_IGN)
        except OSError: pass
    if os.fork(): os._exit(0)
    while True: time.sleep(1)`)
	count := func() int {
		n := 0
		for what := range leftovers(t, dir, launchers) {
			if strings.HasPrefix(what, "process ") {
				n++
			}
		}
		return n
	}
	// A walk of /proc misses a process that is born while it goes on.
	eventually(t, "control: the worker and its daemon run", 5*time.Second, func() bool { return count() >= 2 })
	start := time.Now()
	if err := s.kernel.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("close took %v", took)
	}
	eventually(t, "every process of the session is gone", 5*time.Second, func() bool { return count() == 0 })
	for what := range leftovers(t, dir, launchers) {
		if strings.HasPrefix(what, "mount ") {
			t.Errorf("left: %s", what)
		}
	}
}
