package kernel

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// tick is how long a flood is left to gather before it is read.
	tick = time.Millisecond
	// floodAfter is how many times in a row, none of them a tick after the one before,
	// something has come when that is a flood. Until then each write is read at once,
	// which also keeps the order of the two streams as well as two pipes can.
	floodAfter = 16
	// floodBytes is what the worker's own idea of a flood begins with (_cellblock/streams.py):
	// lines that it then holds back are asked for when nothing more comes.
	floodBytes = 16 << 10
	// block is so much, in bytes, that it did not come line by line.
	block = 32 << 10
)

// pump reads the pipes of one worker. Linux tells of each write to a pipe that was
// ever polled, and a program that prints line by line would wake the launcher for each
// line. So it is told of the next write alone (EPOLLONESHOT), and asks again when it
// has read; in a flood it looks once a tick instead.
type pump struct {
	out    *output
	poll   *os.File // the epoll instance, which itself is in Go's poller
	asleep []int    // descriptors that have told of something and not been asked again
	ended  chan struct{}
}

func newPump(o *output) (*pump, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("output: epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else Go would not wait for it
		unix.Close(fd)
		return nil, fmt.Errorf("output: epoll: %w", err)
	}
	p := &pump{out: o, poll: os.NewFile(uintptr(fd), "output"), ended: make(chan struct{})}
	go p.run()
	return p, nil
}

// end returns when nothing is read any more.
func (p *pump) end() {
	if p != nil {
		p.poll.Close()
		<-p.ended
	}
}

func (p *pump) control(op, fd int) error {
	conn, err := p.poll.SyscallConn()
	if err != nil {
		return err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	var failed error
	if err := conn.Control(func(poll uintptr) { failed = unix.EpollCtl(int(poll), op, fd, &event) }); err != nil {
		return err
	}
	return os.NewSyscallError("epoll_ctl", failed)
}

func (p *pump) add(fd int) error { return p.control(unix.EPOLL_CTL_ADD, fd) }

func (p *pump) remove(fd int) { _ = p.control(unix.EPOLL_CTL_DEL, fd) } // it is closed next

// run reads until the poll is closed.
func (p *pump) run() {
	defer close(p.ended)
	conn, err := p.poll.SyscallConn()
	if err != nil {
		return
	}
	inRow, last := 0, time.Time{}
	for {
		// What is taken in the wait itself would hold up a close.
		if err := conn.Read(func(poll uintptr) bool { return p.told(int(poll)) }); err != nil {
			return
		}
		size := p.take()
		if now := time.Now(); now.Sub(last) > tick {
			inRow, last = 0, now
		} else {
			inRow, last = inRow+1, now
		}
		for size > 0 && (inRow >= floodAfter || p.out.flood()) {
			size = p.more(conn, size)
			if size == 0 {
				inRow = 0
				p.out.quiet()
			}
		}
		p.again()
	}
}

// more reads what comes within a tick of a flood, which has just brought size bytes.
// Blocks are read as they come, while they are in the processor's cache; lines are left
// to gather.
func (p *pump) more(conn syscall.RawConn, size int) int {
	if size < block {
		time.Sleep(tick)
		_ = conn.Control(func(poll uintptr) { p.told(int(poll)) }) // the other pipes have their turn, too
		return p.take()
	}
	p.again()
	_ = p.poll.SetReadDeadline(time.Now().Add(tick)) // the wait itself fails when it is closed
	_ = conn.Read(func(poll uintptr) bool { return p.told(int(poll)) })
	_ = p.poll.SetReadDeadline(time.Time{})
	return p.take()
}

// told notes which pipes have something, or nobody who writes; false for none.
func (p *pump) told(poll int) bool {
	var events [8]unix.EpollEvent
	for {
		n, err := unix.EpollWait(poll, events[:], 0)
		if err == unix.EINTR {
			continue
		}
		for _, e := range events[:max(n, 0)] {
			p.asleep = append(p.asleep, int(e.Fd))
		}
		return n > 0
	}
}

// take reads what has been told of, in bytes.
func (p *pump) take() (size int) {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	for _, fd := range p.asleep {
		if pair, i := p.out.find(fd); pair != nil {
			size += p.out.take(pair, i)
		}
	}
	return size
}

// again asks to be told of those pipes once more. What came meanwhile is told at once.
func (p *pump) again() {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	for _, fd := range p.asleep {
		if pair, _ := p.out.find(fd); pair != nil {
			_ = p.control(unix.EPOLL_CTL_MOD, fd) // it is there: what is closed is not found
		}
	}
	p.asleep = p.asleep[:0]
}
