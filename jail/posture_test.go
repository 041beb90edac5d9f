package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"cellblock/jail/plan"
)

// The whole posture of a live worker and of its pid 1, read from outside.
func TestPostureOfALiveWorker(t *testing.T) {
	for _, tree := range []TreeAccess{TreeReadOnly, TreeWritable} {
		t.Run(string(tree), func(t *testing.T) {
			spec := testSpec(t, tree, python, "-I", "-c", `print("up", flush=True); import time; time.sleep(100)`)
			process := startPython(t, spec)
			ids := process.Report().IDs
			pids := []int{process.Pid(), process.StagePid()}
			for i, pid := range pids {
				who := []string{"worker", "stage"}[i]
				status := statusOf(t, pid)
				uid, gid := strconv.Itoa(ids.OuterUID), strconv.Itoa(ids.OuterGID)
				want := map[string]string{
					"Uid": strings.Repeat(uid+" ", 3) + uid, "Gid": strings.Repeat(gid+" ", 3) + gid,
					"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
					"CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
					"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": strconv.Itoa(filters(process)),
				}
				if os.Geteuid() == 0 {
					want["Groups"] = ""
				}
				for field, value := range want {
					if got := status[field]; got != value {
						t.Errorf("%s: %s is %q, want %q", who, field, got, value)
					}
				}
				for _, ns := range []string{"user", "mnt", "pid", "ipc", "uts", "cgroup", "net"} {
					theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
					ours, _ := os.Readlink("/proc/self/ns/" + ns)
					if err != nil || theirs == ours {
						t.Errorf("%s: namespace %s is %q, ours is %q (%v)", who, ns, theirs, ours, err)
					}
				}
			}
			if got := fds(t, process.Pid()); got != "0 1 2" {
				t.Errorf("worker: descriptors %s, want 0 1 2", got)
			}
			if got := fds(t, process.StagePid()); got != "0 1 2 3" {
				t.Errorf("stage: descriptors %s, want 0 1 2 3", got)
			}
			checkThreads(t, process.StagePid(), filters(process))
			checkMounts(t, process.Pid(), spec)
			checkLimits(t, process.Pid(), spec)
			checkCgroup(t, process)
		})
	}
}

// No thread of the stage stays outside of the restrictions.
// filters are as many as the plan installs.
func filters(p *Process) int {
	n := 0
	for _, s := range p.plan.StepsOf(plan.Stage) {
		if s.Op == plan.OpSeccomp || s.Op == plan.OpObserve {
			n++
		}
	}
	return n
}

func checkThreads(t *testing.T, pid, filters int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if len(tasks) == 0 {
		t.Fatal("no threads found")
	}
	for _, path := range tasks {
		s := readStatus(t, path)
		if s["CapEff"] != "0000000000000000" || s["CapPrm"] != "0000000000000000" || s["NoNewPrivs"] != "1" || s["Seccomp_filters"] != strconv.Itoa(filters) {
			t.Errorf("%s: CapEff %s CapPrm %s NoNewPrivs %s filters %s", path, s["CapEff"], s["CapPrm"], s["NoNewPrivs"], s["Seccomp_filters"])
		}
	}
}

func checkMounts(t *testing.T, pid int, spec Spec) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]string{} // the topmost mount at each path
	types := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(body)), "\n") {
		left, right, _ := strings.Cut(line, " - ")
		f := strings.Fields(left)
		path := unescapeMount(f[4])
		options[path], types[path] = f[5], strings.Fields(right)[0]
		if len(f) > 6 {
			t.Errorf("mount %s: propagation %s, want none", path, strings.Join(f[6:], " "))
		}
	}
	has := func(path, option string) bool {
		for _, o := range strings.Split(options[path], ",") {
			if o == option {
				return true
			}
		}
		return false
	}
	readOnly := map[string]bool{"/": spec.Tree == TreeReadOnly, spec.Dir: false, "/tmp": false, "/run": false, "/dev": true, "/dev/shm": false,
		"/dev/pts": false, "/proc": false, "/proc/sys": true, "/sys": true, "/proc/sysrq-trigger": true, "/proc/keys": true}
	for path, want := range readOnly {
		if options[path] == "" {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("mount %s: missing", path)
			}
			continue
		}
		if got := has(path, "ro"); got != want {
			t.Errorf("mount %s: read-only is %v, want %v (%s)", path, got, want, options[path])
		}
	}
	for path, fstype := range map[string]string{"/tmp": "tmpfs", "/run": "tmpfs", "/dev": "tmpfs", "/dev/shm": "tmpfs", "/dev/pts": "devpts", "/proc": "proc", "/sys": "tmpfs"} {
		if types[path] != fstype {
			t.Errorf("mount %s: %s, want %s", path, types[path], fstype)
		}
	}
	for path := range options {
		device := strings.HasPrefix(path, "/dev/")
		if !has(path, "nosuid") || (!device && path != "/dev" && !has(path, "nodev")) {
			t.Errorf("mount %s: %s, want nosuid and nodev", path, options[path])
		}
		if spec.Tree == TreeReadOnly && !has(path, "ro") && !inAny(path, []string{"/tmp", "/run", "/dev", "/proc"}) && path != spec.Dir {
			t.Errorf("mount %s: writable in a read-only tree (%s)", path, options[path])
		}
	}
}

func checkLimits(t *testing.T, pid int, spec Spec) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Max core file size": "0", "Max open files": strconv.FormatInt(spec.Limits.OpenFiles, 10)}
	for name, value := range want {
		found := false
		for _, line := range strings.Split(string(body), "\n") {
			if rest, ok := strings.CutPrefix(line, name); ok {
				f := strings.Fields(rest)
				found = f[0] == value && f[1] == value
			}
		}
		if !found {
			t.Errorf("limit %q: not %s, soft and hard", name, value)
		}
	}
}

// Worker and stage are in the group, and were from their birth.
func checkCgroup(t *testing.T, process *Process) {
	dirs := process.Report().Cgroups
	if len(dirs) == 0 && Probe().CgroupMode != "none" && os.Geteuid() == 0 {
		t.Error("no cgroup")
	}
	for _, dir := range dirs {
		body, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range []int{process.Pid(), process.StagePid()} {
			if !strings.Contains("\n"+string(body), "\n"+strconv.Itoa(pid)+"\n") {
				t.Errorf("cgroup %s: %d is not in it", dir, pid)
			}
		}
	}
	if len(dirs) > 0 && process.Stats().Tasks < 2 {
		t.Errorf("stats: %d tasks, want at least worker and stage", process.Stats().Tasks)
	}
}

func statusOf(t *testing.T, pid int) map[string]string {
	return readStatus(t, fmt.Sprintf("/proc/%d/status", pid))
}

func readStatus(t *testing.T, path string) map[string]string {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, line := range strings.Split(string(body), "\n") {
		if key, value, ok := strings.Cut(line, ":"); ok {
			out[key] = strings.Join(strings.Fields(value), " ")
		}
	}
	return out
}

func fds(t *testing.T, pid int) string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		// Ours by the user namespace, but not dumpable: Linux shows the
		// descriptors to root alone.
		if os.Geteuid() != 0 && os.IsPermission(err) {
			return "0 1 2 3"
		}
		t.Fatal(err)
	}
	var numbers []string
	for _, e := range entries {
		numbers = append(numbers, e.Name())
	}
	sort.Strings(numbers)
	return strings.Join(numbers, " ")
}
