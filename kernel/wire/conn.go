package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Conn is the launcher's end of a wire.
type Conn struct {
	conn *net.UnixConn

	write  sync.Mutex
	last   int64 // number of the newest request
	failed error // a line that was not written whole: nothing may follow it

	hurry  sync.Mutex
	urgent int  // requests that wait to be written, or are being written
	stuck  bool // the line that is being written waits for its reader

	buffer   []byte
	from, to int   // what is read and not yet returned
	searched int   // bytes from from on that hold no newline
	calls    int64 // number of the worker's newest host call
}

// NewConn takes over one end of a Unix stream socket pair and closes f.
func NewConn(f *os.File) (*Conn, error) {
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("wire: not a Unix socket")
	}
	return &Conn{conn: u, buffer: make([]byte, smallBuffer)}, nil
}

// Close ends the wire; a reader gets an error.
func (c *Conn) Close() error { return c.conn.Close() }

// Request numbers r, calls sent with the number before a reply can come, and
// writes r with fds, which stay the caller's. The worker has WriteTime to read what
// stands before it and the request itself.
func (c *Conn) Request(r Request, fds []int, sent func(id int64)) error {
	return c.ask(fds, func(id int64) any {
		r.ID = id
		if sent != nil {
			sent(id)
		}
		return r
	})
}

// Ask is Request for a worker of another kind: message makes the request with its
// number, before a reply can come.
func (c *Conn) Ask(message func(id int64) any) error { return c.ask(nil, message) }

func (c *Conn) ask(fds []int, message func(id int64) any) error {
	c.pressing(1)
	defer c.pressing(-1)
	c.write.Lock()
	defer c.write.Unlock()
	c.last++
	return c.send(message(c.last), fds)
}

// pressing counts requests that wait. From the first one on the line that is being
// written has to be read in time, whatever it is.
func (c *Conn) pressing(by int) {
	c.hurry.Lock()
	defer c.hurry.Unlock()
	c.urgent += by
	if by > 0 && c.stuck {
		_ = c.conn.SetWriteDeadline(time.Now().Add(WriteTime)) // the write itself fails on a closed wire
	}
}

// wait sets the time of a line whose reader is behind: none for a reply that nothing waits
// behind. A cell may compute for as long as it likes before it reads what it asked for.
func (c *Conn) wait() error {
	c.hurry.Lock()
	defer c.hurry.Unlock()
	c.stuck = true
	if c.urgent > 0 {
		return c.conn.SetWriteDeadline(time.Now().Add(WriteTime))
	}
	return nil
}

// waited is for the end of what wait began.
func (c *Conn) waited() {
	c.hurry.Lock()
	defer c.hurry.Unlock()
	c.stuck = false
	_ = c.conn.SetWriteDeadline(time.Time{}) // the next write itself fails on a closed wire
}

// Reply answers a host call. It returns when the worker has read all but what the
// socket holds, or the wire has ended.
func (c *Conn) Reply(a Answer) error {
	c.write.Lock()
	defer c.write.Unlock()
	return c.send(a, nil)
}

func (c *Conn) send(v any, fds []int) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	data := line.Bytes()
	if len(data) > MaxToWorker {
		return broken(RuleLineTooLong, "%d bytes to the worker, at most %d", len(data), MaxToWorker)
	}
	if c.failed != nil {
		return c.failed
	}
	if c.failed = c.put(data, fds); c.failed != nil {
		// Half a line may be out. The reader gets an error, too.
		c.conn.Close()
	}
	return c.failed
}

// put writes a line whole, in time. A worker that was stopped, or that floods
// without reading, must not hold up the launcher. Most lines go out at once, and cost no
// timer.
func (c *Conn) put(data []byte, fds []int) error {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	stuck := false
	for len(data) > 0 {
		var n int
		var sent error
		// A program that asks for SIGPIPE, to learn that nobody reads its output,
		// must not get one because a worker has ended.
		err := raw.Write(func(fd uintptr) bool {
			if len(rights) > 0 {
				n, sent = unix.SendmsgN(int(fd), data, rights, nil, unix.MSG_NOSIGNAL)
			} else {
				n, sent = transfer(unix.SYS_SENDTO, fd, data, unix.MSG_NOSIGNAL)
			}
			return sent != unix.EAGAIN || !stuck
		})
		switch {
		case err != nil:
			return err
		case sent == unix.EAGAIN:
			if err := c.wait(); err != nil {
				return err
			}
			defer c.waited()
			stuck = true
			continue
		case sent == unix.EINTR:
			continue
		case sent != nil:
			return os.NewSyscallError("sendmsg", sent)
		}
		data, rights = data[n:], nil
	}
	return nil
}

// ReadMessage returns the worker's next message. io.EOF means that it closed its
// end between two messages. A ProtocolError is final.
func (c *Conn) ReadMessage() (*Message, error) {
	for {
		window := c.buffer[c.from:c.to]
		if at := bytes.IndexByte(window[c.searched:], '\n'); at >= 0 {
			line := window[:c.searched+at]
			if len(line) > MaxFromWorker {
				return nil, broken(RuleLineTooLong, "%d bytes, at most %d", len(line), MaxFromWorker)
			}
			m, err := Parse(line)
			if err == nil && m.Op == OpHost {
				if m.ID <= c.calls {
					err = broken(RuleDuplicateID, "host call %d after %d", m.ID, c.calls)
				}
				c.calls = m.ID
			}
			if err == nil {
				// The buffer is used again.
				m.Value, m.Arguments = bytes.Clone(m.Value), bytes.Clone(m.Arguments)
			}
			c.from += len(line) + 1
			c.searched = 0
			c.shrink()
			return m, err
		}
		c.searched = len(window)
		if c.searched > MaxFromWorker {
			return nil, broken(RuleLineTooLong, "more than %d bytes", MaxFromWorker)
		}
		c.room()
		n, err := c.read(c.buffer[c.to:])
		c.to += n
		if err != nil {
			if errors.Is(err, io.EOF) && c.searched > 0 {
				return nil, broken(RuleTruncatedLine, "the wire ended after %d bytes", c.searched)
			}
			return nil, err
		}
	}
}

// read waits until there is something, and reads of it what there is room for.
func (c *Conn) read(into []byte) (n int, err error) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var received error
	if err := raw.Read(func(fd uintptr) bool {
		n, received = transfer(unix.SYS_RECVFROM, fd, into, 0)
		return received != unix.EAGAIN
	}); err != nil {
		return 0, err
	}
	switch {
	case received == unix.EINTR:
		return 0, nil
	case received != nil:
		return 0, os.NewSyscallError("recvfrom", received)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// transfer makes one sendto(2) or recvfrom(2) that does not wait. It is made behind the
// back of Go's scheduler, which would otherwise see to it from another thread that the
// call does not block: of a launcher that mostly waits that was a quarter of the time of
// a host call.
func transfer(call, fd uintptr, data []byte, flags uintptr) (int, error) {
	n, _, errno := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), flags|unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// room makes place for the next read: by moving what is left to the front, or by
// doubling a buffer that is full of one line.
func (c *Conn) room() {
	if c.to < len(c.buffer) {
		return
	}
	if c.from > 0 {
		c.to = copy(c.buffer, c.buffer[c.from:c.to])
		c.from = 0
		return
	}
	larger := make([]byte, min(2*len(c.buffer), MaxFromWorker+smallBuffer))
	copy(larger, c.buffer[:c.to])
	c.buffer = larger
}

// shrink gives a large line's memory back once it has been read.
func (c *Conn) shrink() {
	if c.from == c.to {
		c.from, c.to = 0, 0
		if len(c.buffer) > smallBuffer {
			c.buffer = make([]byte, smallBuffer)
		}
	}
}
