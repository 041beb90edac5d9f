package stage

import (
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

const atFDCWD = ^uintptr(99) // AT_FDCWD, -100

// emptyFile is what covers hidden files. It lies in the private /run.
const emptyFile = "/run/cellblock/empty"

func mount(source, target, fstype string, flags uintptr, data string) error {
	_, err := call("mount", target, syscall.SYS_MOUNT,
		uintptr(unsafe.Pointer(cstr(source))), uintptr(unsafe.Pointer(cstr(target))),
		uintptr(unsafe.Pointer(cstr(fstype))), flags, uintptr(unsafe.Pointer(cstr(data))))
	return err
}

// cloneTree is open_tree(OPEN_TREE_CLONE). With noLinks no component of the
// path may be a symbolic link: the session's owner could have swapped one in
// after the launcher looked.
func cloneTree(path string, recursive, noLinks bool) (int, error) {
	flags := uintptr(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if !noLinks {
		return call("open_tree", path, unix.SYS_OPEN_TREE, atFDCWD, uintptr(unsafe.Pointer(cstr(path))), flags, 0, 0)
	}
	at, err := openNoLinks(path)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(at)
	return call("open_tree", path, unix.SYS_OPEN_TREE, uintptr(at), uintptr(unsafe.Pointer(cstr(""))), flags|unix.AT_EMPTY_PATH, 0, 0)
}

func openNoLinks(path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	return call("openat2", path, unix.SYS_OPENAT2, atFDCWD, uintptr(unsafe.Pointer(cstr(path))),
		uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0)
}

// setAttr adds MOUNT_ATTR_* flags to the tree at fd and never takes one away:
// what the host has locked stays locked.
func setAttr(fd int, object string, flags uint64, recursive bool) error {
	attr := unix.MountAttr{Attr_set: flags, Propagation: unix.MS_PRIVATE}
	at := uintptr(unix.AT_EMPTY_PATH)
	if recursive {
		at |= unix.AT_RECURSIVE
	}
	_, err := call("mount_setattr", object, unix.SYS_MOUNT_SETATTR, uintptr(fd),
		uintptr(unsafe.Pointer(cstr(""))), at, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	return err
}

func moveMount(fd int, target string, noLinks bool) error {
	const fromEmpty, toLinks, toEmpty = unix.MOVE_MOUNT_F_EMPTY_PATH, unix.MOVE_MOUNT_T_SYMLINKS, unix.MOVE_MOUNT_T_EMPTY_PATH
	if !noLinks {
		_, err := call("move_mount", target, unix.SYS_MOVE_MOUNT, uintptr(fd), uintptr(unsafe.Pointer(cstr(""))),
			atFDCWD, uintptr(unsafe.Pointer(cstr(target))), fromEmpty|toLinks)
		return err
	}
	at, err := openNoLinks(target)
	if err != nil {
		return err
	}
	defer syscall.Close(at)
	return moveMountTo(fd, at, target)
}

// moveMountTo attaches the tree at fd to the place that is open at at.
func moveMountTo(fd, at int, object string) error {
	_, err := call("move_mount", object, unix.SYS_MOVE_MOUNT, uintptr(fd), uintptr(unsafe.Pointer(cstr(""))),
		uintptr(at), uintptr(unsafe.Pointer(cstr(""))), unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return err
}

func (s *stage) private(*plan.Step) error {
	return mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

func (s *stage) clone(st *plan.Step) error {
	fd, err := cloneTree(st.Source, st.Recursive, st.NoLinks)
	if err != nil {
		if st.Optional && isErrno(err, syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES) {
			return nil
		}
		return err
	}
	s.slots[st.Slot] = fd
	return setAttr(fd, st.Source, st.Flags, st.Recursive)
}

// root mounts the new root over the old one and pivots in place, which needs no
// scratch directory. The old root stays on top of the stack at / until detach,
// because a new proc may be mounted only where an old one is still in view.
func (s *stage) root(st *plan.Step) error {
	fd, ok := s.slots[st.Slot]
	if !ok {
		return &callError{"pivot_root", "/", syscall.EBADF}
	}
	if err := moveMount(fd, "/", false); err != nil {
		return err
	}
	if _, err := call("fchdir", "/", syscall.SYS_FCHDIR, uintptr(fd), 0, 0, 0, 0); err != nil {
		return err
	}
	_, err := call("pivot_root", "/", syscall.SYS_PIVOT_ROOT,
		uintptr(unsafe.Pointer(cstr("."))), uintptr(unsafe.Pointer(cstr("."))), 0, 0, 0)
	return err
}

func (s *stage) detach(*plan.Step) error {
	if _, err := call("umount2", "the host's root", syscall.SYS_UMOUNT2,
		uintptr(unsafe.Pointer(cstr("."))), syscall.MNT_DETACH, 0, 0, 0); err != nil {
		return err
	}
	_, err := call("chdir", "/", syscall.SYS_CHDIR, uintptr(unsafe.Pointer(cstr("/"))), 0, 0, 0, 0)
	return err
}

func (s *stage) attach(st *plan.Step) error {
	fd, ok := s.slots[st.Slot]
	if !ok {
		if st.Optional {
			return nil
		}
		return &callError{"move_mount", st.Path, syscall.EBADF}
	}
	if st.Mkdir {
		mode, err := modeOf(fd, st.Path)
		if err != nil {
			return err
		}
		if err := s.mountPoint(st.Path, mode); err != nil {
			return err
		}
	}
	err := moveMount(fd, st.Path, st.NoLinks)
	if st.Optional && isErrno(err, syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES) {
		return nil
	}
	return err
}

func (s *stage) mount(st *plan.Step) error {
	err := mount(st.FSType, st.Path, st.FSType, uintptr(st.Flags), st.Data)
	if err != nil {
		if st.Optional && isErrno(err, syscall.ENOENT, syscall.ENOTDIR) {
			return nil
		}
		return err
	}
	if st.FSType == "tmpfs" {
		return s.remember(st.Path)
	}
	return nil
}

// hide covers what is there; what is not there needs no cover. What cannot be
// reached by the stage cannot be reached by the worker, which has the same id
// and fewer rights.
func (s *stage) hide(st *plan.Step) error {
	if st.NoLinks {
		return s.hideInside(st)
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(st.Path, &stat); err != nil {
		switch err {
		case syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.ELOOP:
			return nil
		}
		return &callError{"stat", st.Path, err.(syscall.Errno)}
	}
	if stat.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		if err := mount("tmpfs", st.Path, "tmpfs", uintptr(st.Flags), st.Data); err != nil {
			return err
		}
		return s.remember(st.Path)
	}
	fd, err := cloneTree(emptyFile, false, false)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if err := setAttr(fd, st.Path, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, false); err != nil {
		return err
	}
	return moveMount(fd, st.Path, false)
}

// hideInside covers what lies where sessions write. It must be there, and its
// place is held while the cover is put on, since another session may be at work
// in the same directory.
func (s *stage) hideInside(st *plan.Step) error {
	at, err := openNoLinks(st.Path)
	if err != nil {
		return err
	}
	defer syscall.Close(at)
	mode, err := modeOf(at, st.Path)
	if err != nil {
		return err
	}
	var cover int
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		cover, err = s.newTmpfs(st.Path, st.Data, st.Flags)
	} else if cover, err = cloneTree(emptyFile, false, false); err == nil {
		defer syscall.Close(cover)
		err = setAttr(cover, st.Path, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, false)
	}
	if err != nil {
		return err
	}
	return moveMountTo(cover, at, st.Path)
}

func (s *stage) empty(st *plan.Step) error {
	fd, err := s.newTmpfs("new root", st.Data, st.Flags)
	if err != nil {
		return err
	}
	s.slots[st.Slot] = fd
	return nil
}

// newTmpfs makes a detached tmpfs (fsopen(2), fsmount(2)). Of flags those that
// MS_* and MOUNT_ATTR_* have in common mean something.
func (s *stage) newTmpfs(object, data string, flags uint64) (int, error) {
	const setString, create = 1, 6 // FSCONFIG_*, linux/mount.h
	fs, err := call("fsopen", object, unix.SYS_FSOPEN, uintptr(unsafe.Pointer(cstr("tmpfs"))), unix.FSOPEN_CLOEXEC, 0, 0, 0)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(fs)
	for option := range strings.SplitSeq(data, ",") {
		key, value, _ := strings.Cut(option, "=")
		if _, err := call("fsconfig", object, unix.SYS_FSCONFIG, uintptr(fs), setString,
			uintptr(unsafe.Pointer(cstr(key))), uintptr(unsafe.Pointer(cstr(value))), 0); err != nil {
			return -1, err
		}
	}
	if _, err := call("fsconfig", object, unix.SYS_FSCONFIG, uintptr(fs), create, 0, 0, 0); err != nil {
		return -1, err
	}
	const common = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	fd, err := call("fsmount", object, unix.SYS_FSMOUNT, uintptr(fs), unix.FSMOUNT_CLOEXEC, uintptr(flags&common), 0, 0)
	if err != nil {
		return -1, err
	}
	var stat syscall.Stat_t
	if _, err := call("fstat", object, syscall.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(&stat)), 0, 0, 0); err != nil {
		return -1, err
	}
	s.devices = append(s.devices, stat.Dev)
	return fd, nil
}

// restrict lays a copy of a tree over itself, so that the copy's attributes hold
// there and its name belongs to a mount.
func (s *stage) restrict(st *plan.Step) error {
	fd, err := cloneTree(st.Path, true, st.NoLinks)
	if err != nil {
		if st.Optional && isErrno(err, syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES) {
			return nil
		}
		return err
	}
	defer syscall.Close(fd)
	if err := setAttr(fd, st.Path, st.Flags, true); err != nil {
		return err
	}
	return moveMount(fd, st.Path, st.NoLinks)
}

// seal makes the topmost mount at a path read-only, once everything that had to
// be made in it is there.
func (s *stage) seal(st *plan.Step) error {
	fd, err := call("open_tree", st.Path, unix.SYS_OPEN_TREE, atFDCWD,
		uintptr(unsafe.Pointer(cstr(st.Path))), unix.OPEN_TREE_CLOEXEC, 0, 0)
	if err != nil {
		if st.Optional && isErrno(err, syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.ELOOP) {
			return nil
		}
		return err
	}
	defer syscall.Close(fd)
	if st.Optional && !s.privateFD(fd) {
		// The path to hide was a file: its cover is read-only already.
		return nil
	}
	if st.Mode != 0 {
		if _, err := call("chmod", st.Path, syscall.SYS_FCHMODAT, atFDCWD, uintptr(unsafe.Pointer(cstr(st.Path))), uintptr(st.Mode), 0, 0); err != nil {
			return err
		}
	}
	return setAttr(fd, st.Path, unix.MOUNT_ATTR_RDONLY, false)
}

func modeOf(fd int, object string) (uint32, error) {
	var stat syscall.Stat_t
	if _, err := call("fstat", object, syscall.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(&stat)), 0, 0, 0); err != nil {
		return 0, err
	}
	return stat.Mode, nil
}

// remember notes the device of a private file system, so that nothing is ever
// made in one that is not.
func (s *stage) remember(path string) error {
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		return &callError{"stat", path, err.(syscall.Errno)}
	}
	s.devices = append(s.devices, stat.Dev)
	return nil
}

func (s *stage) isPrivate(dev uint64) bool {
	for _, d := range s.devices {
		if d == dev {
			return true
		}
	}
	return false
}

func (s *stage) privateFD(fd int) bool {
	var stat syscall.Stat_t
	return syscall.Fstat(fd, &stat) == nil && s.isPrivate(stat.Dev)
}

// mountPoint makes a directory, or an empty file for anything else, to mount
// on; parents too. All of it must come to lie in a private file system.
func (s *stage) mountPoint(path string, mode uint32) error {
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		return s.mkdirAll(path, 0o755)
	}
	if err := s.mkdirAll(path[:max(1, strings.LastIndexByte(path, '/'))], 0o755); err != nil {
		return err
	}
	if syscall.Access(path, 0) == nil {
		return nil
	}
	return s.create(path, "", 0o444)
}

func (s *stage) mkdirAll(path string, mode uint32) error {
	var stat syscall.Stat_t
	err := syscall.Stat(path, &stat)
	if err == nil {
		return nil
	}
	if err != syscall.ENOENT || path == "/" || path == "" {
		return &callError{"stat", path, err.(syscall.Errno)}
	}
	parent := path[:max(1, strings.LastIndexByte(path, '/'))]
	if err := s.mkdirAll(parent, 0o755); err != nil {
		return err
	}
	if err := s.mustBePrivate(parent); err != nil {
		return err
	}
	_, err = call("mkdir", path, syscall.SYS_MKDIRAT, atFDCWD, uintptr(unsafe.Pointer(cstr(path))), uintptr(mode), 0, 0)
	return err
}

func (s *stage) mustBePrivate(dir string) error {
	var stat syscall.Stat_t
	if err := syscall.Stat(dir, &stat); err != nil {
		return &callError{"stat", dir, err.(syscall.Errno)}
	}
	if !s.isPrivate(stat.Dev) {
		// EXDEV: the host's file system, where the jail makes nothing.
		return &callError{"mkdir", dir, syscall.EXDEV}
	}
	return nil
}

func (s *stage) mkdir(st *plan.Step) error {
	if err := s.mkdirAll(st.Path, st.Mode); err != nil {
		return err
	}
	// The umask of the launcher must not decide about the jail's modes.
	_, err := call("chmod", st.Path, syscall.SYS_FCHMODAT, atFDCWD, uintptr(unsafe.Pointer(cstr(st.Path))), uintptr(st.Mode), 0, 0)
	return err
}

func (s *stage) symlink(st *plan.Step) error {
	if st.Mkdir {
		if err := s.mkdirAll(st.Path[:max(1, strings.LastIndexByte(st.Path, '/'))], 0o755); err != nil {
			return err
		}
	}
	_, err := call("symlink", st.Path, syscall.SYS_SYMLINKAT, uintptr(unsafe.Pointer(cstr(st.Source))),
		atFDCWD, uintptr(unsafe.Pointer(cstr(st.Path))), 0, 0)
	return err
}

func (s *stage) create(path, content string, mode uint32) error {
	fd, err := call("open", path, syscall.SYS_OPENAT, atFDCWD, uintptr(unsafe.Pointer(cstr(path))),
		syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, uintptr(mode), 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	for len(content) > 0 {
		b := []byte(content)
		n, err := call("write", path, syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0)
		if err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}

// file puts content over an existing file by a read-only mount, or makes it
// where its place is in a private file system. A symbolic link at the path is
// followed, also when its target is gone with the host's /run.
func (s *stage) file(st *plan.Step) error {
	path, mode := st.Path, st.Mode
	if mode == 0 {
		mode = 0o444
	}
	var stat syscall.Stat_t
	for hops := 0; syscall.Stat(path, &stat) != nil && hops < 8; hops++ {
		buf := make([]byte, 4096)
		n, err := syscall.Readlink(path, buf)
		if err != nil {
			break
		}
		if link := string(buf[:n]); strings.HasPrefix(link, "/") {
			path = link
		} else {
			path = path[:strings.LastIndexByte(path, '/')+1] + link
		}
	}
	if syscall.Stat(path, &stat) != nil {
		parent := path[:max(1, strings.LastIndexByte(path, '/'))]
		err := s.mkdirAll(parent, 0o755)
		if err == nil {
			err = s.mustBePrivate(parent)
		}
		if err != nil {
			if st.Optional && isErrno(err, syscall.EXDEV, syscall.ENOTDIR, syscall.EACCES) {
				return nil
			}
			return err
		}
		return s.create(path, st.Data, mode)
	}
	const scratch = "/run/cellblock/file"
	if err := s.create(scratch, st.Data, mode); err != nil {
		return err
	}
	fd, err := cloneTree(scratch, false, false)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if err := setAttr(fd, path, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, false); err != nil {
		return err
	}
	if err := moveMount(fd, path, false); err != nil {
		return err
	}
	_, err = call("unlink", scratch, syscall.SYS_UNLINKAT, atFDCWD, uintptr(unsafe.Pointer(cstr(scratch))), 0, 0, 0)
	return err
}
