package jail

import (
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

const (
	attrQuiet    = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrReadOnly = attrQuiet | unix.MOUNT_ATTR_RDONLY
)

// pseudo file systems are windows on the host's Linux, not files of the user.
var pseudo = map[string]bool{"proc": true, "sysfs": true, "devpts": true, "devtmpfs": true, "cgroup": true, "cgroup2": true,
	"mqueue": true, "debugfs": true, "tracefs": true, "securityfs": true, "pstore": true, "bpf": true, "configfs": true,
	"fusectl": true, "hugetlbfs": true, "binfmt_misc": true, "autofs": true, "nsfs": true, "efivarfs": true, "selinuxfs": true,
	"rpc_pipefs": true, "resctrl": true}

// clone adds the step that copies a tree, on the side that can, and returns its
// slot.
func (c *compiler) clone(s plan.Step) int {
	s.Op, s.Slot = plan.OpClone, c.slots
	c.slots++
	if c.plan.SwitchIDs {
		c.launcher(s)
	} else {
		s.Map = nil
		c.stage(s)
	}
	return s.Slot
}

// ownerMap lets files of uid:gid belong to the worker.
func (c *compiler) ownerMap(uid, gid int, required bool) *plan.IDMap {
	ids := c.plan.IDs
	if uid == ids.OuterUID && gid == ids.OuterGID {
		return nil
	}
	return &plan.IDMap{FSUID: uid, FSGID: gid, UID: ids.OuterUID, GID: ids.OuterGID, Required: required}
}

// attached is a copied tree that waits for its place.
type attached struct {
	slot int
	step plan.Step
}

// trees copies everything that comes from the host before the first mount could
// cover it, then pivots.
func (c *compiler) trees() {
	if !c.plan.SwitchIDs {
		c.stage(plan.Step{Op: plan.OpPrivate, Reason: "no mount event crosses between host and jail"})
	}
	attr := uint64(attrQuiet)
	reason := "the host's tree, writable with the rights of its user, without set-id programs and devices"
	switch c.spec.Tree {
	case TreeReadOnly:
		attr = attrReadOnly
		reason = "the host's tree, unchangeable: also what Landlock does not mediate (chmod, chown, utime, attributes) fails here"
	case TreeShadow:
		attr = attrReadOnly
		reason = "the host's tree, unchangeable beneath the layers that take the changes"
	}
	// A privileged launcher copies mount by mount, since not every file system
	// can be id-mapped; an ordinary user must take the tree whole, since its
	// mounts are locked together.
	whole := !c.plan.SwitchIDs
	var root int
	if c.spec.Listed {
		root = c.slots
		c.slots++
		c.stage(plan.Step{Op: plan.OpEmpty, Slot: root, Flags: attrQuiet, Data: "mode=755,size=1m",
			Reason: "an empty tree, in which only what is listed is shown"})
	} else if layer, ok := c.layerOf("/"); ok {
		root = c.overlay(layer, false)
	} else {
		root = c.clone(plan.Step{Source: "/", Flags: attr, Recursive: whole, Map: c.ownerMap(0, 0, false), Reason: reason})
	}
	var later []attached
	if c.plan.SwitchIDs && !c.spec.Listed {
		for _, m := range c.host.Mounts {
			if m.Path == "/" || pseudo[m.FSType] || inAny(m.Path, own) {
				continue
			}
			if layer, ok := c.layerOf(m.Path); ok {
				later = append(later, attached{c.overlay(layer, true), plan.Step{Path: m.Path, Optional: true, Reason: "at its place in the tree"}})
				continue
			}
			step := plan.Step{Source: m.Path, Flags: attr, Optional: true,
				Reason: "another file system (" + m.FSType + ") in the host's tree"}
			if m.IDMap != No {
				step.Map = c.ownerMap(0, 0, false)
			}
			later = append(later, attached{c.clone(step), plan.Step{Path: m.Path, Optional: true, Reason: "at its place in the tree"}})
		}
	}
	if !c.plan.SwitchIDs {
		for _, layer := range c.spec.Shadow {
			later = append(later, attached{c.overlay(layer, true), plan.Step{Path: layer.Path, Optional: true, NoLinks: true, Reason: "at its place in the tree"}})
		}
	}
	for _, dev := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		later = append(later, attached{
			c.clone(plan.Step{Source: "/dev/" + dev, Flags: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC, Reason: "device that programs rely on"}),
			plan.Step{Path: "/dev/" + dev, Mkdir: true, Reason: "minimal /dev"}})
	}
	for _, dir := range []string{"/sys/devices/system/cpu", "/sys/devices/system/node"} {
		later = append(later, attached{
			c.clone(plan.Step{Source: dir, Flags: attrReadOnly | unix.MOUNT_ATTR_NOEXEC, Recursive: true, Optional: true,
				Reason: "numeric libraries read the processor's layout"}),
			plan.Step{Path: dir, Mkdir: true, Optional: true, Reason: "the only part of /sys"}})
	}
	binds := c.binds()
	c.deferred = append(later, binds...)
	if c.plan.SwitchIDs {
		c.stage(plan.Step{Op: plan.OpPrivate, Reason: "no mount event crosses between host and jail"})
	}
	c.stage(plan.Step{Op: plan.OpRoot, Slot: root, Reason: "the copy becomes the root; no scratch directory on the host is needed"})
	for _, a := range c.deferred {
		if !a.step.Mkdir && !strings.HasPrefix(a.step.Reason, "bind: ") {
			c.attach(a)
		}
	}
}

func (c *compiler) attach(a attached) {
	a.step.Op, a.step.Slot = plan.OpAttach, a.slot
	a.step.Reason = strings.TrimPrefix(a.step.Reason, "bind: ")
	c.stage(a.step)
}

// binds copies the sources of the spec's binds, parents before what lies below.
func (c *compiler) binds() []attached {
	list := append([]Bind(nil), c.spec.Binds...)
	sort.SliceStable(list, func(i, j int) bool {
		return strings.Count(list[i].Target, "/") < strings.Count(list[j].Target, "/")
	})
	var out []attached
	for _, b := range list {
		attr := uint64(attrReadOnly)
		if b.Write {
			attr = attrQuiet
		}
		if b.NoExec {
			attr |= unix.MOUNT_ATTR_NOEXEC
		}
		slot := c.clone(plan.Step{Source: b.Source, Flags: attr, Recursive: true, NoLinks: b.Write,
			Map: c.ownerMap(b.OwnerUID, b.OwnerGID, b.Write), Reason: b.Reason})
		out = append(out, attached{slot, plan.Step{Path: b.Target, NoLinks: b.Write, Mkdir: c.makeable(b.Target), Reason: "bind: " + b.Reason}})
	}
	return out
}

// makeable reports whether a mount point may be made in a file system of the
// jail's own. Nothing is ever made on the host.
func (c *compiler) makeable(target string) bool {
	if c.spec.Listed || inAny(target, private) {
		return true
	}
	for _, h := range c.spec.Hide {
		if below(target, h.Path) {
			return true
		}
	}
	return false
}

func (c *compiler) ownMounts() {
	size := "size=" + tmpSize(c.spec.Limits.TmpBytes)
	mount := func(fstype, path string, flags uint64, data, reason string) {
		c.stage(plan.Step{Op: plan.OpMount, FSType: fstype, Path: path, Flags: flags, Data: data, Reason: reason})
	}
	if c.spec.Listed {
		for _, dir := range []string{"/tmp", "/run", "/dev", "/proc", "/sys"} {
			c.stage(plan.Step{Op: plan.OpMkdir, Path: dir, Mode: 0o755, Reason: "mount point of the jail's own"})
		}
	}
	mount("tmpfs", "/tmp", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,"+size, "private /tmp: no files and no sockets of the host's")
	mount("tmpfs", "/run", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=16m", "private /run: no sockets of the host's services")
	c.stage(plan.Step{Op: plan.OpMkdir, Path: "/run/cellblock", Mode: 0o755, Reason: "place of what the launcher puts into the jail"})
	c.stage(plan.Step{Op: plan.OpFile, Path: "/run/cellblock/empty", Mode: 0o200, Reason: "cover of hidden files, which nobody reads"})
	mount("tmpfs", "/dev", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k", "minimal /dev: no disks, no kernel memory, no terminals")
	for _, a := range c.deferred {
		if strings.HasPrefix(a.step.Path, "/dev/") && a.step.Reason == "minimal /dev" {
			c.attach(a)
		}
	}
	c.stage(plan.Step{Op: plan.OpMkdir, Path: "/dev/pts", Mode: 0o755, Reason: "mount point of the jail's terminals"})
	mount("devpts", "/dev/pts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620", "terminals of the jail's own: nobody else's can be opened or typed into")
	c.stage(plan.Step{Op: plan.OpMkdir, Path: "/dev/shm", Mode: 0o1777, Reason: "mount point of shared memory"})
	mount("tmpfs", "/dev/shm", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777,"+size, "private shared memory")
	for _, l := range [][2]string{{"/dev/ptmx", "pts/ptmx"}, {"/dev/fd", "/proc/self/fd"}, {"/dev/stdin", "/proc/self/fd/0"},
		{"/dev/stdout", "/proc/self/fd/1"}, {"/dev/stderr", "/proc/self/fd/2"}} {
		c.stage(plan.Step{Op: plan.OpSymlink, Path: l[0], Source: l[1], Reason: "name that programs rely on"})
	}
	c.stage(plan.Step{Op: plan.OpSeal, Path: "/dev", Reason: "no more devices and no files are made in /dev"})
	mount("proc", "/proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "", "shows the jail's processes and no others")
	for _, p := range []string{"acpi", "asound", "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg", "latency_stats",
		"modules", "sched_debug", "scsi", "sysrq-trigger", "timer_list", "vmallocinfo"} {
		c.hide("/proc/"+p, "tells about the host's Linux, or acts on it", false, false)
	}
	for _, p := range []string{"bus", "fs", "irq", "sys"} {
		c.stage(plan.Step{Op: plan.OpRestrict, Path: "/proc/" + p, Flags: unix.MOUNT_ATTR_RDONLY, Optional: true, Reason: "settings of the host's Linux"})
	}
	c.stage(plan.Step{Op: plan.OpDetach, Reason: "lets go of the host's root, now that proc is mounted: Linux allows a new proc only beside an old one in view"})
	mount("tmpfs", "/sys", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k", "no devices, no kernel objects")
	for _, a := range c.deferred {
		if strings.HasPrefix(a.step.Path, "/sys/") {
			c.attach(a)
		}
	}
	c.stage(plan.Step{Op: plan.OpSeal, Path: "/sys", Reason: "nothing more is made in /sys"})
}

func (c *compiler) hide(path, reason string, room, inside bool) {
	// To be passed through and not to be listed: an empty list would be an answer.
	flags, mode := uint64(unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC), "111"
	if !room {
		flags |= unix.MS_RDONLY
	} else {
		mode = "755" // until it is sealed
	}
	c.stage(plan.Step{Op: plan.OpHide, Path: path, Flags: flags, Data: "mode=" + mode + ",size=64k", NoLinks: inside, Optional: !inside, Reason: reason})
}

// guard puts a copy of the tree at a path over itself. What lies outside of the
// places that a session may write can be absent, or out of the user's reach.
func (c *compiler) guard(g Guard) {
	var flags uint64
	if g.ReadOnly {
		flags |= unix.MOUNT_ATTR_RDONLY
	}
	if g.NoExec {
		flags |= unix.MOUNT_ATTR_NOEXEC
	}
	c.stage(plan.Step{Op: plan.OpRestrict, Path: g.Path, Flags: flags, NoLinks: true, Optional: !g.Inside, Reason: g.Reason})
}

// unlisted could be executed but for the list.
const unlisted = "/run/cellblock/unlisted"

// cover makes private directories, then attaches, guards and hides from the root
// downwards: a hidden path within a bind is covered, and a bind below a hidden
// path is seen. Files come last, for they may lie in either.
func (c *compiler) cover() {
	for _, d := range c.spec.Dirs {
		c.stage(plan.Step{Op: plan.OpMkdir, Path: d.Path, Mode: d.Mode, Reason: d.Reason})
	}
	for _, l := range c.spec.Links {
		if c.spec.Listed {
			c.stage(plan.Step{Op: plan.OpSymlink, Path: l.Path, Source: l.Target, Optional: true, Mkdir: true, Reason: l.Reason})
		}
	}
	type layer struct {
		path string
		put  func()
	}
	var layers []layer
	var sealed []string
	for _, a := range c.deferred {
		if strings.HasPrefix(a.step.Reason, "bind: ") {
			layers = append(layers, layer{a.step.Path, func() { c.attach(a) }})
		}
	}
	for _, g := range c.spec.Guards {
		layers = append(layers, layer{g.Path, func() { c.guard(g) }})
	}
	for _, h := range c.spec.Hide {
		room := false
		for _, b := range c.spec.Binds {
			room = room || (b.Target != h.Path && below(b.Target, h.Path))
		}
		if room {
			sealed = append(sealed, h.Path)
		}
		layers = append(layers, layer{h.Path, func() { c.hide(h.Path, h.Reason, room, h.Inside) }})
	}
	sort.SliceStable(layers, func(i, j int) bool {
		return strings.Count(layers[i].path, "/") < strings.Count(layers[j].path, "/")
	})
	for _, l := range layers {
		l.put()
	}
	for _, f := range c.spec.Files {
		c.stage(plan.Step{Op: plan.OpFile, Path: f.Path, Data: string(f.Content), Optional: f.Optional, Reason: f.Reason})
	}
	for _, p := range sealed {
		c.stage(plan.Step{Op: plan.OpSeal, Path: p, Mode: 0o111, Optional: true, Reason: "the cover takes nothing more, and is not listed"})
	}
	if c.spec.ExecListed {
		c.stage(plan.Step{Op: plan.OpFile, Path: unlisted, Data: "no program", Mode: 0o555, Reason: "what the witness tries to execute"})
	}
	if c.spec.Listed {
		c.stage(plan.Step{Op: plan.OpSeal, Path: "/", Reason: "nothing more is made in the tree"})
	}
	if c.spec.Tree == TreeReadOnly && c.host.LandlockABI == 0 {
		c.stage(plan.Step{Op: plan.OpSeal, Path: "/run", Reason: "what Landlock would refuse there"})
	}
}
