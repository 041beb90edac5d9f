package jail

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// errNoSocket is a stage that could make none, such as for want of memory.
var errNoSocket = errors.New("the jail's first process made no socket")

// Dial connects to a port that the jail's processes serve on their loopback, of IPv4 or
// else of IPv6. Only a jail with a network of its own has one: NetNone.
func (p *Process) Dial(ctx context.Context, port int) (net.Conn, error) {
	if p.plan.Namespaces&syscall.CLONE_NEWNET == 0 {
		return nil, errors.New("jail: it has no network of its own to connect within")
	}
	c, err := p.dial(ctx, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if errors.Is(err, unix.ECONNREFUSED) {
		if six, e := p.dial(ctx, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}); e == nil {
			return six, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("port %d of the jail: %w", port, err)
	}
	return c, nil
}

func (p *Process) dial(ctx context.Context, to unix.Sockaddr) (net.Conn, error) {
	family := unix.AF_INET
	if _, six := to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := p.socket(ctx, family)
	if err != nil {
		return nil, err
	}
	// Whoever sent it, it must be what was asked for.
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	domain, e := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || e != nil || kind != unix.SOCK_STREAM || domain != family || unix.SetNonblock(fd, true) != nil {
		unix.Close(fd)
		return nil, errNoSocket
	}
	// Before the poller knows it, for which a socket without a connection is ready.
	err = unix.Connect(fd, to)
	file := os.NewFile(uintptr(fd), "socket of the jail")
	defer file.Close() // net.FileConn makes a copy
	if errors.Is(err, unix.EINPROGRESS) {
		err = connected(ctx, file)
	}
	if err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

// connected waits until a connection is there, or is known not to be.
func connected(ctx context.Context, file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetDeadline(past) })
	defer stop()
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			failed = err
		case code != 0:
			failed = unix.Errno(code)
		default:
			_, err = unix.Getpeername(int(fd))
			return err == nil
		}
		return true
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(failed, err)
}

// socket asks the stage for a socket in its network namespace.
func (p *Process) socket(ctx context.Context, family int) (int, error) {
	answer := make(chan int, 1)
	p.asking.Lock() // so that answers come in the order of the list
	p.asked = append(p.asked, answer)
	err := p.control.send(plan.KindSocket, plan.EncodeInt(family), nil)
	p.asking.Unlock()
	if err != nil {
		return -1, os.ErrProcessDone
	}
	var fd int
	select {
	case fd = <-answer:
	case <-p.done:
		return -1, os.ErrProcessDone
	case <-ctx.Done():
		go func() { // it comes all the same
			select {
			case fd := <-answer:
				if fd >= 0 {
					unix.Close(fd)
				}
			case <-p.done:
			}
		}()
		return -1, ctx.Err()
	}
	if fd < 0 {
		return -1, errNoSocket
	}
	return fd, nil
}

// hand gives a socket to whoever has asked first; nobody has asked for others.
func (p *Process) hand(fd int) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if len(p.asked) == 0 {
		if fd >= 0 {
			unix.Close(fd)
		}
		return
	}
	p.asked[0] <- fd
	p.asked = p.asked[1:]
}
