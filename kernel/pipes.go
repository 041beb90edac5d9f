package kernel

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	pipeSize = 1 << 20 // bytes; the most that an ordinary user may ask for
	maxPairs = 64      // pairs that processes of earlier cells may keep open
)

// pipes are the launcher's ends of one pair of a worker's standard streams. A
// child that outlives its cell keeps the pair that was in use when it was born.
type pipes struct {
	out   *output
	ends  [2]*os.File
	names [2]string
	cell  int  // the newest cell that wrote here
	old   bool // a newer pair has taken over
	ended sync.WaitGroup
}

// output collects what comes through all pairs of a session's worker.
type output struct {
	mu         sync.Mutex
	current    *cellOutput // nil between cells
	pair       *pipes
	older      []*pipes // that a process of an earlier cell still holds, oldest first
	background []OutputRecord
	dropped    int64
	log        *capped // what came before the first cell and between cells
	buffer     []byte
	uid, gid   int // who may open the worker's ends again, by /dev/stdout
}

// newOutput makes pipes that belong to an id of the host; -1 leaves them ours.
func newOutput(uid, gid int) *output {
	return &output{log: &capped{limit: 8192}, buffer: make([]byte, 64<<10), uid: uid, gid: gid}
}

// open makes a fresh pair and returns the worker's ends, which the caller
// closes once the worker has them.
func (o *output) open() (worker [2]*os.File, err error) {
	p := &pipes{out: o, names: [2]string{"stdout", "stderr"}}
	for i := range worker {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			for j := range i {
				p.ends[j].Close()
				worker[j].Close()
			}
			return worker, fmt.Errorf("pipe for %s: %w", p.names[i], err)
		}
		_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
		// A pipe is made for its maker alone (0600), and the worker may be another id.
		_ = unix.Fchown(fds[1], o.uid, o.gid)
		// Only the read end's description: the worker's own stays blocking.
		_ = unix.SetNonblock(fds[0], true)
		p.ends[i] = os.NewFile(uintptr(fds[0]), p.names[i])
		worker[i] = os.NewFile(uintptr(fds[1]), p.names[i])
	}
	p.ended.Add(len(p.ends))
	o.mu.Lock()
	if o.pair != nil {
		o.pair.old = true
		o.older = append(o.older, o.pair)
	}
	o.pair = p
	var over *pipes
	if len(o.older) > maxPairs {
		// Whoever writes there gets EPIPE: a worker may hold as many as it likes.
		over, o.older = o.older[0], o.older[1:]
	}
	o.mu.Unlock()
	if over != nil {
		over.close()
	}
	for i := range p.ends {
		go p.read(i)
	}
	go p.forget()
	return worker, nil
}

// forget takes a pair off the list once nobody holds its other ends.
func (p *pipes) forget() {
	p.ended.Wait()
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	p.out.older = slices.DeleteFunc(p.out.older, func(o *pipes) bool { return o == p })
}

func (p *pipes) close() {
	for _, end := range p.ends {
		end.Close()
	}
	p.ended.Wait()
}

// read moves what comes through one pipe to its place until every writer has
// gone or the pair is closed.
func (p *pipes) read(i int) {
	defer p.ended.Done()
	defer p.ends[i].Close()
	conn, err := p.ends[i].SyscallConn()
	if err != nil {
		return
	}
	for end := false; !end; {
		err := conn.Read(func(fd uintptr) bool {
			p.out.mu.Lock()
			defer p.out.mu.Unlock()
			some, over := p.take(i, fd)
			end = over
			return some || over
		})
		if err != nil {
			return
		}
	}
}

// take reads what is there now. The caller holds the lock.
func (p *pipes) take(i int, fd uintptr) (some, end bool) {
	for {
		n, err := syscall.Read(int(fd), p.out.buffer)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return some, false
		case err != nil || n == 0:
			return some, true
		default:
			some = true
			p.out.put(p, i, p.out.buffer[:n])
			if n < len(p.out.buffer) {
				return some, false
			}
		}
	}
}

func (o *output) put(p *pipes, i int, b []byte) {
	if o.current != nil && !p.old {
		o.current.write(p.names[i], b, false)
		return
	}
	text := (&decoder{}).decode(b, true)
	o.log.add(text)
	o.keep(OutputRecord{Stream: p.names[i], Text: text, Background: true, Origin: strconv.Itoa(p.cell)})
}

// keep stores a background record for the next reply.
func (o *output) keep(r OutputRecord) {
	r.Text = string(prefix([]byte(r.Text), backgroundRune))
	if last := len(o.background) - 1; last >= 0 && o.background[last].Stream == r.Stream &&
		o.background[last].Origin == r.Origin && len(o.background[last].Text)+len(r.Text) <= backgroundRune {
		o.background[last].Text += r.Text
		return
	}
	if len(o.background) >= scopeRecords {
		o.dropped++
		return
	}
	o.background = append(o.background, r)
}

// begin directs the current pair's output to a cell.
func (o *output) begin(c *cellOutput, cell int) {
	o.drain()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current = c
	if o.pair != nil {
		o.pair.cell = cell
	}
}

// drain takes what is in the current pair: everything that was written before a
// reply is there when the reply is.
func (o *output) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pair == nil {
		return
	}
	for i, end := range o.pair.ends {
		if conn, err := end.SyscallConn(); err == nil {
			_ = conn.Control(func(fd uintptr) {
				for {
					some, over := o.pair.take(i, fd)
					if !some || over {
						return
					}
				}
			})
		}
	}
}

// finish takes the rest of a cell's output and ends it.
func (o *output) finish() (background []OutputRecord, dropped int64) {
	o.drain()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current = nil
	background, dropped = o.background, o.dropped
	o.background, o.dropped = nil, 0
	return background, dropped
}

// close ends every reader, also of pairs that a process still holds which
// outlived the worker.
func (o *output) close() {
	o.mu.Lock()
	pairs := o.older
	if o.pair != nil {
		pairs = append(pairs, o.pair)
	}
	o.pair, o.older = nil, nil
	o.mu.Unlock()
	for _, p := range pairs {
		p.close()
	}
}

// tail is the end of what the worker wrote outside cells.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.String()
}
