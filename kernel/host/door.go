package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cellblock/policy"
)

// Bounds of host calls.
const (
	MaxOpen         = 64       // calls of one session that are being carried out
	MaxArguments    = 1 << 20  // bytes of a call's arguments
	MaxResult       = 8 << 20  // bytes of its result
	maxAction       = 64 << 10 // bytes of what a preflight declares
	maxMessage      = 64 << 10 // bytes of an error's text
	DefaultApproval = 5 * time.Minute
)

// Config says what a door asks before a call is carried out. Decide is required.
type Config struct {
	// Decide is the policy's decision on a call.
	Decide func(policy.ToolOp) policy.Decision
	// Check reports what keeps a result from being JSON that a worker takes.
	Check func([]byte) error
	// ApprovalTime is how long an approval may be waited for, and holds; 0 is
	// DefaultApproval.
	ApprovalTime time.Duration
}

// Door is the one way to a session's tools. Its methods may be called from
// several goroutines.
type Door struct {
	config Config

	mu     sync.Mutex
	tools  map[string]*entry
	made   map[string]int64  // calls of a tool that were let through, or are being looked at
	open   map[string]*doing // calls that are being looked at or carried out
	closed bool
}

// doing is a call between its first look and the return of its tool.
type doing struct {
	call     Call
	record   Recorder
	began    bool // the tool has the call
	answered bool // the caller has its answer
	left     bool // the door was closed without waiting for it
	recorded bool // what became of it
	done     chan struct{}
}

// Request is a call as it comes to the door.
type Request struct {
	Identity  Identity
	Tool      string
	Arguments json.RawMessage // a JSON object
	Chain     []string
	// Answer carries out calls of tools without Do, as Tool.Do does; nil when
	// nobody does.
	Answer func(ctx context.Context, c Call) (json.RawMessage, error)
	// Around, when it is there, is called in place of the tool, which it may call: it
	// knows an outcome already, or keeps it.
	Around func(ctx context.Context, c Call, do func(context.Context, Call) (json.RawMessage, error)) (json.RawMessage, error)
	// Approve answers where the policy obliges to confirm; nil when nobody does.
	Approve func(ctx context.Context, a Approval) (approved bool, err error)
	// Record takes what is decided and done; nil for no record.
	Record Recorder
}

// Recorder keeps the record of calls.
type Recorder interface {
	// Refused takes a call that is not carried out.
	Refused(c Call, rule, reason string)
	// Before takes a call that is about to be carried out; it is not when an error
	// comes back.
	Before(c Call, g Grant) error
	// After takes what became of it.
	After(c Call, o Outcome)
}

// Grant says what let a call through.
type Grant struct {
	Rule, Reason string
	Action       json.RawMessage // that the tool declared; empty for none
	Approval     string          // id of the approval; empty where none was needed
}

// Outcome is what became of a call that was begun. Error is nil for a result.
type Outcome struct {
	Error *Error
	Late  bool // its caller was not there any more
}

// numbered counts calls within the launcher's life.
var numbered atomic.Int64

// NewDoor makes a door without tools.
func NewDoor(c Config) *Door {
	if c.ApprovalTime <= 0 {
		c.ApprovalTime = DefaultApproval
	}
	if c.Check == nil {
		c.Check = func(b []byte) error {
			if !json.Valid(b) {
				return errors.New("no JSON")
			}
			return nil
		}
	}
	return &Door{config: c, tools: map[string]*entry{}, made: map[string]int64{}, open: map[string]*doing{}}
}

// Call has one call carried out, or says why it is not. When ctx ends it returns at
// once; the tool, which has the same ctx, may take longer, and its outcome is
// recorded when it is known.
func (d *Door) Call(ctx context.Context, r Request) (value json.RawMessage, failed *Error) {
	answered := make(chan struct{})
	go d.Serve(ctx, r, func(v json.RawMessage, f *Error) {
		value, failed = v, f
		close(answered)
	})
	<-answered
	return value, failed
}

// Serve is Call for a caller with a goroutine to spare: it returns when the tool has
// returned. answer is called once: with the outcome, or as soon as ctx has ended, and then
// from another goroutine.
func (d *Door) Serve(ctx context.Context, r Request, answer func(json.RawMessage, *Error)) {
	c := Call{ID: fmt.Sprintf("h%d", numbered.Add(1)), Identity: r.Identity, Tool: r.Tool, Arguments: slices.Clone(r.Arguments), Chain: slices.Clone(r.Chain)}
	if r.Record == nil {
		r.Record = noRecord{}
	}
	now := &doing{call: c, record: r.Record, done: make(chan struct{})}
	tool, refused := d.enter(now)
	if refused != nil {
		r.Record.Refused(c, refused.rule, refused.reason)
		answer(nil, refused.error(c))
		return
	}
	// A tool that does not heed ctx holds up nothing but its own place among the open calls.
	stop := context.AfterFunc(ctx, func() {
		if d.answers(now, true) {
			answer(nil, cancelled(c))
		}
	})
	value, failed := d.through(ctx, tool, now, r)
	close(now.done)
	stop()
	if d.answers(now, false) {
		answer(value, failed)
	}
}

// answers says whether whoever asks is the one that answers a call: the first, and nobody
// early once the record has what the tool returned.
func (d *Door) answers(now *doing, early bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if early && now.recorded {
		return false
	}
	first := !now.answered
	now.answered = true
	return first
}

// through goes the whole way: the decision, the record before, the tool, the record
// after.
func (d *Door) through(ctx context.Context, tool *entry, now *doing, r Request) (json.RawMessage, *Error) {
	grant, refused := d.decided(ctx, tool, now.call, r)
	if refused != nil {
		d.leave(now)
		now.record.Refused(now.call, refused.rule, refused.reason)
		return nil, refused.error(now.call)
	}
	if err := now.record.Before(now.call, grant); err != nil {
		d.leave(now)
		return nil, &Error{Type: "HostError", Code: CodeDenied, Message: err.Error()}
	}
	d.mu.Lock()
	now.began = !d.closed
	d.mu.Unlock()
	if !now.began {
		failed := cancelled(now.call)
		d.finish(now, failed)
		return nil, failed
	}
	do := tool.Do
	if do == nil {
		do = r.Answer
	}
	if tool := do; r.Around != nil {
		do = func(ctx context.Context, c Call) (json.RawMessage, error) { return r.Around(ctx, c, tool) }
	}
	value, failed := d.run(ctx, do, now.call)
	d.finish(now, failed)
	return value, failed
}

// run calls a tool and makes its outcome one that a worker can be told.
func (d *Door) run(ctx context.Context, do func(context.Context, Call) (json.RawMessage, error), c Call) (value json.RawMessage, failed *Error) {
	defer func() {
		if p := recover(); p != nil { // a tool's fault must not take every session with it
			value, failed = nil, &Error{Type: "HostError", Code: CodeIndeterminate, Message: fmt.Sprintf("the tool broke off: %v", p)}
		}
	}()
	value, err := do(ctx, c)
	if err != nil {
		return nil, d.told(ctx, c, err)
	}
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	switch err := d.config.Check(value); {
	case len(value) > MaxResult:
		return nil, &Error{Type: "HostError", Code: CodeTooLarge, Message: fmt.Sprintf("the result has %d bytes, at most %d are passed on", len(value), MaxResult)}
	case err != nil:
		return nil, &Error{Type: "HostError", Code: CodeFailed, Message: "the tool's result is not JSON: " + err.Error()}
	}
	return value, nil
}

// told is a tool's error as a worker sees it.
func (d *Door) told(ctx context.Context, c Call, err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		e = &Error{Type: e.Type, Code: e.Code, Message: e.Message, Fields: e.Fields}
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return cancelled(c)
	default:
		e = &Error{Message: err.Error()}
	}
	if e.Type == "" {
		e.Type = "HostError"
	}
	if e.Code == "" {
		e.Code = CodeFailed
	}
	if len(e.Message) > maxMessage {
		e.Message = e.Message[:maxMessage] + " …"
	}
	if len(e.Fields) > 0 && (len(e.Fields) > MaxResult || !isObject(e.Fields) || d.config.Check(e.Fields) != nil) {
		e.Fields = nil
		e.Message += " (its fields could not be passed on)"
	}
	return e
}

// enter finds the call's tool and takes a place among the open calls.
func (d *Door) enter(now *doing) (*entry, *refusal) {
	c := now.call
	if len(c.Arguments) > MaxArguments {
		return nil, &refusal{CodeTooLarge, "host.size", fmt.Sprintf("the arguments have %d bytes, at most %d are taken", len(c.Arguments), MaxArguments)}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, &refusal{CodeScopeClosed, "host.closed", "the session has been closed"}
	case len(d.open) >= MaxOpen:
		return nil, &refusal{CodeBusy, "host.busy", fmt.Sprintf("%d calls are being carried out, which is the most", MaxOpen)}
	}
	d.made[c.Tool]++
	d.open[c.ID] = now
	return d.tools[c.Tool], nil
}

// leave gives the place of a call that was not made back, and takes it out of the count.
func (d *Door) leave(now *doing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, now.call.ID)
	if d.made[now.call.Tool]--; d.made[now.call.Tool] <= 0 {
		delete(d.made, now.call.Tool) // names come from workers: keep none that was let through never
	}
}

// finish records the outcome of a call that was begun, once.
func (d *Door) finish(now *doing, failed *Error) {
	d.mu.Lock()
	_, there := d.open[now.call.ID]
	delete(d.open, now.call.ID)
	late := now.answered || now.left
	now.recorded = true
	d.mu.Unlock()
	if there {
		now.record.After(now.call, Outcome{Error: failed, Late: late})
	}
}

// Close refuses further calls and waits until the open ones have returned, or grace
// has ended. Of those that have not it is recorded that nobody knows what became of
// them. Their contexts are the callers' to end.
func (d *Door) Close(grace <-chan time.Time) {
	if d == nil {
		return
	}
	d.mu.Lock()
	d.closed = true
	var left []*doing
	for _, now := range d.open {
		if now.began {
			left = append(left, now)
		}
	}
	d.mu.Unlock()
	for _, now := range left {
		select {
		case <-now.done:
			continue
		case <-grace:
			grace = ended
		}
		d.mu.Lock()
		now.left = true
		d.mu.Unlock()
		d.finish(now, &Error{Type: "HostError", Code: CodeIndeterminate, Message: "the session was closed before it returned"})
	}
}

// ended is a grace that is over for everybody who asks again.
var ended = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

func cancelled(c Call) *Error {
	return &Error{Type: "HostError", Code: CodeCancelled, Message: fmt.Sprintf("host call %q was cancelled", c.Tool)}
}

type noRecord struct{}

func (noRecord) Refused(Call, string, string) {}
func (noRecord) Before(Call, Grant) error     { return nil }
func (noRecord) After(Call, Outcome)          {}
