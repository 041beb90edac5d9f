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

	"golang.org/x/sys/unix"
)

// Conn is the launcher's end of a wire.
type Conn struct {
	conn *net.UnixConn

	write  sync.Mutex
	last   int64 // number of the newest request
	failed error // a line that was not written whole: nothing may follow it

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
// writes r with fds, which stay the caller's.
func (c *Conn) Request(r Request, fds []int, sent func(id int64)) error {
	c.write.Lock()
	defer c.write.Unlock()
	c.last++
	r.ID = c.last
	if sent != nil {
		sent(r.ID)
	}
	return c.send(r, fds)
}

// Reply answers a host call.
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
// without reading, must not hold up the launcher.
func (c *Conn) put(data []byte, fds []int) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(WriteTime)); err != nil {
		return err
	}
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for len(data) > 0 {
		var n int
		var sent error
		// A program that asks for SIGPIPE, to learn that nobody reads its output,
		// must not get one because a worker has ended.
		err := raw.Write(func(fd uintptr) bool {
			n, sent = unix.SendmsgN(int(fd), data, rights, nil, unix.MSG_NOSIGNAL)
			return sent != unix.EAGAIN
		})
		switch {
		case err != nil:
			return err
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
		n, err := c.conn.Read(c.buffer[c.to:])
		c.to += n
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) && c.searched > 0 {
				return nil, broken(RuleTruncatedLine, "the wire ended after %d bytes", c.searched)
			}
			return nil, err
		}
	}
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
