package observe

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Listener answers the stopped calls of one jail.
type Listener struct {
	fd   int
	tree tree

	mu   sync.Mutex // held from a call's arrival until it goes on
	told func(Event)
	seen map[string]bool // paths of the calls before Begin
	err  error

	stop int // an eventfd: readable once nobody wants to hear any more
	done chan struct{}

	stopping sync.Once
}

// Listen begins to answer. It owns fd, the listener of a filter made of [Program],
// and root, a descriptor of the jail's root directory. Until Begin every call goes
// on untold.
func Listen(fd, root int) (*Listener, error) {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(fd)
		unix.Close(root)
		return nil, fmt.Errorf("observer: eventfd: %w", err)
	}
	l := &Listener{fd: fd, tree: tree{root}, seen: map[string]bool{}, stop: stop, done: make(chan struct{})}
	go l.loop()
	return l, nil
}

// Begin has each call told to told from now on, before it goes on; nil for nobody.
// told is called from one goroutine and delays who called.
func (l *Listener) Begin(told func(Event)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told, l.seen = told, nil
}

// Seen says whether a call before Begin has named a path.
func (l *Listener) Seen(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[path]
}

// Settle returns when everything has been told that went on before.
func (l *Listener) Settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

// Err says why the listener ended before Stop; nil when it did not.
func (l *Listener) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Stop ends the listener. Calls that it would have heard of fail with ENOSYS from
// then on.
func (l *Listener) Stop() {
	l.stopping.Do(func() {
		one := [8]byte{0: 1}
		_, _ = unix.Write(l.stop, one[:]) // an eventfd takes it
		<-l.done
		unix.Close(l.stop)
	})
}

// Requests of a listener (linux/seccomp.h), whose sizes are in the number.
const (
	ioctlReceive  = 0xc0502100
	ioctlSend     = 0xc0182101
	ioctlValid    = 0x40082102
	ioctlSetFlags = 0x40082104
	syncWakeUp    = 1 // SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6
)

// notification is struct seccomp_notif.
type notification struct {
	id          uint64
	tid         uint32
	flags       uint32
	nr          int32
	arch        uint32
	instruction uint64
	args        [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// ioctl is only asked for what is there, so that it never waits: a call that has
// been told of counts as told of, also when its thread is killed (ENOENT).
func (l *Listener) ioctl(request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(l.fd), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}

func (l *Listener) loop() {
	// Both sides take turns: on one processor they need not wake another. Where
	// Linux does not know it, it is a little slower.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(l.fd), ioctlSetFlags, syncWakeUp)
	err := l.serve()
	l.mu.Lock()
	l.err = err
	unix.Close(l.fd)
	unix.Close(l.tree.root)
	l.mu.Unlock()
	close(l.done)
}

func (l *Listener) serve() error {
	ready := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}, {Fd: int32(l.stop), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(ready, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("observer: poll: %w", err)
		}
		switch {
		case ready[1].Revents != 0:
			return nil
		case ready[0].Revents&unix.POLLIN != 0:
			if err := l.one(); err != nil {
				return fmt.Errorf("observer: %w", err)
			}
		case ready[0].Revents != 0:
			return nil // no process has the filter any more
		}
	}
}

// one answers one call. That of a thread which was killed meanwhile has gone (ENOENT).
func (l *Listener) one() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n notification
	switch err := l.ioctl(ioctlReceive, unsafe.Pointer(&n)); err {
	case nil:
		return l.answer(&n)
	case unix.ENOENT, unix.EINTR:
		return nil
	default:
		return err
	}
}

// answer looks at a call, tells of it and lets it go on, or refuses it for who was told. The lock is held.
func (l *Listener) answer(n *notification) error {
	reply := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if event, ok := l.look(n); ok {
		event.refuse = func() { reply = response{id: n.id, err: -int32(unix.EACCES)} }
		switch {
		case l.told != nil:
			l.told(event)
		case l.seen != nil:
			for _, op := range event.Ops {
				l.seen[op.Path] = true
			}
		}
	}
	if err := l.ioctl(ioctlSend, unsafe.Pointer(&reply)); err != nil && err != unix.ENOENT {
		return err // ENOENT: it does not wait any more
	}
	return nil
}

// look reads what a call will do; false for one that will do nothing.
func (l *Listener) look(n *notification) (Event, bool) {
	if int(n.nr) < 0 || int(n.nr) >= len(byNumber) || byNumber[n.nr].read == nil {
		return Event{}, false
	}
	c := &byNumber[n.nr]
	event := Event{TID: int(n.tid), Call: c.name, tree: &l.tree}
	event.Ops = c.read(&look{tree: &l.tree, tid: event.TID, args: n.args})
	event.waits = func() bool { return l.ioctl(ioctlValid, unsafe.Pointer(&n.id)) == nil }
	return event, len(event.Ops) > 0
}
