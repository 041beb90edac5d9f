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
