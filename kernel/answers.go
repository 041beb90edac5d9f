package kernel

import (
	"sync"
	"sync/atomic"

	"cellblock/kernel/wire"
)

// answers writes the answers to a worker's host calls. Nobody waits for a worker
// that does not read them: they are kept, within bounds, and written by one goroutine
// as long as there are any.
type answers struct {
	conn *wire.Conn
	left *atomic.Int32 // calls whose answers have not been written

	mu      sync.Mutex
	waiting []wire.Answer
	bytes   int // of the values that wait
	writing bool
	ended   bool
}

// put takes one answer, and does not wait.
func (a *answers) put(answer wire.Answer) {
	if a.take(answer) {
		go a.write()
	}
}

// deliver takes one answer from a caller that may wait: it writes what there is.
func (a *answers) deliver(answer wire.Answer) {
	if a.take(answer) {
		a.write()
	}
}

// take queues an answer and says whether the caller has to see to it that it is written.
func (a *answers) take(answer wire.Answer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	if size := len(answer.Value); size > 0 && len(a.waiting) > 0 && a.bytes+size > wire.MaxUnreadData {
		answer.Value = nil
		answer.Error = &wire.HostError{Type: "HostError", Code: "too-large", Message: "too much of earlier results has not been read"}
	}
	a.bytes += len(answer.Value)
	a.waiting = append(a.waiting, answer)
	first := !a.writing
	a.writing = true
	return first
}

func (a *answers) write() {
	for {
		a.mu.Lock()
		if len(a.waiting) == 0 || a.ended {
			a.waiting, a.writing = nil, false
			a.mu.Unlock()
			return
		}
		answer := a.waiting[0]
		a.waiting = a.waiting[1:]
		a.bytes -= len(answer.Value)
		a.mu.Unlock()
		err := a.conn.Reply(answer)
		a.left.Add(-1)
		if err != nil { // the wire has ended, and whoever reads it sees that too
			a.mu.Lock()
			a.ended = true
			a.mu.Unlock()
		}
	}
}
