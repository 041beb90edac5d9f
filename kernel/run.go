package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cellblock/kernel/host"
)

// Run is one call that the host drives: it takes steps, answers what the call
// waits for, and may cancel it. Its methods may be called from several goroutines.
//
//	run := s.Run(ctx, kernel.Call{Code: `name = input("who? ")`})
//	step, err := run.Step(ctx)
//	for err == nil && step.State != kernel.Finished {
//		var answers []kernel.Answer
//		for _, q := range step.Waiting {
//			answers = append(answers, kernel.Answer{ID: q.ID, Text: "Ada"})
//		}
//		step, err = run.Step(ctx, answers...)
//	}
//
// The time limit of the cell counts while the run waits. A host that takes no
// steps slows the cell down once 1 MiB of events wait for it; it loses none.
type Run struct {
	session *Session
	call    Call
	driven  bool // by steps; else the session's options answer
	begin   func(context.Context) (end func(), err error)
	ctx     context.Context
	cancel  context.CancelFunc
	over    chan struct{} // closed when the result is there

	order     sync.Mutex // held while an event gets its number and goes to the sink
	last      int64      // number of the newest event
	unsettled []Event    // that end what was begun, unless something else does before

	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, when something has happened
	events  []Event       // that no step has returned
	held    int           // bytes of their texts
	loose   bool          // the cell has come back: events wait for nobody
	ended   bool          // no event but the last one follows
	known   bool          // the result is there, and the last event
	open    []*question   // that wait for an answer, in the order they were asked
	asked   int           // questions so far; their ids are q1 to this
	fresh   bool          // something has happened since the last step
	told    bool          // a step has returned the end
	result  Result
	failed  error
	journal journal
}

// State of a run after a step.
type State string

// The states.
const (
	Progress State = "progress" // events, and nothing that wants an answer
	Waiting  State = "waiting"  // the call, or a part of it, waits for answers
	Finished State = "finished" // the result is there
)

// Step is what a step returns.
type Step struct {
	State   State
	Events  []Event    // since the step before
	Waiting []Question // all that are unanswered
	Result  *Result    // once it has finished
}

// ErrRunEnded says that a step has returned the end of the run already; Continue
// repeats it.
var ErrRunEnded = errors.New("run: it has ended, and its end has been returned; Continue repeats that")

// ErrAnswer says that an answer fits no question of the run. Nothing was answered.
var ErrAnswer = errors.New("run: answer")

// Run begins a call that the host drives. It runs until it ends by itself, ctx
// ends or Cancel is called, also when nobody takes steps.
func (s *Session) Run(ctx context.Context, c Call) *Run {
	r := newRun(ctx, s, c, true)
	go r.play()
	return r
}

func newRun(ctx context.Context, s *Session, c Call, driven bool) *Run {
	r := &Run{session: s, call: c, driven: driven, over: make(chan struct{}), changed: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(ctx)
	if driven {
		r.journal.begin(c)
	}
	return r
}

// play carries the call out. It is the one way of every call.
func (r *Run) play() {
	defer r.cancel()
	c := r.call
	c.run = r
	if r.driven || c.Events != nil {
		own := c.Output
		c.Output = func(stream, text string) {
			if own != nil {
				own(stream, text)
			}
			r.emit(Event{Kind: EventOutput, Stream: stream, Text: text})
		}
	}
	var result Result
	if end, err := r.enter(); err != nil {
		result = r.session.notStarted(errStopped{err})
	} else {
		result = r.session.call(r.ctx, c)
		end()
	}
	r.session.record.noteIn(&result)
	r.journal.rest(&result)
	r.end(result)
}

// enter waits for the run's place in its batch, if it is in one.
func (r *Run) enter() (end func(), err error) {
	if r.begin == nil {
		return func() {}, nil
	}
	return r.begin(r.ctx)
}

// happened tells everybody who waits; the caller holds mu.
func (r *Run) happened() {
	r.fresh = true
	close(r.changed)
	r.changed = make(chan struct{})
}

// Step gives answers, and waits until something happens that no step has returned:
// events, a question, or the end. Without that it returns at once only when it has
// given answers and others are still wanted. When ctx ends first, Step returns its
// error and the run goes on. The error is ErrAnswer when an answer fits no question;
// an answer to a question that was withdrawn meanwhile is dropped. A run whose
// checkpoint does not fit returns its end together with a *MismatchError.
func (r *Run) Step(ctx context.Context, answers ...Answer) (Step, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told {
		return Step{}, ErrRunEnded
	}
	if err := r.give(answers); err != nil {
		return Step{}, err
	}
	gave := len(answers) > 0
	for !r.fresh && (!gave || len(r.open) == 0) {
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
			r.mu.Lock()
		case <-ctx.Done():
			r.mu.Lock()
			return Step{}, ctx.Err()
		}
		if r.told { // another goroutine has got the end
			return Step{}, ErrRunEnded
		}
	}
	step := Step{State: Progress, Events: r.events}
	r.events, r.held, r.fresh = nil, 0, false
	close(r.changed) // there is room for events again
	r.changed = make(chan struct{})
	if r.known {
		r.told = true
		step.State, step.Result = Finished, r.copyOfResult()
		return step, r.failed
	}
	for _, q := range r.open {
		step.Waiting = append(step.Waiting, q.shown())
	}
	if len(step.Waiting) > 0 {
		step.State = Waiting
	}
	return step, nil
}

// Answer gives answers, as Step does, and waits for nothing.
func (r *Run) Answer(answers ...Answer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.give(answers)
}

// Continue is Step without answers that repeats the end of a run, without its
// events, as often as it is asked.
func (r *Run) Continue(ctx context.Context) (Step, error) {
	step, err := r.Step(ctx)
	if !errors.Is(err, ErrRunEnded) {
		return step, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Step{State: Finished, Result: r.copyOfResult()}, r.failed
}

func (r *Run) copyOfResult() *Result {
	result := r.result
	result.Content = slices.Clone(result.Content)
	return &result
}

// Cancel interrupts the call, and kills its worker if it does not unwind in time.
// What it waits for is withdrawn. The end comes with a later step.
func (r *Run) Cancel() { r.cancel() }

// Done is closed when the run has ended.
func (r *Run) Done() <-chan struct{} { return r.over }

// Result is what the run came to, once Done is closed; nil before. It takes no step: the
// end comes with one all the same.
func (r *Run) Result() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		return nil
	}
	return r.copyOfResult()
}

// fail ends the run with an error of its own.
func (r *Run) fail(err error) {
	r.mu.Lock()
	if r.failed == nil {
		r.failed = err
	}
	r.mu.Unlock()
	r.cancel()
}

// Answer answers one question, named by its ID.
type Answer struct {
	ID string
	// Value is the result of a host call; none is null.
	Value json.RawMessage
	// Text answers input() and getpass().
	Text string
	// Approved answers an approval.
	Approved bool
	// Again carries a call out whose outcome is not known: the host says by it that
	// doing it twice does no harm, or that it was not done.
	Again bool
	// Error is what the cell gets instead of an answer; of an approval, why there is
	// none.
	Error *host.Error
}

// hasAsked reports whether a question has had this id. A cell may ask and withdraw as
// often as it likes: nothing is kept of each. The caller holds mu.
func (r *Run) hasAsked(id string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "q"))
	return err == nil && n >= 1 && n <= r.asked && id == questionID(n)
}

func questionID(n int) string { return "q" + strconv.Itoa(n) }

// give hands answers out, all or none; the caller holds mu.
func (r *Run) give(answers []Answer) error {
	to := make([]*question, len(answers))
	for i, a := range answers {
		if !r.hasAsked(a.ID) {
			return fmt.Errorf("%w %q: nothing of this id was asked", ErrAnswer, a.ID)
		}
		at := slices.IndexFunc(r.open, func(q *question) bool { return q.ID == a.ID })
		if at < 0 {
			continue // withdrawn, or answered: the events say which
		}
		if slices.Contains(to, r.open[at]) {
			return fmt.Errorf("%w %q: it is answered twice", ErrAnswer, a.ID)
		}
		if err := r.open[at].takes(a); err != nil {
			return err
		}
		to[i] = r.open[at]
	}
	for i, q := range to {
		if q != nil {
			r.open = slices.DeleteFunc(r.open, func(o *question) bool { return o == q })
			q.answer <- answers[i]
		}
	}
	return nil
}
