package kernel

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// unassigned is the origin of output that belongs to no cell.
const unassigned = "unassigned"

const (
	pipeSize = 1 << 20 // bytes; the most that an ordinary user may ask for
	maxPairs = 64      // pairs that processes of earlier cells may keep open
)

// pipes are the launcher's ends of one pair of a worker's standard streams. A
// child that outlives its cell keeps the pair that was in use when it was born.
type pipes struct {
	ends  [2]int // descriptors; -1 once closed
	scope string // of the newest cell that wrote here
	rest  [2]decoder
	old   bool // a newer pair has taken over
}

// output collects what comes through all pairs of a session's worker.
type output struct {
	mu         sync.Mutex
	current    *cellOutput // nil between cells
	brought    int         // bytes for it, since it began or its worker was asked
	pair       *pipes
	older      []*pipes // that a process of an earlier cell still holds, oldest first
	background []OutputRecord
	dropped    int64
	log        *capped // what came before the first cell and between cells
	buffer     []byte
	uid, gid   int // who may open the worker's ends again, by /dev/stdout

	pump  *pump  // reads all of them; nil before the first and after close
	press func() // asks the worker for lines that it holds back
}

// newOutput makes pipes that belong to an id of the host; -1 leaves them ours.
func newOutput(uid, gid int) *output {
	return &output{log: &capped{limit: 8192}, buffer: make([]byte, 64<<10), uid: uid, gid: gid}
}

// pressed says how the worker is asked for lines that it holds back.
func (o *output) pressed(press func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.press = press
}

// open makes a fresh pair and returns the worker's ends, which the caller
// closes once the worker has them.
func (o *output) open() (worker [2]*os.File, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pump == nil {
		if o.pump, err = newPump(o); err != nil {
			return worker, err
		}
	}
	p := &pipes{ends: [2]int{-1, -1}, scope: unassigned}
	defer func() {
		if err != nil {
			o.shut(p)
			for _, end := range worker {
				end.Close()
			}
		}
	}()
	for i := range worker {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return worker, fmt.Errorf("pipe for %s: %w", streams[i], err)
		}
		p.ends[i] = fds[0]
		worker[i] = os.NewFile(uintptr(fds[1]), streams[i])
		_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
		// A pipe is made for its maker alone (0600), and the worker may be another id.
		_ = unix.Fchown(fds[1], o.uid, o.gid)
		// Only the read end's description: the worker's own stays blocking.
		if err := unix.SetNonblock(fds[0], true); err != nil {
			return worker, fmt.Errorf("pipe for %s: %w", streams[i], err)
		}
		if err := o.pump.add(fds[0]); err != nil {
			return worker, fmt.Errorf("pipe for %s: %w", streams[i], err)
		}
	}
	if o.pair != nil {
		o.pair.old = true
		o.older = append(o.older, o.pair)
	}
	o.pair = p
	if len(o.older) > maxPairs {
		// Whoever writes there gets EPIPE: a worker may hold as many as it likes.
		o.shut(o.older[0])
		o.older = o.older[1:]
	}
	return worker, nil
}

// shut closes what is open of a pair; the caller holds the lock.
func (o *output) shut(p *pipes) {
	for i := range p.ends {
		o.shutEnd(p, i)
	}
}

func (o *output) shutEnd(p *pipes, i int) {
	if p.ends[i] >= 0 {
		// First, since a child between fork and exec has the pipe as well, and it would
		// be told of until then.
		o.pump.remove(p.ends[i])
		unix.Close(p.ends[i])
		p.ends[i] = -1
	}
}

// find is the pair that a descriptor belongs to; nil for none. The caller holds the lock.
func (o *output) find(fd int) (*pipes, int) {
	for at := len(o.older); at >= 0; at-- {
		p := o.pair
		if at < len(o.older) {
			p = o.older[at]
		}
		if p == nil {
			continue
		}
		for i := range p.ends {
			if p.ends[i] == fd {
				return p, i
			}
		}
	}
	return nil, 0
}

// take reads what is in a pipe now, in bytes, and not what a process goes on writing for
// ever: no more than a pipe holds. One that nobody can write to any more is closed, and its
// pair forgotten with the second. The caller holds the lock.
func (o *output) take(p *pipes, i int) (size int) {
	for p.ends[i] >= 0 && size < pipeSize {
		n, err := unix.Read(p.ends[i], o.buffer)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return size
		case err != nil || n == 0:
			o.shutEnd(p, i)
			if p.ends[1-i] < 0 {
				o.older = slices.DeleteFunc(o.older, func(other *pipes) bool { return other == p })
			}
		default:
			size += n
			o.put(p, i, o.buffer[:n])
			if n < len(o.buffer) {
				return size
			}
		}
	}
	return size
}

func (o *output) put(p *pipes, i int, b []byte) {
	if o.current != nil && !p.old {
		o.brought += len(b)
		o.current.write(i, b, false)
		return
	}
	o.late(p, i, b, false)
}

// late is output that belongs to no cell that runs.
func (o *output) late(p *pipes, i int, b []byte, last bool) {
	if text := p.rest[i].decode(b, last); len(text) > 0 {
		o.log.add(text)
		o.keep(OutputRecord{Stream: streams[i], Text: string(prefix(text, backgroundRune)), Background: true, Origin: p.scope})
	}
}

// keep stores a background record for the next reply.
func (o *output) keep(r OutputRecord) {
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
func (o *output) begin(c *cellOutput, scope string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain()
	o.current, o.brought = c, 0
	if o.pair != nil {
		for i := range o.pair.rest {
			o.late(o.pair, i, nil, true) // half a character
		}
		o.pair.scope = scope
	}
}

// drain takes what is in the current pair: everything that was written before a
// reply is there when the reply is. The caller holds the lock.
func (o *output) drain() {
	if o.pair == nil {
		return
	}
	for i := range o.pair.ends {
		o.take(o.pair, i)
	}
}

// catchUp takes what is in the current pair now, so that what was written before a call of
// the worker's is told before the call is.
func (o *output) catchUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain()
}

// flood says whether the running cell has brought so much that its worker may hold lines
// back.
func (o *output) flood() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current != nil && o.brought >= floodBytes
}

// quiet says that nothing has come for a moment. After a flood the worker is asked: of
// this cell alone, since a signal interrupts what the next one asks Linux for, which may
// then be begun twice.
func (o *output) quiet() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current != nil && o.press != nil && o.brought >= floodBytes {
		o.brought = 0
		o.press()
	}
}

// finish takes the rest of a cell's output and ends it.
func (o *output) finish() (background []OutputRecord, dropped int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain()
	o.current = nil
	background, dropped = o.background, o.dropped
	o.background, o.dropped = nil, 0
	return background, dropped
}

// close ends all reading, also of pairs that a process still holds which outlived
// the worker.
func (o *output) close() {
	o.mu.Lock()
	for _, p := range o.older {
		o.shut(p)
	}
	if o.pair != nil {
		o.shut(o.pair)
	}
	o.pair, o.older = nil, nil
	pump := o.pump
	o.pump = nil
	o.mu.Unlock()
	pump.end()
}

// tail is the end of what the worker wrote outside cells.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain()
	return o.log.String()
}
