package jail

import (
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// control is the launcher's end of the socket to the stage.
type control struct {
	file *os.File
	raw  syscall.RawConn
}

func newControl(fd int) (*control, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "control")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &control{file, raw}, nil
}

// past is a deadline that has gone by.
var past = time.Unix(1, 0)

// abort lets a pending receive or send fail at once.
func (c *control) abort() { _ = c.file.SetDeadline(past) }

// hungUp says whether the other end is gone.
func (c *control) hungUp() bool {
	gone := true // where it cannot be asked, it has been closed
	_ = c.raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(look, 0)
		gone = err == nil && look[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone
}

func (c *control) close() { _ = c.file.Close() }

// send writes one message; descriptors travel with its first byte.
func (c *control) send(kind plan.Kind, body []byte, fds []int) error {
	message := plan.AppendMessage(nil, kind, body)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for len(message) > 0 {
		var n int
		var err error
		wait := c.raw.Write(func(fd uintptr) bool {
			n, err = unix.SendmsgN(int(fd), message, oob, nil, unix.MSG_NOSIGNAL)
			return err != unix.EAGAIN
		})
		if wait != nil {
			return wait
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		message, oob = message[n:], nil
	}
	return nil
}

// receive reads one message and the descriptor that came with it, or -1. There is none
// with an error, which can come between the parts of a message.
func (c *control) receive() (kind plan.Kind, body []byte, fd int, err error) {
	fd = -1
	defer func() {
		if err != nil && fd >= 0 {
			unix.Close(fd)
			fd = -1
		}
	}()
	header := make([]byte, plan.HeaderSize)
	if err = c.fill(header, &fd); err != nil {
		return
	}
	var n int
	if kind, n, err = plan.ParseHeader(header); err != nil {
		return
	}
	body = make([]byte, n)
	err = c.fill(body, &fd)
	return
}

func (c *control) fill(b []byte, passed *int) error {
	oob := make([]byte, unix.CmsgSpace(4))
	for len(b) > 0 {
		var n, oobn int
		var err error
		wait := c.raw.Read(func(fd uintptr) bool {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
			return err != unix.EAGAIN
		})
		switch {
		case wait != nil:
			return wait
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		}
		if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
			for i := range messages {
				if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
					for _, fd := range fds {
						if *passed >= 0 {
							unix.Close(*passed)
						}
						*passed = fd
					}
				}
			}
		}
		b = b[n:]
	}
	return nil
}
