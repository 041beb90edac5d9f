package integration

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files of this package anew")

// TestPosture reads a live worker from outside and compares the whole of it with
// what its profile and mode are known to give: ids, capabilities, namespaces,
// mounts, descriptors, limits, seccomp, cgroup.
func TestPosture(t *testing.T) {
	who := "user"
	if os.Geteuid() == 0 {
		who = "root"
	}
	for _, p := range []string{"default", "strict"} {
		for _, m := range append([]string{"shadow"}, bothModes...) {
			name := p + "-" + m + "-" + who
			t.Run(name, func(t *testing.T) {
				dir := newDirIn(t, "/var/tmp")
				opts, state := []option{at(dir), profile(p), mode(m)}, newDirIn(t, "/var/tmp")
				if m == "shadow" {
					require(t, needOverlay)
					opts = append(opts, shadowIn(state))
				}
				s := open(t, opts...)
				s.ok("1")
				got := strings.ReplaceAll(posture(t, workerOf(t, dir), dir), state, "STATE")
				golden := filepath.Join("testdata", "posture", name+".txt")
				if *update {
					write(t, golden, got)
					return
				}
				if want := readFile(t, golden); got != want {
					t.Errorf("the posture is not that of %s (-update writes it anew):\n%s", golden, diffLines(want, got))
				}
			})
		}
	}
}

// workerOf finds the interpreter of the session in dir among this process's
// descendants: the one whose working directory it is.
func workerOf(t *testing.T, dir string) int {
	t.Helper()
	for _, pid := range descendants(os.Getpid()) {
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && cwd == dir {
			return pid
		}
	}
	t.Fatalf("no worker below this process works in %s", dir)
	return 0
}

// posture describes a process as text in which everything that differs from run
// to run or from host to host has a name instead.
func posture(t *testing.T, pid int, dir string) string {
	t.Helper()
	var out strings.Builder
	section := func(title string, lines []string) {
		fmt.Fprintf(&out, "%s\n", title)
		for _, l := range lines {
			fmt.Fprintf(&out, "\t%s\n", l)
		}
	}
	id := strconv.Itoa(os.Getuid())
	var lines []string
	for _, field := range []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters"} {
		value := strings.Join(strings.Fields(statusField(pid, field)), " ")
		if id != "0" && (field == "Uid" || field == "Gid") {
			value = strings.ReplaceAll(strings.ReplaceAll(value, id, "USER"), strconv.Itoa(os.Getgid()), "USER")
		}
		if id != "0" && field == "Groups" {
			value = "the user's"
		}
		lines = append(lines, field+" "+value)
	}
	section("status", lines)
	if n := len(strings.Fields(statusField(pid, "NSpid"))); n != 2 {
		t.Errorf("the worker has %d pids, want one on the host and one inside", n)
	}

	lines = nil
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"} {
		mine, _ := os.Readlink("/proc/self/ns/" + ns)
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil {
			t.Fatal(err)
		}
		owner := "own"
		if mine == its {
			owner = "host's"
		}
		lines = append(lines, ns+" "+owner)
	}
	section("namespaces", lines)
	seen, hidden := mounts(t, pid, dir)
	section("mounts", seen)
	section("hidden where the host has it", hidden)

	lines = nil
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		lines = append(lines, fd.Name()+" "+strings.SplitN(target, ":[", 2)[0])
	}
	section("descriptors", lines)

	lines = nil
	for _, l := range strings.Split(readFile(t, fmt.Sprintf("/proc/%d/limits", pid)), "\n") {
		for _, name := range []string{"Max core file size", "Max open files", "Max file size", "Max cpu time"} {
			if rest, ok := strings.CutPrefix(l, name); ok {
				lines = append(lines, name+": "+strings.Join(strings.Fields(rest)[:2], " "))
			}
		}
	}
	section("limits", lines)

	lines = nil
	for _, l := range strings.Split(strings.TrimSpace(readFile(t, fmt.Sprintf("/proc/%d/cgroup", pid))), "\n") {
		part := strings.SplitN(l, ":", 3)
		if strings.Contains(part[2], "/cellblock/") && (part[1] == "memory" || part[1] == "pids") {
			lines = append(lines, "a group of its own for "+part[1])
		}
	}
	slices.Sort(lines)
	section("cgroup", lines)
	return out.String()
}

// maskable are paths that are covered where the host has them, which depends on
// its Linux and its packages.
var maskable = []string{
	"/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd", "/etc/shadow", "/etc/shadow-", "/etc/ssl/private", "/proc/acpi", "/proc/interrupts",
	"/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg", "/proc/timer_list", "/proc/vmallocinfo",
}

// mounts lists what the worker sees of its own, line by line, and what is
// covered. The host's own file systems must all be without devices and set-uid.
func mounts(t *testing.T, pid int, dir string) (lines, hidden []string) {
	t.Helper()
	host := map[string]bool{}
	for _, m := range mountinfo(t, os.Getpid()) {
		host[m.point] = true
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	covered := map[string]bool{}
	tree := map[string]bool{}
	for _, m := range visible(mountinfo(t, pid)) {
		if m.point == "/etc/passwd" && os.Getuid() != 0 {
			continue // only for a user without an account
		}
		if m.fstype == "tmpfs" && strings.HasPrefix(m.options, "ro,") && (slices.Contains(maskable, m.point) || strings.HasPrefix(m.point, home+"/")) {
			covered[m.point] = true
			continue
		}
		if m.fstype == "overlay" && m.source == "shadow" {
			// Which directories there are depends on the host.
			what := "directories of the host"
			if m.point == "/" {
				what = "/"
			}
			lines = append(lines, "a layer over "+what+": "+m.options)
			continue
		}
		own := m.fstype == "tmpfs" || m.fstype == "proc" || m.fstype == "devpts" || m.fstype == "devtmpfs" || m.fstype == "sysfs"
		point := strings.ReplaceAll(m.point, dir, "SESSION")
		if os.Getuid() != 0 {
			// Where it lies depends on who runs the tests.
			if above := filepath.Dir(home); point != "/" && point != above && strings.HasPrefix(above, point+"/") {
				continue // how deep homes lie is the host's
			}
			point = strings.ReplaceAll(strings.ReplaceAll(point, home, "HOME"), filepath.Dir(home), "HOME/..")
		}
		if temp := strings.Index(point, "pi-py-kernel-"); temp >= 0 {
			point = "/tmp/TEMP" + strings.TrimPrefix(point[temp:], strings.SplitN(point[temp:], "/", 2)[0])
		}
		if (host[m.point] && !strings.HasPrefix(m.point, "/proc") && !strings.HasPrefix(m.point, "/sys") && !strings.HasPrefix(m.point, "/dev") && m.point != "/run" && m.point != "/tmp") && m.point != "/" {
			tree[m.options] = true
			continue
		}
		if !own {
			lines = append(lines, point+" from the host: "+m.options)
			continue
		}
		lines = append(lines, point+" "+m.fstype+": "+m.options)
	}
	for options := range tree {
		if !strings.Contains(options, "nosuid") || !strings.Contains(options, "nodev") {
			t.Errorf("a file system of the host is mounted %s", options)
		}
	}
	for _, path := range maskable {
		if _, err := os.Lstat(path); err == nil && !covered[path] {
			hidden = append(hidden, path+" is NOT")
		} else {
			hidden = append(hidden, path)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines), hidden
}

type mountLine struct{ id, parent, point, options, fstype, source string }

// visible leaves out the mounts that another one covers: a recursive bind brings
// the host's along, below what is put over them.
func visible(all []mountLine) []mountLine {
	byID := map[string]mountLine{}
	for _, m := range all {
		byID[m.id] = m
	}
	shadowed := func(m mountLine) bool {
		for _, n := range all {
			onTop := n.parent == m.id && n.point == m.point
			above := n.parent == m.parent && n.id != m.id && strings.HasPrefix(m.point, n.point+"/")
			if onTop || above {
				return true
			}
		}
		return false
	}
	var seen []mountLine
	for _, m := range all {
		hidden := shadowed(m)
		for up, ok := byID[m.parent]; ok && up.id != up.parent && !hidden; up, ok = byID[up.parent] {
			// A parent whose root is covered hides its children, unless they are the cover.
			for _, n := range all {
				if n.parent == up.id && n.point == up.point && n.id != m.id && up.point != "/" && !descends(byID, m, n.id) {
					hidden = true
				}
			}
		}
		if !hidden {
			seen = append(seen, m)
		}
	}
	return seen
}

func descends(byID map[string]mountLine, m mountLine, ancestor string) bool {
	for up, ok := m, true; ok && up.id != up.parent; up, ok = byID[up.parent] {
		if up.id == ancestor {
			return true
		}
	}
	return false
}

// mountinfo reads /proc/<pid>/mountinfo, of each line the mount's own options.
func mountinfo(t *testing.T, pid int) []mountLine {
	t.Helper()
	var all []mountLine
	for _, line := range strings.Split(strings.TrimSpace(readFile(t, fmt.Sprintf("/proc/%d/mountinfo", pid))), "\n") {
		left, right, ok := strings.Cut(line, " - ")
		fields := strings.Fields(left)
		if !ok || len(fields) < 6 {
			t.Fatalf("mountinfo line %q", line)
		}
		options := strings.ReplaceAll(fields[5], ",relatime", "")
		options = strings.ReplaceAll(options, ",noatime", "")
		all = append(all, mountLine{fields[0], fields[1], fields[4], options, strings.Fields(right)[0], strings.Fields(right)[1]})
	}
	return all
}

// diffLines shows the lines that only one of two texts has.
func diffLines(want, got string) string {
	var out strings.Builder
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, l := range w {
		if !slices.Contains(g, l) {
			out.WriteString("-" + l + "\n")
		}
	}
	for _, l := range g {
		if !slices.Contains(w, l) {
			out.WriteString("+" + l + "\n")
		}
	}
	return out.String()
}
