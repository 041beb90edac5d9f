package observe

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mappingQuery is struct procmap_query (linux/fs.h), Linux 6.11.
type mappingQuery struct {
	size, flags, at                      uint64
	begin, end, kind, page, offset, node uint64
	major, minor, nameSize, buildSize    uint32
	name, build                          uint64
}

const (
	ioctlMapping     = 0xc0686611
	mappingExecute   = 0x04
	mappingNextFiles = 0x10 | 0x20 // the one at an address or the next, of files only
)

// nextMapping is the first mapping of a file that ends behind an address; ENOENT where
// there is none.
func nextMapping(maps *os.File, at uint64) (mapping, error) {
	name := make([]byte, maxPath+len(removed))
	var pinned runtime.Pinner // its address stands in the query as a number
	pinned.Pin(&name[0])
	defer pinned.Unpin()
	q := mappingQuery{flags: mappingNextFiles, at: at, nameSize: uint32(len(name)), name: addressOf(name)}
	q.size = uint64(unsafe.Sizeof(q))
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, maps.Fd(), ioctlMapping, uintptr(unsafe.Pointer(&q)))
	switch errno {
	case 0:
		text := name[:max(min(int(q.nameSize), len(name))-1, 0)] // the NUL counts
		return mapping{q.begin, q.end, q.kind&mappingExecute != 0, unix.Mkdev(q.major, q.minor), q.node, string(text)}, nil
	case unix.ENOTTY:
		return readMapping(maps, at)
	}
	return mapping{}, errno
}

// addressOf is where bytes of ours lie.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
