package shadow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// beneath are the flags of every look into a layer, and at the host on its behalf:
// no symbolic link is followed, in the middle of a path or at its end, and no other
// file system is entered from a layer.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openDir opens a directory below another; "." is the directory itself.
func openDir(at int, name string, more uint64) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: beneath | more}
	for {
		fd, err := unix.Openat2(at, name, how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// openRegular opens a regular file for reading. A FIFO would wait for a writer, and
// a device acts when it is opened: O_PATH opens neither, and what is there is then
// known before it is opened for good.
func openRegular(at int, name string) (*os.File, error) {
	fd, err := unix.Openat2(at, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: beneath})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("no longer a regular file")
	}
	file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	var wrapped *fs.PathError
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return file, err
}

// hostDir opens a directory of the host by its path, through no symbolic link.
func hostDir(p string) (int, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return walkDir(root, relative(p), 0)
}

// walkDir is openDir for a path of any length: Linux takes at most 4095 bytes at
// once, and a session makes deeper trees, step by step.
func walkDir(at int, name string, more uint64) (int, error) {
	const most = 4000
	if len(name) <= most {
		return openDir(at, name, more)
	}
	cut := strings.LastIndexByte(name[:most], '/')
	if cut < 0 {
		return -1, unix.ENAMETOOLONG
	}
	fd, err := openDir(at, name[:cut], more)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return walkDir(fd, name[cut+1:], more)
}

// relative is a clean absolute path as a name beneath the root.
func relative(p string) string {
	if p = strings.TrimPrefix(path.Clean(p), "/"); p == "" {
		return "."
	}
	return p
}

func lstat(at int, name string) (*unix.Stat_t, error) {
	var s unix.Stat_t
	if err := unix.Fstatat(at, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	return &s, nil
}

// names lists a directory that is open, in order.
func names(fd int) ([]string, error) {
	again, err := openDir(fd, ".", 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(again), "directory")
	defer dir.Close()
	return dir.Readdirnames(-1)
}

func typeOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "link"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

// fileOf describes what is at a name.
func fileOf(at int, name string, s *unix.Stat_t) *File {
	f := &File{Type: typeOf(s.Mode), Mode: s.Mode & 0o7777, UID: s.Uid, GID: s.Gid}
	switch f.Type {
	case "file":
		f.Size = s.Size
	case "link":
		buf := make([]byte, 4097)
		if n, err := unix.Readlinkat(at, name, buf); err == nil {
			f.Target = string(buf[:n])
		}
	}
	return f
}

// isWhiteout reports whether a file of a layer says that nothing is there.
func isWhiteout(s *unix.Stat_t) bool {
	return s.Mode&unix.S_IFMT == unix.S_IFCHR && s.Rdev == 0
}

// Where overlayfs keeps its marks: in the attributes of root's own, or of the user's with
// its option userxattr. Under the first a session writes what it likes into the second.
const (
	rootMarks = "trusted.overlay."
	userMarks = "user.overlay."
)

// marks is where the layer's overlays have theirs. One that covers the root has a
// privileged launcher: nobody else can.
func (l *Layer) marks() string {
	if l.Trusted || slices.ContainsFunc(l.Trees, func(t Tree) bool { return t.Path == "/" }) {
		return rootMarks
	}
	return userMarks
}

// mark reads a mark of overlayfs at a directory or file of the layer, by its name
// without a namespace; empty for none. No mark is longer than a path.
func (l *Layer) mark(fd int, name string) (string, bool) {
	buf := make([]byte, 4097)
	n, err := unix.Fgetxattr(fd, l.marks()+name, buf)
	if err != nil {
		return "", false
	}
	return string(buf[:n]), true
}
