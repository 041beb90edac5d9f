package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"cellblock/jail/internal/require"
)

// newGroup makes a group or skips when this host gives this user none.
func newGroup(t *testing.T, limits Limits) *Group {
	t.Helper()
	group, err := New(t.Name(), limits)
	if err != nil {
		require.Skip(t, "cgroup", err.Error())
	}
	t.Cleanup(func() {
		if err := group.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, dir := range group.Paths() {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left behind", dir)
			}
		}
	})
	for _, lack := range group.Unenforced() {
		switch lack.What {
		case "memory":
			require.Skip(t, "cgroup-memory", lack.Why.Error())
		case "tasks":
			require.Skip(t, "cgroup-tasks", lack.Why.Error())
		}
	}
	return group
}

// start runs a command that is born inside the group.
func start(t *testing.T, group *Group, command string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(command, args...)
	if fd := group.Fd(); fd >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		leave, err := group.Enter()
		if err == nil {
			err = cmd.Start()
		}
		if leaveErr := leave(); leaveErr == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("start inside the group: %v", err)
	}
	return cmd
}

func TestChildIsBornInsideEveryHierarchy(t *testing.T) {
	group := newGroup(t, Limits{MemoryBytes: 256 << 20, Tasks: 16})
	cmd := start(t, group, "sleep", "60")
	defer func() { _ = group.Kill(); _ = cmd.Wait() }()
	raw, err := os.ReadFile(filepath.Join("/proc", itoa(cmd.Process.Pid), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(string(raw), "/"+directory+"/"+group.id), len(group.Paths()); got != want {
		t.Errorf("the child stands in %d of the group's %d directories:\n%s", got, want, raw)
	}
	self, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(self), group.id) {
		t.Errorf("the launcher's thread stayed in the group:\n%s", self)
	}
}

func TestTaskLimitRefusesForksAndCountsThem(t *testing.T) {
	group := newGroup(t, Limits{Tasks: 4})
	cmd := start(t, group, "sh", "-c", `i=0; while [ $i -lt 12 ]; do sleep 5 & i=$((i+1)); done; wait`)
	waitFor(t, "a refused fork", func() bool { return group.Stats().TasksHits > 0 })
	if got := group.Stats().Tasks; got > 4 {
		t.Errorf("%d tasks under a limit of 4", got)
	}
	if err := group.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

func TestMemoryLimitIsToldApartFromAKill(t *testing.T) {
	group := newGroup(t, Limits{MemoryBytes: 32 << 20})
	cmd := start(t, group, "python3", "-I", "-S", "-c", "x = bytearray(200 << 20)")
	if err := cmd.Wait(); err == nil {
		t.Fatal("200 MiB fitted into 32 MiB")
	}
	stats := group.Stats()
	if stats.OOMKills == 0 {
		t.Error("no kill by the memory limit was counted")
	}
	if stats.MemoryPeak == 0 || stats.MemoryPeak > 33<<20 {
		t.Errorf("peak memory %d under a limit of 32 MiB", stats.MemoryPeak)
	}
	if stats.CPU <= 0 {
		t.Error("no processor time was counted")
	}
}

func TestKillEndsDaemons(t *testing.T) {
	group := newGroup(t, Limits{Tasks: 64})
	cmd := start(t, group, "sh", "-c", `trap "" TERM HUP; (setsid sh -c 'trap "" TERM HUP; while :; do sleep 1; done' &) ; sleep 60`)
	waitFor(t, "the daemon", func() bool { return group.Stats().Tasks >= 3 })
	if err := group.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitFor(t, "an empty group", func() bool { return group.Stats().Tasks == 0 })
}

func TestSweepRemovesGroupsOfDeadLaunchersOnly(t *testing.T) {
	mine := newGroup(t, Limits{Tasks: 8})
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, dir := range mine.Paths() {
		name := pidNamespace() + "-" + itoa(dead.Process.Pid) + "-12345-1-left"
		path := filepath.Join(filepath.Dir(dir), name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		left = append(left, path)
	}
	stray := exec.Command("sleep", "60")
	if err := stray.Start(); err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if err := os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte(itoa(stray.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- stray.Wait() }()
	if _, err := Sweep(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a process of a dead launcher's group lived on")
	}
	for _, path := range left {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was not swept", path)
		}
	}
	for _, dir := range mine.Paths() {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a living launcher's group was swept: %v", err)
		}
	}
}

func TestNoHierarchyIsATypedError(t *testing.T) {
	if _, err := newIn(host{}, "s", Limits{Tasks: 1}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	readOnly := host{v1: []hierarchy{{controllers: []string{"pids"}, mount: "/proc", own: "/proc/self"}}}
	if _, err := newIn(readOnly, "s", Limits{Tasks: 1}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

func TestLimitWithoutItsControllerIsNamed(t *testing.T) {
	h := detectOnce()
	kept := h.v1[:0:0]
	for _, tree := range h.v1 {
		if tree.controllers[0] != "memory" {
			kept = append(kept, tree)
		}
	}
	h.v1 = kept
	group, err := newIn(h, t.Name(), Limits{MemoryBytes: 1 << 30, Tasks: 8})
	if err != nil {
		require.Skip(t, "cgroup", err.Error())
	}
	defer group.Close()
	if contains(h.root(), "cgroup.controllers", []string{"memory"}) {
		t.Skip("this host has the memory controller on v2 (no v1 controller to leave out)")
	}
	for _, lack := range group.Unenforced() {
		if lack.What == "memory" && lack.Why != nil {
			return
		}
	}
	t.Errorf("a memory limit without a controller went unsaid: %v", group.Unenforced())
}

func (h host) root() string {
	if h.v2 == nil {
		return "/"
	}
	return h.v2.mount
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
	}
}
