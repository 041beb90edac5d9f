package extension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"cellblock/kernel/host"
	"cellblock/kernel/wire"
)

// MaxNested is how many host calls of one session's extensions wait for an answer
// at once.
const MaxNested = 64

// Options say what the extensions of one session are run with.
type Options struct {
	Launch Launch
	Name   string // of the session, for the log
	// Call is the door for the calls that handlers make: from is the call that the
	// handler serves. Its error is an *host.Error, or counts as failed.
	Call func(ctx context.Context, from host.Call, tool string, arguments json.RawMessage) (json.RawMessage, error)
}

// Session runs the extensions of one session, in a worker of its own that is started
// on the first use. Its methods may be called from several goroutines.
type Session struct {
	opts  Options
	order *order

	mu      sync.Mutex
	known   map[string]Extension
	names   []string        // of known, in the order of their files
	worker  *worker         // nil for none
	loaded  map[string]bool // extensions that the worker has evaluated
	serving map[int64]*serving
	retired string // why; empty while it serves
	closed  bool
	changed int // counts replacements
}

// serving is a call that a handler has been given.
type serving struct {
	worker *worker
	call   host.Call
	ctx    context.Context

	mu     sync.Mutex
	nested map[int64]context.CancelFunc
}

// New makes a session's extensions; nothing is started.
func New(o Options, known []Extension) *Session {
	s := &Session{opts: o, order: newOrder(), serving: map[int64]*serving{}, loaded: map[string]bool{}}
	s.set(known)
	return s
}

func (s *Session) set(known []Extension) {
	s.known, s.names = map[string]Extension{}, nil
	for _, e := range known {
		s.known[e.Name] = e
		s.names = append(s.names, e.Name)
	}
}

// Extensions lists them in the order of their files.
func (s *Session) Extensions() []Extension {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Extension, 0, len(s.names))
	for _, name := range s.names {
		out = append(out, s.known[name])
	}
	return out
}

// Replace puts others in place of the extensions: the worker is ended, calls in it
// fail, and the next use starts afresh.
func (s *Session) Replace(known []Extension) {
	s.mu.Lock()
	s.set(known)
	s.changed++
	s.mu.Unlock()
	s.Reset()
}

// Reset ends the worker, and with it that it was retired.
func (s *Session) Reset() {
	s.mu.Lock()
	w := s.worker
	s.forget(w)
	s.retired = ""
	s.mu.Unlock()
	if w != nil {
		w.end()
	}
}

// Close ends the worker for good.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Reset()
}

// Retired says why the worker was given up; empty while it serves.
func (s *Session) Retired() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

// forget drops what is known of a worker that is ended. The caller has the lock.
func (s *Session) forget(w *worker) {
	if w != nil && s.worker == w {
		s.worker, s.loaded = nil, map[string]bool{}
	}
}

// retire gives up a worker in which a handler did not unwind.
func (s *Session) retire(w *worker, why string) {
	s.mu.Lock()
	if s.worker == w {
		s.retired = why
	}
	s.forget(w)
	s.mu.Unlock()
	w.end()
}

func failure(code, format string, args ...any) *host.Error {
	return &host.Error{Type: "HostError", Code: code, Message: fmt.Sprintf(format, args...)}
}

// live returns the worker, started when there is none.
func (s *Session) live(name string) (w *worker, e Extension, loaded bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.known[name]
	switch {
	case s.closed:
		return nil, e, false, failure(host.CodeRetired, "the session has been closed")
	case s.retired != "":
		return nil, e, false, failure(host.CodeRetired, "the session's extension worker was given up (%s); reset the session or reload its extensions", s.retired)
	case !ok:
		return nil, e, false, failure(host.CodeUnknown, "there is no extension %s any more", name)
	}
	if w := s.worker; w != nil {
		select {
		case <-w.gone: // it died between two calls
			s.forget(w)
			go w.end()
		default:
		}
	}
	if s.worker == nil {
		w, err := startWorker(s.opts.Launch, s.opts.Name, s.hostCall)
		if err != nil {
			return nil, e, false, failure(host.CodeFailed, "%v", err)
		}
		s.worker, s.loaded = w, map[string]bool{}
	}
	return s.worker, e, s.loaded[name], nil
}

// ready returns the worker with an extension loaded. The caller has the extension's
// turn. When ctx ends before a file is loaded, pending is closed when it is: to strike
// a file in the middle of its imports would leave halves of modules behind.
func (s *Session) ready(ctx context.Context, name string) (w *worker, pending <-chan struct{}, err error) {
	live, e, loaded, err := s.live(name)
	if err != nil || loaded {
		return live, nil, err
	}
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		failed = s.load(live, e)
	}()
	select {
	case <-done:
		return live, nil, failed
	case <-ctx.Done():
		return nil, done, ctx.Err()
	}
}

// load has the worker evaluate an extension's file.
func (s *Session) load(w *worker, e Extension) error {
	limit := s.opts.Launch.startTime()
	m, err := w.load(context.Background(), e.Name, e.File, limit)
	switch {
	case errors.Is(err, errGone):
		return failure(host.CodeFailed, "loading extension %s: %v", e.Name, s.endOf(w))
	case err != nil:
		// Its thread is still at it, and nothing could run there.
		why := fmt.Sprintf("extension %s did not load within %s", e.Name, limit)
		s.retire(w, why)
		return failure(host.CodeFailed, "%s", why)
	case m.Error != nil:
		return failure(host.CodeFailed, "extension %s does not load: %s", e.Name, plain(m.Error))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker == w {
		s.loaded[e.Name] = true
	}
	return nil
}

// do has one extension serve one request, and returns what came of it. An effect of
// op "call" whose result is not known is indeterminate.
func (s *Session) do(ctx context.Context, op, name string, c host.Call, fields map[string]any) (json.RawMessage, error) {
	if err := s.order.enter(ctx, name, c.Chain); err != nil {
		return nil, stopped(ctx, err)
	}
	w, pending, err := s.ready(ctx, name)
	if pending != nil {
		go func() {
			<-pending
			s.order.leave(name)
		}()
		return nil, stopped(ctx, err)
	}
	defer s.order.leave(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, stopped(ctx, err)
	}
	fields["extension"], fields["identity"] = name, c.Identity
	if at, ok := ctx.Deadline(); ok && op != "preflight" {
		fields["deadline"] = float64(at.UnixMicro()) / 1e6
	}
	m, err := s.serve(ctx, w, op, c, fields)
	switch {
	case errors.As(err, new(*wire.ProtocolError)):
		return nil, failure(host.CodeTooLarge, "%v", err)
	case err != nil && op == "call":
		return nil, failure(host.CodeIndeterminate, "it is not known whether %s was done: %v", c.Tool, err)
	case err != nil:
		return nil, failure(host.CodeFailed, "%v", err)
	case m.Error != nil:
		code := m.Error.Code
		if code == "" {
			code = host.CodeFailed
		}
		return nil, &host.Error{Type: m.Error.Type, Code: code, Message: m.Error.Message, Fields: m.Error.Fields}
	}
	return m.Value, nil
}

// serve gives the worker a call, with which its handler's host calls belong, and waits
// for what comes of it.
func (s *Session) serve(ctx context.Context, w *worker, op string, c host.Call, fields map[string]any) (*wire.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now := &serving{worker: w, call: c, ctx: ctx, nested: map[int64]context.CancelFunc{}}
	var number int64
	reply, err := w.send(op, fields, func(id int64) {
		number = id
		s.mu.Lock()
		s.serving[id] = now
		s.mu.Unlock()
	})
	defer func() {
		s.mu.Lock()
		if s.serving[number] == now {
			delete(s.serving, number)
		}
		s.mu.Unlock()
	}()
	if err != nil && !errors.Is(err, errGone) {
		return nil, err
	}
	return s.outcome(ctx, w, number, reply)
}

// endOf says why a worker has gone.
func (s *Session) endOf(w *worker) error {
	if why := s.Retired(); why != "" {
		return errors.New(why)
	}
	return errors.New(w.death())
}

// outcome waits for a reply; when ctx ends it has the handler stopped, and gives the
// worker up when that does not unwind.
func (s *Session) outcome(ctx context.Context, w *worker, number int64, reply chan *wire.Message) (*wire.Message, error) {
	gone := func() (*wire.Message, error) {
		select {
		case m := <-reply:
			return m, nil
		default:
			return nil, s.endOf(w)
		}
	}
	select {
	case m := <-reply:
		return m, nil
	case <-w.gone:
		return gone()
	case <-ctx.Done():
	}
	late := time.NewTimer(unwindTime)
	defer late.Stop()
	again := time.NewTimer(cancelAgain)
	defer again.Stop()
	ask := func() { _, _ = w.send("cancel", map[string]any{"call": number}, nil) } // a worker that has gone needs none
	ask()
	for {
		select {
		case m := <-reply:
			return m, nil
		case <-w.gone:
			return gone()
		case <-again.C:
			ask()
		case <-late.C:
			why := fmt.Sprintf("a handler did not unwind within %s", unwindTime)
			s.retire(w, why)
			return nil, errors.New(why)
		}
	}
}

// stopped is err, or that the call was cancelled before it began.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return failure(host.CodeCancelled, "the call was cancelled before it began")
	}
	return err
}
