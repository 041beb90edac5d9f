package kernel

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// startDescriptors is more than a start of a session needs of the launcher at once, and
// than a session keeps. They are asked for before anything is made: a start that is short
// of one half-way takes what it could not open for something that the host lacks.
const startDescriptors = 48

// roomForStart looks whether this process may open enough files for a start.
func roomForStart() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	most := int(min(limit.Cur, 1<<30))
	// Linux gives out the lowest numbers first: where none this high is taken, all above
	// are free.
	if high := most - startDescriptors; high > 2 {
		if fd, err := unix.FcntlInt(uintptr(2), unix.F_DUPFD_CLOEXEC, high); err == nil {
			unix.Close(fd)
			if fd == high {
				return nil
			}
		}
	}
	var taken []int
	defer func() {
		for _, fd := range taken {
			unix.Close(fd)
		}
	}()
	for len(taken) < startDescriptors {
		fd, err := unix.FcntlInt(uintptr(2), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return fmt.Errorf("a session needs up to %d open files of this process, which has %d left: %w", startDescriptors, len(taken), err)
		}
		taken = append(taken, fd)
	}
	return nil
}

// short adds to an error that comes of something which has run out what to do about it.
func short(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		var limit syscall.Rlimit
		_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) // 0 says as much
		return fmt.Errorf("%w: end sessions, or raise the limit of %d (ulimit -n, or LimitNOFILE= of a systemd unit)", err, limit.Cur)
	case errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%w: end programs, or raise sysctl fs.file-max", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: make room there (what sessions need themselves is in TMPDIR, now %s)", err, os.TempDir())
	case errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf("%w: end programs, or give this service more (MemoryMax= of a systemd unit)", err)
	}
	return err
}
