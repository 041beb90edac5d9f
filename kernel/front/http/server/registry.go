package server

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/policy"
)

// entry is one session.
type entry struct {
	id, name    string
	owner       caller
	directory   string
	description string
	timeout     time.Duration // of a cell, at most
	idle        time.Duration
	created     time.Time
	session     *kernel.Session

	living  context.Context // until it is ended
	ended   context.CancelFunc
	mcpOnce sync.Once
	mcp     http.Handler
	bodies  chan struct{} // holds one token while a body for mcp is taken in

	// Under the registry's lock.
	used  time.Time
	calls int // that run or wait
	runs  []*driven
	begun int // runs
}

// registry holds the sessions and counts what is under way, of each caller and in all.
type registry struct {
	bounds  api.Bounds
	metrics *metrics

	mu       sync.Mutex
	sessions map[string]*entry
	opening  map[*claim]struct{} // claimed, and not there yet
	cells    int
	byCaller map[caller]int // cells
	draining bool
	quiet    chan struct{} // closed when draining and no cell is left
}

// claim keeps a place and a directory for a session that is being opened.
type claim struct {
	owner     caller
	directory string
}

func newRegistry(b api.Bounds, m *metrics) *registry {
	return &registry{bounds: b, metrics: m, sessions: map[string]*entry{}, opening: map[*claim]struct{}{},
		byCaller: map[caller]int{}, quiet: make(chan struct{})}
}

func (r *registry) ending() *answer {
	return refuse(http.StatusServiceUnavailable, api.CodeShuttingDown, "the server is ending and takes no new work; ask again when it has been started anew").later(5 * time.Second)
}

// claim asks for room for one more session.
func (r *registry) claim(c caller, directory string) (*claim, *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return nil, r.ending()
	}
	own := 0
	check := func(owner caller, dir string) *answer {
		if owner == c {
			own++
		}
		if dir == directory && owner == c {
			return nil // two sessions of one caller may work in one directory
		}
		if policy.Within(dir, directory) || policy.Within(directory, dir) {
			return refuse(http.StatusConflict, api.CodeOverlap, "directory %.200q: a session that is running has it, or one around or beneath it; end that session or choose another directory", directory)
		}
		return nil
	}
	var overlap *answer
	for _, e := range r.sessions {
		if a := check(e.owner, e.directory); a != nil {
			overlap = a
		}
	}
	for o := range r.opening {
		if a := check(o.owner, o.directory); a != nil {
			overlap = a
		}
	}
	switch {
	case own >= r.bounds.CallerSessions:
		return nil, refuse(http.StatusTooManyRequests, api.CodeTooMany, "this caller has %d sessions, as many as it may; end one", own).later(10 * time.Second)
	case len(r.sessions)+len(r.opening) >= r.bounds.Sessions:
		return nil, refuse(http.StatusServiceUnavailable, api.CodeBusy, "the server has as many sessions as it may; ask again later").later(10 * time.Second)
	case overlap != nil:
		return nil, overlap
	}
	taken := &claim{c, directory}
	r.opening[taken] = struct{}{}
	return taken, nil
}

// drop gives a claim back.
func (r *registry) drop(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opening, c)
}

// add puts an opened session in its claim's place; false when the server has begun to end.
func (r *registry) add(c *claim, e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opening, c)
	if r.draining {
		return false
	}
	r.sessions[e.id] = e
	return true
}

// newID is a session's id: 128 random bits, in letters that a control group's name,
// a file's name and a URL take as they are.
func newID() string { return "s-" + strings.ToLower(rand.Text()) }

// find is a caller's session. Another's is answered for as one that does not exist.
func (r *registry) find(c caller, id string) (*entry, *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.findLocked(c, id)
}

func (r *registry) findLocked(c caller, id string) (*entry, *answer) {
	if e := r.sessions[id]; e != nil && e.owner == c {
		return e, nil
	}
	return nil, refuse(http.StatusNotFound, api.CodeNotFound, "session %.80q: this caller has none of this id; it may have ended", id)
}

// of are the sessions of a caller.
func (r *registry) of(c caller) []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*entry
	for _, e := range r.sessions {
		if e.owner == c {
			out = append(out, e)
		}
	}
	return out
}

// enter lets one more call of a session in; leave has to be called when it has ended.
func (r *registry) enter(c caller, id string) (e *entry, leave func(), a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, a = r.findLocked(c, id); a != nil {
		return nil, nil, a
	}
	switch {
	case r.draining:
		return nil, nil, r.ending()
	case e.calls > r.bounds.Queue:
		return nil, nil, refuse(http.StatusTooManyRequests, api.CodeTooMany, "session %s: %d calls wait for it, as many as may; wait for one to end", id, e.calls-1).later(time.Second)
	case r.byCaller[c] >= r.bounds.CallerCells:
		return nil, nil, refuse(http.StatusTooManyRequests, api.CodeTooMany, "this caller has %d calls under way, as many as it may; wait for one to end", r.byCaller[c]).later(time.Second)
	case r.cells >= r.bounds.Cells:
		return nil, nil, refuse(http.StatusServiceUnavailable, api.CodeBusy, "the server has as many calls under way as it may; ask again later").later(time.Second)
	}
	e.calls++
	r.cells++
	r.byCaller[c]++
	return e, sync.OnceFunc(func() { r.leave(e) }), nil
}

func (r *registry) leave(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.calls--
	e.used = time.Now()
	r.cells--
	if r.byCaller[e.owner]--; r.byCaller[e.owner] == 0 {
		delete(r.byCaller, e.owner)
	}
	if r.draining && r.cells == 0 {
		r.hush()
	}
}

// hush says that no cell is left. The caller has the lock.
func (r *registry) hush() {
	select {
	case <-r.quiet:
	default:
		close(r.quiet)
	}
}

// remove takes a session out; false when it is not there any more.
func (r *registry) remove(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[e.id] != e {
		return false
	}
	delete(r.sessions, e.id)
	return true
}

// expired takes out the sessions that nobody has used for too long.
func (r *registry) expired(now time.Time) []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*entry
	for id, e := range r.sessions {
		if e.calls == 0 && now.Sub(e.used) > e.idle {
			out = append(out, e)
			delete(r.sessions, id)
		}
	}
	return out
}

// drain lets nothing new in; the channel is closed when no cell is left.
func (r *registry) drain() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
	if r.cells == 0 {
		r.hush()
	}
	return r.quiet
}

// all takes out every session.
func (r *registry) all() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*entry
	for id, e := range r.sessions {
		out = append(out, e)
		delete(r.sessions, id)
	}
	return out
}

// each are all sessions, which stay.
func (r *registry) each() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*entry
	for _, e := range r.sessions {
		out = append(out, e)
	}
	return out
}

// counts are the sessions and the cells under way.
func (r *registry) counts() (sessions, cells int, draining bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions), r.cells, r.draining
}

// seen is a session's state that the lock guards.
func (r *registry) seen(e *entry) (used time.Time, calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.used, e.calls
}
