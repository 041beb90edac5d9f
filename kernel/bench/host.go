package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// field reads one line "Name: 123 kB" of a file of proc(5).
func field(path, name string) (int64, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			words := strings.Fields(rest)
			if len(words) == 0 {
				break
			}
			return strconv.ParseInt(words[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no line %s", path, name)
}

// statusKB is a figure of this process, in kB.
func statusKB(name string) (int64, error) { return field("/proc/self/status", name) }

// resetPeak lets VmHWM count from now on (proc(5), clear_refs). Where Linux does not
// allow it the peak is that of the process's life, and what it grew is overstated.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// pss is the memory of processes with their share of what others use too, in MB.
func pss(pids []int) (float64, error) {
	var sum int64
	for _, pid := range pids {
		kb, err := field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
		if err != nil {
			return 0, err
		}
		sum += kb
	}
	return float64(sum) / 1024, nil
}

// parentOf is the process that a process lives below.
func parentOf(pid int) (int, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	words := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(words) < 2 {
		return 0, fmt.Errorf("/proc/%d/stat: no parent", pid)
	}
	return strconv.Atoi(string(words[1]))
}

// firstOf is the first process of the jail that a worker is in. One that was executed
// lives below it; one that was forked lives below its warm parent, outside of the jail.
func firstOf(worker int) (int, error) {
	jail, err := pidNamespace(worker)
	if err != nil {
		return 0, err
	}
	above, err := parentOf(worker)
	if err != nil {
		return 0, err
	}
	if in, err := pidNamespace(above); err == nil && in == jail {
		return above, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// What ends meanwhile is not ours to look for.
		if in, err := pidNamespace(pid); err != nil || in != jail {
			continue
		}
		if above, err := parentOf(pid); err == nil && above == os.Getpid() {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d: the first process of its jail is no child of this one", worker)
}

// warmOf is the process of a warm parent that waits for a worker which it has forked.
func warmOf(worker int) (int, error) {
	parent, err := parentOf(worker)
	if err != nil {
		return 0, err
	}
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
	if err != nil {
		return 0, err
	}
	if !bytes.Contains(argv, []byte("/parent.py\x00")) {
		return 0, fmt.Errorf("process %d was not forked: it lives below %q", worker, bytes.ReplaceAll(argv, []byte{0}, []byte{' '}))
	}
	return parent, nil
}

// pidNamespace is the pid namespace of a process, as Linux names it.
func pidNamespace(pid int) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
}
