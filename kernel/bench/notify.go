package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The listener's request by which both sides take turns on one processor (linux/seccomp.h,
// Linux 6.6), as package observe makes it.
const (
	notifySetFlags = 0x40082104 // SECCOMP_IOCTL_NOTIF_SET_FLAGS
	notifySyncWake = 1          // SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
)

// The listener's other requests, and what they carry (seccomp_unotify(2)). Not by
// libseccomp: a launcher that is built without it measures, too.
const (
	notifyReceive  = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifySend     = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	notifyContinue = 1          // SECCOMP_USER_NOTIF_FLAG_CONTINUE
)

type notification struct {
	id         uint64
	pid, flags uint32
	data       [64]byte // struct seccomp_data
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// toldLoop is the bare loop, whose opens for writing are told of and let go on at once,
// with nothing looked at: what Linux alone takes (seccomp_unotify(2)). No observer can be
// cheaper.
type toldLoop struct {
	*loop
	stop  context.CancelFunc
	ended chan struct{}
}

// tellOfWrites has the interpreter's opens for writing told of; its value is the listener.
// The filter: is it openat(2), and is O_WRONLY among its flags?
var tellOfWrites = fmt.Sprintf(`import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
program = b"".join(struct.pack("HBBI", *i) for i in ((0x20, 0, 0, 0), (0x15, 0, 3, %d), (0x20, 0, 0, 32), (0x45, 0, 1, %d), (6, 0, 0, 0x7fc00000), (6, 0, 0, 0x7fff0000)))
code = ctypes.create_string_buffer(program)
filter = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
assert libc.prctl(%d, 1, 0, 0, 0) == 0
took = libc.syscall(%d, %d, %d, filter)
assert took >= 0, ctypes.get_errno()
`, unix.SYS_OPENAT, unix.O_WRONLY, unix.PR_SET_NO_NEW_PRIVS, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)

func startToldLoop(ctx context.Context, python string) (*toldLoop, error) {
	l, err := startLoop(python)
	if err != nil {
		return nil, err
	}
	fd, err := l.listener(ctx)
	if err != nil {
		l.end()
		return nil, err
	}
	t := &toldLoop{loop: l, ended: make(chan struct{})}
	ctx, t.stop = context.WithCancel(ctx)
	go func() {
		defer close(t.ended)
		defer unix.Close(fd)
		letAllGoOn(ctx, fd) // when it ends early the loop's calls fail, and so does the row
	}()
	return t, nil
}

// listener has the loop's calls told of, and takes its listener over.
func (l *loop) listener(ctx context.Context) (int, error) {
	if _, err := l.run(ctx, tellOfWrites); err != nil {
		return -1, err
	}
	text, err := l.run(ctx, "took")
	if err != nil {
		return -1, err
	}
	theirs, err := strconv.Atoi(text)
	if err != nil {
		return -1, err
	}
	process, err := unix.PidfdOpen(l.cmd.Process.Pid, 0)
	if err != nil {
		return -1, fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, theirs, 0)
	if err != nil {
		return -1, fmt.Errorf("pidfd_getfd: %w", err)
	}
	return fd, nil
}

func (t *toldLoop) end() {
	t.loop.end()
	t.stop()
	<-t.ended
}

// letAllGoOn answers until the process with the filter has ended, or ctx has.
func letAllGoOn(ctx context.Context, fd int) {
	_ = unix.IoctlSetInt(fd, notifySetFlags, notifySyncWake) // where Linux does not know it, it is slower
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		if n, err := unix.Poll(ready, 1000); err != nil && !errors.Is(err, unix.EINTR) {
			return
		} else if n < 1 {
			continue
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			return
		}
		var call notification
		switch err := ask(fd, notifyReceive, unsafe.Pointer(&call)); {
		case err == unix.ENOENT || err == unix.EINTR: // its process has ended, or went on with a signal
			continue
		case err != 0:
			return
		}
		goOn := response{id: call.id, flags: notifyContinue}
		if err := ask(fd, notifySend, unsafe.Pointer(&goOn)); err != 0 && err != unix.ENOENT {
			return
		}
	}
}

func ask(fd int, request uintptr, about unsafe.Pointer) unix.Errno {
	_, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(about))
	return err
}
