// Package mount makes detached copies of mount trees for a privileged launcher:
// id-mapped, so that files of one owner on disk belong to the worker's id
// inside, without a change on disk. The stage attaches them; it could not make
// them, since mapping ids needs rights over the file system itself.
//
// # Limitations
//
// Needs Linux 5.12 and a file system that supports id-mapped mounts; overlayfs
// and most network file systems do not.
package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Copy says which tree to copy and how.
type Copy struct {
	Path string
	// Attr are MOUNT_ATTR_* flags to add.
	Attr uint64
	// Recursive takes the mounts below Path too.
	Recursive bool
	// NoLinks refuses a symbolic link in any component of Path.
	NoLinks bool
	// Users is the user namespace whose map is applied; nil for none.
	Users *os.File
}

// ErrNotMappable says that the file system has no id-mapped mounts.
var ErrNotMappable = errors.New("this file system cannot be id-mapped")

// Do makes the copy. The mounts in it are private from the start: what is
// mounted on them later must never reach the host through a shared peer group.
// With Users set the error is ErrNotMappable, wrapped, where that is the cause.
func (c Copy) Do() (int, error) {
	at, path, flags := unix.AT_FDCWD, c.Path, uint(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if c.NoLinks {
		how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(unix.AT_FDCWD, c.Path, how)
		if err != nil {
			return -1, fmt.Errorf("openat2 %s: %w", c.Path, err)
		}
		defer unix.Close(fd)
		at, path, flags = fd, "", flags|unix.AT_EMPTY_PATH
	}
	set := uint(unix.AT_EMPTY_PATH)
	if c.Recursive {
		flags |= unix.AT_RECURSIVE
		set |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(at, path, flags)
	if err != nil {
		return -1, fmt.Errorf("open_tree %s: %w", c.Path, err)
	}
	attr := unix.MountAttr{Attr_set: c.Attr, Propagation: unix.MS_PRIVATE}
	if c.Users != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(c.Users.Fd())
	}
	if err := unix.MountSetattr(fd, "", set, &attr); err != nil {
		unix.Close(fd)
		if c.Users != nil && errors.Is(err, unix.EINVAL) {
			err = ErrNotMappable
		}
		return -1, fmt.Errorf("mount_setattr %s: %w", c.Path, err)
	}
	return fd, nil
}
