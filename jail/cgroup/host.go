package cgroup

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Mode says which hierarchies the host has: "none", "v1", "v2" or "hybrid".
type Mode string

// The modes.
const (
	ModeNone   Mode = "none"
	ModeV1     Mode = "v1"
	ModeV2     Mode = "v2"
	ModeHybrid Mode = "hybrid"
)

// hierarchy is one mounted cgroup tree.
type hierarchy struct {
	controllers []string // of v1; those of v2 are read where they are needed
	mount       string   // where it is mounted
	own         string   // the launcher's own cgroup in it, a directory
}

// host is what this process sees of cgroups.
type host struct {
	v1 []hierarchy
	v2 *hierarchy
}

func (h host) mode() Mode {
	switch {
	case h.v2 != nil && len(h.v1) > 0:
		return ModeHybrid
	case h.v2 != nil:
		return ModeV2
	case len(h.v1) > 0:
		return ModeV1
	default:
		return ModeNone
	}
}

// find returns the v1 hierarchy that a controller is bound to.
func (h host) find(controller string) (hierarchy, bool) {
	for _, tree := range h.v1 {
		if slices.Contains(tree.controllers, controller) {
			return tree, true
		}
	}
	return hierarchy{}, false
}

var detectOnce = sync.OnceValue(func() host { return detect("/proc/self/mountinfo", "/proc/self/cgroup") })

// detect reads the mounted hierarchies and this process's place in them. It is
// asked once: the launcher does not change its cgroup but for a leaf of ours.
func detect(mountinfo, self string) host {
	paths := ownPaths(self)
	var found host
	file, err := os.Open(mountinfo)
	if err != nil {
		return found
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		// 36 35 98:0 ROOT MOUNT OPTIONS - TYPE SOURCE SUPER
		before, after, ok := strings.Cut(scanner.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		root, mount := unescape(left[3]), unescape(left[4])
		switch right[0] {
		case "cgroup2":
			if own, ok := place(mount, root, paths[""]); ok && found.v2 == nil {
				found.v2 = &hierarchy{mount: mount, own: own}
			}
		case "cgroup":
			names := controllersOf(right[2], paths)
			if len(names) == 0 {
				continue
			}
			if own, ok := place(mount, root, paths[names[0]]); ok {
				found.v1 = append(found.v1, hierarchy{controllers: names, mount: mount, own: own})
			}
		}
	}
	return found
}

// ownPaths maps each controller, and "" for v2, to this process's cgroup.
func ownPaths(self string) map[string]string {
	paths := map[string]string{}
	raw, err := os.ReadFile(self)
	if err != nil {
		return paths
	}
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for name := range strings.SplitSeq(parts[1], ",") {
			paths[name] = parts[2]
		}
	}
	return paths
}

// controllersOf keeps those super block options that name controllers.
func controllersOf(options string, paths map[string]string) []string {
	var names []string
	for option := range strings.SplitSeq(options, ",") {
		if _, ok := paths[option]; ok && option != "" {
			names = append(names, option)
		}
	}
	return names
}

// place finds a cgroup's directory below a mount that may show only a part of
// the tree (root), as in a container.
func place(mount, root, path string) (string, bool) {
	if path == "" {
		return "", false
	}
	if root == "/" {
		return filepath.Join(mount, path), true
	}
	rest, ok := strings.CutPrefix(path, root)
	if !ok || (rest != "" && rest[0] != '/') {
		return mount, true
	}
	return filepath.Join(mount, rest), true
}

// unescape undoes mountinfo's octal escapes.
func unescape(field string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(field)
}
