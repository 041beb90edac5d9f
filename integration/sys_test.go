package integration

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// newUserNamespace is what a child needs to be born in a user namespace of its
// own in which it keeps its ids.
func newUserNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
	}
}

// statusField reads one field of /proc/<pid>/status; "" when the process is gone.
func statusField(pid int, field string) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(data), "\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// descendants lists the host pids of every process below pid, in no order.
func descendants(pid int) []int {
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, err := strconv.Atoi(statusField(n, "PPid")); err == nil {
			children[parent] = append(children[parent], n)
		}
	}
	var all []int
	todo := []int{pid}
	for len(todo) > 0 {
		next := children[todo[0]]
		todo = append(todo[1:], next...)
		all = append(all, next...)
	}
	return all
}

// firstProcess is pid 1 of the pid namespace that a process is in, by its number here.
func firstProcess(pid int) (int, error) {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return 0, err
	}
	for _, p := range descendants(os.Getpid()) {
		if in, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p)); err != nil || in != space {
			continue
		}
		if numbers := strings.Fields(statusField(p, "NSpid")); len(numbers) > 1 && numbers[len(numbers)-1] == "1" {
			return p, nil
		}
	}
	return 0, fmt.Errorf("process %d: pid 1 of its namespace is none of ours", pid)
}
