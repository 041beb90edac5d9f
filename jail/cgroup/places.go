package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// Place says whether one ability of cgroups can be used by this process.
type Place struct {
	Usable bool
	Why    string
}

// HostMode says which hierarchies the host has.
func HostMode() Mode { return detectOnce().mode() }

// Places tells, without making anything, whether this process could limit
// memory and tasks by cgroup, and whether it could end a group with one write.
// It reads permissions; New is what finds out.
func Places() (memory, tasks, kill Place) {
	h := detectOnce()
	return h.place("memory"), h.place("pids"), h.killPlace()
}

func (h host) place(controller string) Place {
	if tree, ok := h.find(controller); ok {
		if err := writable(tree.own); err != nil {
			return Place{Why: fmt.Sprintf("%s controller, cgroup v1: %s: %v", controller, tree.own, err)}
		}
		return Place{Usable: true, Why: fmt.Sprintf("%s controller, cgroup v1, below %s", controller, tree.own)}
	}
	if h.v2 == nil {
		return Place{Why: controller + " controller: not mounted"}
	}
	var reasons []string
	for _, dir := range ancestors(*h.v2) {
		err := writable(dir)
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("%s: %v", dir, err))
		case contains(dir, "cgroup.subtree_control", []string{controller}):
			return Place{Usable: true, Why: fmt.Sprintf("%s controller, cgroup v2, below %s", controller, dir)}
		case !contains(dir, "cgroup.controllers", []string{controller}):
			reasons = append(reasons, dir+": does not have the controller")
		case exists(dir, "cgroup.type") && occupied(dir):
			reasons = append(reasons, dir+": has processes of its own and cannot hand out controllers")
		case unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) != nil:
			reasons = append(reasons, dir+"/cgroup.subtree_control: not writable")
		default:
			return Place{Usable: true, Why: fmt.Sprintf("%s controller, cgroup v2, to be handed out below %s", controller, dir)}
		}
	}
	return Place{Why: controller + " controller, cgroup v2: " + strings.Join(reasons, "; ")}
}

func (h host) killPlace() Place {
	if h.v2 == nil {
		return Place{Why: "cgroup v2 is not mounted"}
	}
	for _, dir := range ancestors(*h.v2) {
		if writable(dir) == nil {
			return Place{Usable: killSupported(), Why: "cgroup v2, below " + dir}
		}
	}
	return Place{Why: h.v2.own + ": not writable"}
}

// killSupported tells by the version: the root cgroup has no cgroup.kill to
// look for.
func killSupported() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 5 || major == 5 && minor >= 14)
}

func writable(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

// occupied reports whether a cgroup has processes other than this one.
func occupied(dir string) bool {
	pids, err := cgroups.GetPids(dir)
	return err != nil || len(pids) > 1 || len(pids) == 1 && pids[0] != os.Getpid()
}
