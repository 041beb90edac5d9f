package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"cellblock/jail/mount"
)

// ProbeAll returns what Probe does and tries what only a try can tell: each
// kind of namespace, a fresh proc, overlayfs and id-mapped mounts. The trials
// run in children that change nothing on the host; they take some
// milliseconds, which only doctor and a failed start pay. The answer is kept.
func ProbeAll() Features { return probeAllOnce() }

var probeAllOnce = sync.OnceValue(probeAll)

func probeAll() Features {
	f := probe() // not Probe: its maps are shared
	f.Mounts = mountsNow(f.Kernel)
	f.tryNamespaces()
	f.tryMounts()
	f.tryIDMap()
	f.tryRootOverlay()
	return f
}

// inside begins a trial that is the owner of a new user namespace, with the
// launcher's own ids mapped to themselves, and proves that it has rights there:
// AppArmor lets the namespace be made and takes the rights away.
func inside() *trial {
	t := &trial{}
	uid, gid := os.Geteuid(), os.Getegid()
	t.writeFile("/proc/self/setgroups", "deny")
	t.writeFile("/proc/self/uid_map", fmt.Sprintf("%d %d 1", uid, uid))
	t.writeFile("/proc/self/gid_map", fmt.Sprintf("%d %d 1", gid, gid))
	return t
}

func (f *Features) tryNamespaces() {
	const base = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	t := inside()
	t.mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err := t.run(base); err != nil {
		f.Findings[UserNamespace] = userNamespaceRefusal(f.UID, err)
		for _, ns := range namespaces[1:] {
			f.set(ns.feature, Unknown, "cannot be tried without a user namespace")
		}
		return
	}
	f.set(UserNamespace, Yes, "clone(CLONE_NEWUSER), id map and a mount inside work")
	for _, ns := range namespaces[1:] {
		if err := inside().run(base | ns.flag); err != nil {
			f.set(ns.feature, No, "clone inside a user namespace: "+err.Error())
			continue
		}
		f.set(ns.feature, Yes, "clone inside a user namespace works")
	}
}

func (f *Features) tryMounts() {
	if !f.Has(UserNamespace) {
		f.set(FreshProc, Unknown, "cannot be tried without a user namespace")
		f.set(Overlay, Unknown, "cannot be tried without a user namespace")
		return // a privileged launcher needs none, and tries in its own way
	}
	const base = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	t := inside()
	t.mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	t.mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	f.tryRun(FreshProc, t, base|unix.CLONE_NEWPID, "mounting proc in new user and pid namespaces")
	if f.Privileged {
		return
	}

	t = inside()
	t.mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	t.mount("tmpfs", "/tmp", "tmpfs", 0, "")
	for _, dir := range []string{"/tmp/lower", "/tmp/upper", "/tmp/work", "/tmp/merged"} {
		t.mkdir(dir)
	}
	t.mount("overlay", "/tmp/merged", "overlay", 0, "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work,userxattr")
	f.tryRun(Overlay, t, base, "mounting overlayfs in a user namespace")
}

func (f *Features) tryRun(name Feature, t *trial, flags uintptr, what string) {
	if err := t.run(flags); err != nil {
		f.set(name, No, what+": "+err.Error())
		return
	}
	f.set(name, Yes, what+" works")
}

// tryRootOverlay makes a layer's overlay as a privileged launcher makes it: over
// detached mounts, id-mapped where the host can. An ordinary user's overlay, which
// Linux has taken for longer, tells nothing of it.
func (f *Features) tryRootOverlay() {
	if !f.Privileged {
		return
	}
	dir, err := os.MkdirTemp("", "cellblock-probe-")
	if err != nil {
		f.set(Overlay, Unknown, "no directory to try with: "+err.Error())
		return
	}
	defer os.RemoveAll(dir)
	var mapped *os.File
	if f.Has(IDMappedMount) {
		users, done, err := userNamespaceFile()
		if err != nil {
			f.set(Overlay, Unknown, "no user namespace to try with: "+err.Error())
			return
		}
		defer done()
		mapped = users
	}
	f.tryOverlayIn(dir, mapped)
}

// tryOverlayIn tries with a layer in dir.
func (f *Features) tryOverlayIn(dir string, mapped *os.File) {
	lower := filepath.Join(dir, "lower")
	for _, name := range []string{lower, filepath.Join(dir, "upper"), filepath.Join(dir, "work")} {
		if err := os.Mkdir(name, 0o700); err != nil {
			f.set(Overlay, Unknown, "no directory to try with: "+err.Error())
			return
		}
	}
	const what = "an overlay over detached mounts"
	over := mount.Overlay{Lower: lower, Layer: dir, Users: mapped}
	fd, err := over.Do()
	if errors.Is(err, mount.ErrNotMappable) {
		over.Users = nil
		fd, err = over.Do()
	}
	if err != nil {
		f.set(Overlay, No, what+": "+err.Error())
		return
	}
	_ = unix.Close(fd)
	f.set(Overlay, Yes, what+" works")
}

// tryIDMap makes a detached, id-mapped copy of each mount, and lets go of it.
func (f *Features) tryIDMap() {
	if !f.Privileged || f.Lacks(IDMappedMount) {
		return
	}
	users, done, err := userNamespaceFile()
	if err != nil {
		f.set(IDMappedMount, Unknown, "no user namespace to try with: "+err.Error())
		return
	}
	defer done()
	works := 0
	for i := range f.Mounts {
		mount := &f.Mounts[i]
		if mount.IDMap == No {
			continue
		}
		if err := idMap(mount.Path, users); err != nil {
			mount.IDMap = No
			continue
		}
		mount.IDMap = Yes
		works++
	}
	if works == 0 {
		f.set(IDMappedMount, No, "no mounted file system can be id-mapped")
		return
	}
	f.set(IDMappedMount, Yes, fmt.Sprintf("%d of %d mounts could be id-mapped", works, len(f.Mounts)))
}

func idMap(path string, users *os.File) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd()),
	})
}

// userNamespaceFile opens a user namespace that maps one id, kept alive by the
// descriptor alone.
func userNamespaceFile() (*os.File, func(), error) {
	unlock := lockThread()
	defer unlock()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	buffer := make([]byte, 1)
	t := &trial{keep: []any{buffer}}
	// The child waits until the pipe's other end is closed here.
	t.call(unix.SYS_CLOSE, uintptr(pipe[1]))
	t.call(unix.SYS_READ, uintptr(pipe[0]), pointer(buffer), 1)
	pid, err := t.start(unix.CLONE_NEWUSER)
	_ = unix.Close(pipe[0])
	if err != nil {
		_ = unix.Close(pipe[1])
		return nil, nil, err
	}
	dir := filepath.Join("/proc", fmt.Sprint(pid))
	err = os.WriteFile(filepath.Join(dir, "uid_map"), []byte("0 61184 1"), 0)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "gid_map"), []byte("0 61184 1"), 0)
	}
	var file *os.File
	if err == nil {
		file, err = os.Open(filepath.Join(dir, "ns/user"))
	}
	_ = unix.Close(pipe[1])
	if waitErr := wait(pid); err == nil && waitErr != nil {
		_ = file.Close()
		err = waitErr
	}
	if err != nil {
		return nil, nil, err
	}
	return file, func() { _ = file.Close() }, nil
}
