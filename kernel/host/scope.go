package host

import (
	"context"
	"sync"
)

// Scope is the authority of one cell. It begins with the cell and ends with its
// reply, or when the cell yields; whatever the worker says changes nothing in it.
type Scope struct {
	id  Identity
	ctx context.Context
	end context.CancelFunc

	mu      sync.Mutex
	closed  bool
	yielded bool
	calls   map[int64]context.CancelFunc // by the number that the worker gave them
}

// NewScope begins a scope, which ends with ctx at the latest.
func NewScope(ctx context.Context, id Identity) *Scope {
	ctx, end := context.WithCancel(ctx)
	return &Scope{id: id, ctx: ctx, end: end, calls: map[int64]context.CancelFunc{}}
}

// Identity is who the scope's calls are made by.
func (s *Scope) Identity() Identity { return s.id }

// Begin admits a call by the number that its worker gave it: what it runs under,
// and what to do when it has been answered. false when the scope makes no calls
// any more.
func (s *Scope) Begin(number int64) (ctx context.Context, done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.yielded {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.calls[number] = cancel
	return ctx, func() {
		s.mu.Lock()
		delete(s.calls, number)
		s.mu.Unlock()
		cancel()
	}, true
}

// Live reports whether the scope still makes calls.
func (s *Scope) Live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && !s.yielded
}

// Cancel cancels one call and reports whether it was being carried out.
func (s *Scope) Cancel(number int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel, ok := s.calls[number]
	if ok {
		delete(s.calls, number)
		cancel()
	}
	return ok
}

// Interrupt cancels the calls in flight. The scope lives on: a cell may clean up.
func (s *Scope) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, cancel := range s.calls {
		delete(s.calls, number)
		cancel()
	}
}

// Yield lets the scope make no further call; the cell may run on.
func (s *Scope) Yield() {
	s.mu.Lock()
	s.yielded = true
	s.mu.Unlock()
	s.Interrupt()
}

// Yielded reports whether a call's answer has told the cell to end.
func (s *Scope) Yielded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.yielded
}

// Close ends the scope and cancels what it has in flight.
func (s *Scope) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
}
