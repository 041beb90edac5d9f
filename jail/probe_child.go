package jail

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// act is one system call of a trial: its number and arguments. Trials are
// lists of these, since a child between clone and its end may run nothing of
// Go's runtime: no allocation, no growing stack, no scheduler.
type act struct {
	nr   uintptr
	args [6]uintptr
}

// previous stands, as an argument, for what the act before returned.
const previous = ^uintptr(0) - 1

// trial holds a list of acts and the memory that they point to.
type trial struct {
	acts []act
	keep []any
}

// cstring keeps a NUL-terminated copy of s alive for the trial.
func (t *trial) cstring(s string) uintptr {
	p := append([]byte(s), 0)
	t.keep = append(t.keep, p)
	return uintptr(unsafe.Pointer(&p[0]))
}

func (t *trial) call(nr uintptr, args ...uintptr) {
	a := act{nr: nr}
	copy(a.args[:], args)
	t.acts = append(t.acts, a)
}

// writeFile adds opening a file and writing a text to it in one piece.
func (t *trial) writeFile(path, text string) {
	t.call(unix.SYS_OPENAT, at(unix.AT_FDCWD), t.cstring(path), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	t.call(unix.SYS_WRITE, previous, t.cstring(text), uintptr(len(text)))
}

func (t *trial) mount(source, target, fsType string, flags uintptr, data string) {
	t.call(unix.SYS_MOUNT, t.cstring(source), t.cstring(target), t.cstring(fsType), flags, t.cstring(data))
}

func (t *trial) mkdir(path string) {
	t.call(unix.SYS_MKDIRAT, at(unix.AT_FDCWD), t.cstring(path), 0o700)
}

// at widens a negative descriptor constant.
func at(fd int) uintptr { return uintptr(fd) }

// errTrialDied means that the child ended without a report.
var errTrialDied = errors.New("the trial's process died")

// run carries the acts out in a child made with these clone flags and returns
// the errno of the first that failed. The child ends with its last act.
func (t *trial) run(flags uintptr) error {
	pid, err := t.start(flags)
	if err != nil {
		return err
	}
	return wait(pid)
}

// start clones the child and returns its pid.
func (t *trial) start(flags uintptr) (int, error) {
	unlock := lockThread()
	defer unlock()
	// All signals stay blocked in the child: Go's handlers must not run there.
	full := ^uint64(0)
	var old uint64
	if errno := sigmask(&full, &old); errno != 0 {
		return 0, errno
	}
	pid, _, errno := forkTrial(flags|uintptr(unix.SIGCHLD), t.acts)
	restored := sigmask(&old, nil)
	runtime.KeepAlive(t)
	if errno != 0 {
		return 0, errno
	}
	if restored != 0 {
		return 0, restored
	}
	return int(pid), nil
}

// wait reaps a trial's child and turns its exit status into an error.
func wait(pid int) error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return fmt.Errorf("wait4: %w", err)
		}
	}
	switch {
	case !status.Exited():
		return errTrialDied
	case status.ExitStatus() != 0:
		return unix.Errno(status.ExitStatus())
	}
	return nil
}

// pointer gives the address of a buffer that the trial keeps.
func pointer(buffer []byte) uintptr { return uintptr(unsafe.Pointer(&buffer[0])) }

func sigmask(set, old *uint64) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	return errno
}

// forkTrial clones and, in the child, makes one raw call after another; the
// child's exit status is the errno of the first that fails. The child has a
// copy of the launcher's memory and must touch nothing but acts.
//
//go:nosplit
//go:norace
//go:noinline
func forkTrial(flags uintptr, acts []act) (pid, last uintptr, errno unix.Errno) {
	pid, _, errno = unix.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, 0, errno
	}
	for i := range acts {
		a := &acts[i]
		for j := range a.args {
			if a.args[j] == previous {
				a.args[j] = last
			}
		}
		last, _, errno = unix.RawSyscall6(a.nr, a.args[0], a.args[1], a.args[2], a.args[3], a.args[4], a.args[5])
		if errno != 0 {
			break
		}
	}
	for {
		_, _, _ = unix.RawSyscall6(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0, 0, 0, 0)
	}
}

// actionAvailable asks seccomp whether this Linux knows a filter's action.
func actionAvailable(action uint32) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return errno
}
