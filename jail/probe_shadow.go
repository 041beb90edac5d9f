package jail

import (
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxShadow bounds the overlays of one jail: each takes a slot of the plan.
const maxShadow = 120

// ShadowPlaces looks which directories of this host a session's layers can cover,
// parents before what lies below, and what must stay read-only. A privileged
// launcher covers the whole tree, and each file system mounted in it. An ordinary
// user's overlays can have no mount point below them (overlayfs cannot take a lower
// layer with locked mounts), so that there is one for each directory without any,
// as high in the tree as may be.
func ShadowPlaces(host Features) (paths []string, left []Unshadowed) {
	if host.Privileged {
		return wholeTree(host)
	}
	p := places{host: host}
	p.descend("/")
	if len(p.paths) > maxShadow {
		for _, dir := range p.paths[maxShadow:] {
			p.left = append(p.left, Unshadowed{dir, "one directory too many to cover"})
		}
		p.paths = p.paths[:maxShadow]
	}
	sort.SliceStable(p.paths, func(i, j int) bool { return strings.Count(p.paths[i], "/") < strings.Count(p.paths[j], "/") })
	return p.paths, p.left
}

func wholeTree(host Features) (paths []string, left []Unshadowed) {
	paths = []string{"/"}
	for _, m := range host.Mounts {
		if m.Path == "/" || pseudo[m.FSType] || inAny(m.Path, own) {
			continue
		}
		switch info, err := os.Lstat(m.Path); {
		case err != nil: // out of reach
		case !info.IsDir():
			left = append(left, Unshadowed{m.Path, "a file that is a mount point"})
		case len(paths) == maxShadow:
			left = append(left, Unshadowed{m.Path, "one file system too many to cover"})
		default:
			paths = append(paths, m.Path)
		}
	}
	return paths, left
}

type places struct {
	host  Features
	paths []string
	left  []Unshadowed
}

// descend covers what lies in a directory that cannot be covered itself.
func (p *places) descend(dir string) {
	why := "overlayfs cannot cover a directory with mount points below it for an ordinary user; only what is in its other directories can change"
	p.left = append(p.left, Unshadowed{dir, why})
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		if inAny(at, own) || pseudo[p.fsType(at)] || !e.IsDir() {
			continue
		}
		switch {
		case unix.Access(at, unix.R_OK|unix.X_OK) != nil:
			// What cannot be listed has no overlay, and the user changes nothing in it
			// either but through names that he knows.
		case p.above(at):
			p.descend(at)
		default:
			p.cover(at)
		}
	}
}

// cover takes a directory, and of those in it the ones of another owner that the
// user may write: overlayfs cannot copy such a directory up, since its owner has no
// name in the user namespace, but needs no copy where it begins.
func (p *places) cover(dir string) {
	p.paths = append(p.paths, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		info, err := os.Lstat(at)
		if err != nil || !info.IsDir() {
			continue
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if ok && int(stat.Uid) != p.host.UID && unix.Access(at, unix.R_OK|unix.W_OK|unix.X_OK) == nil {
			p.paths = append(p.paths, at)
		}
	}
}

// above reports whether a mount point lies strictly below dir.
func (p *places) above(dir string) bool {
	return slices.ContainsFunc(p.host.Mounts, func(m MountPoint) bool { return m.Path != dir && below(m.Path, dir) })
}

func (p *places) fsType(dir string) string {
	for _, m := range p.host.Mounts {
		if m.Path == dir {
			return m.FSType
		}
	}
	return ""
}
