package observe

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxPath is Linux's PATH_MAX, with the final NUL.
const maxPath = 4096

var pageSize = uint64(os.Getpagesize())

// text reads a NUL-terminated string of a stopped thread. A longer one than Linux
// takes is an error, as the call itself will be.
func text(tid int, at uint64) (string, error) {
	var most [192]byte
	for buffer := most[:0]; len(buffer) < maxPath; {
		n := len(buffer)
		// Up to the end of the page: what lies behind may not be there.
		size := min(int(pageSize-(at+uint64(n))%pageSize), maxPath-n, max(len(most), n))
		buffer = slices.Grow(buffer, size)[:n+size]
		got, err := peek(tid, at+uint64(n), buffer[n:])
		if err != nil {
			return "", err
		}
		buffer = buffer[:n+got]
		if end := bytes.IndexByte(buffer[n:], 0); end >= 0 {
			return string(buffer[:n+end]), nil
		}
	}
	return "", unix.ENAMETOOLONG
}

// memory reads n bytes of a stopped thread.
func memory(tid int, at uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := peek(tid, at, b)
	if err == nil && got < n {
		err = unix.EFAULT
	}
	return b, err
}

func peek(tid int, at uint64, to []byte) (int, error) {
	n, err := unix.ProcessVMReadv(tid, []unix.Iovec{vector(to)}, []unix.RemoteIovec{{Base: uintptr(at), Len: len(to)}}, 0)
	if err == unix.EFAULT {
		n, err = peekForced(tid, at, to)
	}
	if err == nil && n == 0 {
		err = unix.EFAULT
	}
	return n, err
}

// peekForced reads what process_vm_readv(2) has no right to and the call itself reads:
// memory that is to be written alone, which processors let everybody read.
func peekForced(tid int, at uint64, to []byte) (int, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(tid)+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, unix.EFAULT
	}
	defer unix.Close(fd)
	n, err := unix.Pread(fd, to, int64(at))
	if err != nil {
		return 0, unix.EFAULT // nothing is there: the call will fail with this as well
	}
	return n, nil
}

func vector(b []byte) unix.Iovec {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	return v
}
