package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"cellblock/kernel/host"
)

// QuestionKind says what a run waits for.
type QuestionKind string

// The kinds of questions.
const (
	// AskHostCall is a call of a tool that has no Do: Answer.Value or Answer.Error.
	AskHostCall QuestionKind = "host-call"
	// AskInput is input() or getpass(): Answer.Text or Answer.Error.
	AskInput QuestionKind = "input"
	// AskApproval is a call that the policy wants confirmed: Answer.Approved.
	AskApproval QuestionKind = "approval"
	// AskIndeterminate is a call that was begun, and of which nobody knows whether it
	// was done: Answer.Value, Answer.Error, or Answer.Again.
	AskIndeterminate QuestionKind = "indeterminate"
)

// Question is what a run waits for.
type Question struct {
	ID   string       `json:"id"` // unique within the run
	Kind QuestionKind `json:"kind"`
	// Call is the host call, of all kinds but AskInput.
	Call *host.Call `json:"call,omitempty"`
	// Approval is what is to be approved. It expires, and the question with it.
	Approval *host.Approval `json:"approval,omitempty"`
	// Error is what the tool said of an outcome that is not known; nil after a restart.
	Error *host.Error `json:"error,omitempty"`
	// Prompt and Hidden are those of AskInput; getpass() wants nothing shown.
	Prompt string `json:"prompt,omitempty"`
	Hidden bool   `json:"hidden,omitempty"`
}

// question is one that is asked.
type question struct {
	Question
	answer chan Answer // takes one without waiting
}

func (q *question) shown() Question { return q.Question }

// takes reports what is wrong with an answer.
func (q *question) takes(a Answer) error {
	wrong := func(why string) error { return fmt.Errorf("%w %q: %s", ErrAnswer, a.ID, why) }
	switch {
	case a.Again && q.Kind != AskIndeterminate:
		return wrong("only a call whose outcome is not known is carried out again")
	case len(a.Value) > 0 && q.Kind != AskHostCall && q.Kind != AskIndeterminate:
		return wrong(fmt.Sprintf("a question of kind %s takes no value", q.Kind))
	case a.Approved && q.Kind != AskApproval:
		return wrong(fmt.Sprintf("a question of kind %s is not approved", q.Kind))
	case len(a.Value) > 0 && !json.Valid(a.Value):
		return wrong("the value is not JSON")
	case len(a.Value) > 0 && a.Error != nil, a.Again && (len(a.Value) > 0 || a.Error != nil), a.Approved && a.Error != nil:
		return wrong("it says two things at once")
	}
	return nil
}

// ask waits for the host's answer. The error is that of ctx.
func (r *Run) ask(ctx context.Context, q Question) (Answer, error) {
	r.mu.Lock()
	r.asked++
	q.ID = questionID(r.asked)
	r.mu.Unlock()
	r.emit(Event{Kind: EventAsked, Question: q.ID})
	open := &question{q, make(chan Answer, 1)}
	r.mu.Lock()
	r.open = append(r.open, open)
	r.happened()
	r.mu.Unlock()
	select {
	case a := <-open.answer:
		r.emit(Event{Kind: EventAnswered, Question: q.ID})
		return a, nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	for i, o := range r.open {
		if o == open {
			r.open = append(r.open[:i:i], r.open[i+1:]...)
			break
		}
	}
	r.mu.Unlock()
	select {
	case a := <-open.answer: // it came in time
		r.emit(Event{Kind: EventAnswered, Question: q.ID})
		return a, nil
	default:
	}
	r.emit(Event{Kind: EventWithdrawn, Question: q.ID})
	return Answer{}, ctx.Err()
}

// drives reports whether the host answers what the call asks, step by step.
func (r *Run) drives() bool { return r != nil && r.driven }

// asks reports whether anybody answers input() of the session's cells.
func (s *Session) asks(r *Run) bool { return r.drives() || s.opts.Input != nil }

// line has input() or getpass() answered.
func (s *Session) line(ctx context.Context, r *Run, d *decision, prompt string, hidden bool) (string, error) {
	if !r.drives() {
		type reply struct {
			text string
			err  error
		}
		replies := make(chan reply, 1)
		go func() { // what it answers after the cell has ended is dropped
			text, err := s.opts.Input(prompt, hidden)
			replies <- reply{text, err}
		}()
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case got := <-replies:
			return got.text, got.err
		}
	}
	if text, known, err := r.journal.line(d); known {
		return text, err
	}
	a, err := r.ask(ctx, Question{Kind: AskInput, Prompt: prompt, Hidden: hidden})
	if err != nil {
		return "", err
	}
	if a.Error != nil {
		r.journal.set(d, stateDone, nil, a.Error)
		return "", a.Error
	}
	r.journal.set(d, stateDone, marshal(a.Text), nil)
	return a.Text, nil
}

// request completes a host call with what answers it.
func (s *Session) request(r *Run, d *decision, q host.Request) host.Request {
	if r != nil {
		q.Record = runRecord{q.Record, r}
	}
	if !r.drives() {
		q.Approve = s.opts.Approve
		return q
	}
	q.Answer = func(ctx context.Context, c host.Call) (json.RawMessage, error) {
		// Nothing has been done as long as nobody has answered.
		r.journal.wait(d)
		a, err := r.ask(ctx, Question{Kind: AskHostCall, Call: &c})
		return answered(a, err)
	}
	q.Approve = func(ctx context.Context, a host.Approval) (bool, error) {
		if approved, known := r.journal.approved(d, a); known {
			return approved, nil
		}
		got, err := r.ask(ctx, Question{Kind: AskApproval, Call: &a.Call, Approval: &a})
		switch {
		case err != nil:
			return false, err
		case got.Error != nil:
			return false, got.Error
		}
		r.journal.approve(d, a, got.Approved)
		return got.Approved, nil
	}
	q.Around = func(ctx context.Context, c host.Call, do func(context.Context, host.Call) (json.RawMessage, error)) (json.RawMessage, error) {
		return r.around(ctx, d, c, do)
	}
	return q
}

// around carries a call out whose outcome is not known yet, and no other. Whether
// one is done again whose outcome nobody knows is the host's to say.
func (r *Run) around(ctx context.Context, d *decision, c host.Call, do func(context.Context, host.Call) (json.RawMessage, error)) (json.RawMessage, error) {
	state, known, failed := r.journal.look(d)
	if state == stateDone {
		if failed != nil {
			return nil, failed
		}
		return known, nil
	}
	for unknown, why := state == stateBegun, (*host.Error)(nil); ; {
		if unknown {
			a, err := r.ask(ctx, Question{Kind: AskIndeterminate, Call: &c, Error: why})
			if err != nil {
				return nil, &host.Error{Code: host.CodeIndeterminate, Message: "it was begun, and nobody has said whether it was done"}
			}
			if !a.Again {
				return r.journal.outcome(ctx, d, a.Value, asError(a.Error))
			}
		}
		r.journal.start(d)
		v, err := do(ctx, c)
		if errors.As(err, &why) && why.Code == host.CodeIndeterminate && ctx.Err() == nil {
			unknown = true
			continue
		}
		return r.journal.outcome(ctx, d, v, err)
	}
}

// answered is an answer as a tool gives it.
func answered(a Answer, err error) (json.RawMessage, error) {
	switch {
	case err != nil:
		return nil, err
	case a.Error != nil:
		return nil, a.Error
	case len(a.Value) == 0:
		return json.RawMessage("null"), nil
	}
	return a.Value, nil
}

// asError keeps a nil *host.Error from becoming an error that is not nil.
func asError(e *host.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// runRecord tells the run of what the record is told.
type runRecord struct {
	host.Recorder
	run *Run
}

// Refused implements host.Recorder.
func (r runRecord) Refused(c host.Call, rule, reason string) {
	r.Recorder.Refused(c, rule, reason)
	r.run.emit(Event{Kind: EventRefused, Call: c.ID, Tool: c.Tool, Rule: rule})
}

// Before implements host.Recorder.
func (r runRecord) Before(c host.Call, g host.Grant) error {
	err := r.Recorder.Before(c, g)
	if err == nil {
		r.run.emit(Event{Kind: EventCall, Call: c.ID, Tool: c.Tool})
	}
	return err
}

// After implements host.Recorder.
func (r runRecord) After(c host.Call, o host.Outcome) {
	r.Recorder.After(c, o)
	e := Event{Kind: EventReturn, Call: c.ID, Tool: c.Tool}
	if o.Error != nil {
		e.Code = o.Error.Code
	}
	r.run.emit(e)
}
