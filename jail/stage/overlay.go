package stage

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// overlay makes an overlay in the user namespace: its marks are attributes of the
// user's own kind (userxattr, Linux 5.11), and a directory cannot be renamed
// without a copy. Where it cannot be had, the read-only tree stays in view there.
func (s *stage) overlay(st *plan.Step) error {
	fd, err := s.newOverlay(st)
	if err != nil {
		if st.Optional && !isErrno(err, syscall.ENOMEM, syscall.ENFILE, syscall.EMFILE) {
			return nil
		}
		return err
	}
	s.slots[st.Slot] = fd
	return nil
}

func (s *stage) newOverlay(st *plan.Step) (int, error) {
	const setFlag, setString, create = 0, 1, 6 // FSCONFIG_*, linux/mount.h
	lower, err := openNoLinks(st.Source)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(lower)
	layer, err := openNoLinks(st.Data)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(layer)
	fs, err := call("fsopen", "overlay", unix.SYS_FSOPEN, uintptr(unsafe.Pointer(cstr("overlay"))), unix.FSOPEN_CLOEXEC, 0, 0, 0)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(fs)
	// Paths of descriptors, since a path of the host's may hold what separates
	// layers, and since the session can read the options in its mountinfo.
	at := func(fd int) string { return "/proc/self/fd/" + utoa(uint64(fd)) }
	for _, key := range []string{"userxattr", "volatile"} {
		if _, err := call("fsconfig", st.Source, unix.SYS_FSCONFIG, uintptr(fs), setFlag, uintptr(unsafe.Pointer(cstr(key))), 0, 0); err != nil {
			return -1, err
		}
	}
	for _, o := range [][2]string{{"source", "shadow"}, {"metacopy", "off"}, {"index", "off"},
		{"lowerdir", at(lower)}, {"upperdir", at(layer) + "/upper"}, {"workdir", at(layer) + "/work"}} {
		if _, err := call("fsconfig", st.Source, unix.SYS_FSCONFIG, uintptr(fs), setString,
			uintptr(unsafe.Pointer(cstr(o[0]))), uintptr(unsafe.Pointer(cstr(o[1]))), 0); err != nil {
			return -1, err
		}
	}
	if _, err := call("fsconfig", st.Source, unix.SYS_FSCONFIG, uintptr(fs), create, 0, 0, 0); err != nil {
		return -1, err
	}
	return call("fsmount", st.Source, unix.SYS_FSMOUNT, uintptr(fs), unix.FSMOUNT_CLOEXEC, uintptr(st.Flags), 0, 0)
}

// shadowed tells what takes a change at a path: an overlay, or nothing.
func shadowed(path string) string {
	var s syscall.Statfs_t
	err := syscall.Statfs(path, &s)
	switch errno, _ := err.(syscall.Errno); {
	case err != nil:
		return outcome(errno)
	case s.Type == unix.OVERLAYFS_SUPER_MAGIC && s.Flags&unix.ST_RDONLY == 0:
		return "yes"
	case s.Flags&unix.ST_RDONLY != 0:
		return "read-only"
	}
	return "no"
}
