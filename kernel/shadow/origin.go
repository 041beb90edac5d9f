package shadow

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// identity is what is noted of a file of the host, to know it again and to see
// whether somebody has changed it. Times are in nanoseconds.
type identity struct {
	dev, ino       uint64
	mode, uid, gid uint32
	size           int64
	mtime, ctime   int64
	several        bool // it has more than one name
}

func identityOf(s *unix.Stat_t) *identity {
	return &identity{dev: s.Dev, ino: s.Ino, several: s.Nlink > 1, mode: s.Mode, uid: s.Uid, gid: s.Gid, size: s.Size,
		mtime: s.Mtim.Nano(), ctime: s.Ctim.Nano()}
}

// same reports whether now is the file that was noted, as it was then. Its time of
// change does not count: giving a file another name moves that.
func (i *identity) same(now *unix.Stat_t) bool {
	return i.dev == now.Dev && i.ino == now.Ino && i.mode == now.Mode && i.uid == now.Uid && i.gid == now.Gid &&
		(i.isDir() || i.size == now.Size && i.mtime == now.Mtim.Nano())
}

func (i *identity) isDir() bool { return i.mode&unix.S_IFMT == unix.S_IFDIR }

// origin is the mark that overlayfs leaves at a copy of a file of the host: the
// file handle of what it copied. The mark is empty where the file system has none
// to give, and missing at copies of files with several names.
type origin struct {
	kind   int32
	handle string
}

// originOf reads the mark. ok is false where there is none.
func (l *Layer) originOf(at int, name string) (o origin, ok bool) {
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(procPath(at, name), l.marks()+"origin", buf)
	if err != nil {
		return o, false
	}
	return readOrigin(buf[:n]), true
}

// readOrigin reads the mark's bytes: struct ovl_fb, fs/overlayfs/overlayfs.h: version,
// magic, length, flags, type of the handle, UUID of the file system, the handle.
func readOrigin(mark []byte) origin {
	const head, magic = 21, 0xfb
	if len(mark) <= head || mark[1] != magic {
		return origin{}
	}
	return origin{int32(mark[4]), string(mark[head:])}
}

// handleOf is the handle of a file of the host, to compare with a mark. The zero
// origin where the file system gives none.
func handleOf(at int, name string) origin {
	h, _, err := unix.NameToHandleAt(at, name, 0)
	if err != nil || h.Size() == 0 {
		return origin{}
	}
	// overlayfs writes a handle in words of four bytes.
	text := h.Bytes()
	for len(text)%4 != 0 {
		text = append(text, 0)
	}
	return origin{h.Type(), string(text)}
}

func procPath(at int, name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", at, name) }

// attributes are the extended attributes of a file that a layer carries: the user's
// own and access lists. What overlayfs keeps for itself is none of them, and
// neither is what gives rights (security.*).
func attributes(at int, name string) (map[string]string, error) {
	p := procPath(at, name)
	size, err := unix.Llistxattr(p, nil)
	if err != nil || size == 0 {
		if errors.Is(err, unix.ENOTSUP) {
			err = nil
		}
		return nil, err
	}
	list := make([]byte, size+4096)
	if size, err = unix.Llistxattr(p, list); err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, key := range splitNames(list[:size]) {
		if !carriedAttribute(key) {
			continue
		}
		value := make([]byte, 65536) // XATTR_SIZE_MAX, xattr(7)
		n, err := unix.Lgetxattr(p, key, value)
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", key, err)
		}
		found[key] = string(value[:n])
	}
	return found, nil
}

func splitNames(list []byte) (names []string) {
	start := 0
	for i, b := range list {
		if b == 0 {
			names, start = append(names, string(list[start:i])), i+1
		}
	}
	return names
}

const (
	accessList  = "system.posix_acl_access"
	defaultList = "system.posix_acl_default"
)

func carriedAttribute(key string) bool {
	if key == accessList || key == defaultList {
		return true
	}
	const user, overlay = "user.", "user.overlay."
	return len(key) > len(user) && key[:len(user)] == user && (len(key) < len(overlay) || key[:len(overlay)] != overlay)
}

// setAttributes makes the attributes of an open file the wanted ones.
func setAttributes(fd int, want map[string]string) error {
	for _, key := range []string{accessList, defaultList} {
		// A directory's list may have come to what was made in it.
		if _, wanted := want[key]; !wanted {
			if err := unix.Fremovexattr(fd, key); err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
				return fmt.Errorf("attribute %q: %w", key, err)
			}
		}
	}
	for key, value := range want {
		if err := unix.Fsetxattr(fd, key, []byte(value), 0); err != nil {
			return fmt.Errorf("attribute %q: %w", key, err)
		}
	}
	return nil
}

// fileKey names a file of the host whatever its path is.
func fileKey(dev, ino uint64) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], dev)
	binary.BigEndian.PutUint64(b[8:], ino)
	return fmt.Sprintf("%x", b)
}
