package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"cellblock/kernel/host"
	"cellblock/kernel/wire"
	"cellblock/policy/audit"
)

// Names of host calls that the launcher itself answers, whatever the policy says:
// what they do is part of running a cell.
const (
	callInput  = "input"
	callCancel = "host.cancel"
)

// hostCall takes a worker's call to the host. It is called by the goroutine that
// reads the wire, and never waits: each call is answered from one of its own.
func (s *Session) hostCall(w *worker, m *wire.Message) {
	if w.calls.Add(1) > wire.MaxUnread {
		w.fail(&wire.ProtocolError{Rule: wire.RuleTooMany, Detail: "host calls whose answers have not been read"})
		return
	}
	answer := func(value json.RawMessage, failed *host.Error) {
		w.answers.put(answerTo(m, value, failed))
	}
	s.mu.Lock()
	e := s.running
	s.mu.Unlock()
	// Which cell runs in this worker is the launcher's to know; nothing in the
	// message can make it another one.
	if e.worker != w || e.scope == nil || m.Scope != e.scope.Identity().Scope {
		s.closedScope(w, m, answer)
		return
	}
	if e.restoring {
		// What it did once, when it was new, is not done again.
		refused := s.hostEvent(w, audit.OpHostCall, m.Name, audit.Denied)
		refused.Rule, refused.Reason = "host.restore", "a definition that is restored calls nothing"
		s.record.refusedCall(refused)
		answer(nil, &host.Error{Type: "HostError", Code: host.CodeDenied, Message: fmt.Sprintf("host call %q: %s; define it again", m.Name, refused.Reason)})
		return
	}
	if m.Name == callCancel {
		var asked struct {
			Call int64 `json:"call"`
		}
		if err := exactly(m.Arguments, &asked); err != nil {
			w.fail(&wire.ProtocolError{Rule: wire.RuleWrongType, Detail: callCancel + ": arguments"})
			return
		}
		answer(marshal(e.scope.Cancel(asked.Call)), nil)
		return
	}
	ctx, done, ok := e.scope.Begin(m.ID)
	if !ok {
		s.closedScope(w, m, answer)
		return
	}
	if m.Name == callInput && s.asks(e.run) {
		if !s.input(ctx, w, e, m, func(v json.RawMessage, f *host.Error) { done(); answer(v, f) }) {
			done()
			w.fail(&wire.ProtocolError{Rule: wire.RuleWrongType, Detail: "input: arguments"})
		}
		return
	}
	// Here, where calls come one after the other: their order is what a checkpoint
	// knows them by.
	d, err := e.run.decide(m.Name, m.Arguments, false)
	if err != nil {
		done()
		e.run.fail(err)
		answer(nil, &host.Error{Type: "HostError", Code: host.CodeCancelled, Message: err.Error()})
		return
	}
	go func() {
		if e.run.isHeard() || s.opts.Approve != nil {
			w.out.catchUp() // somebody may be shown both
		}
		q := s.request(e.run, d, host.Request{Identity: e.scope.Identity(), Tool: m.Name, Arguments: m.Arguments, Record: callRecord{s, w}})
		s.door.Serve(ctx, q, func(value json.RawMessage, failed *host.Error) {
			done()
			if failed != nil && failed.Code == host.CodeYield {
				e.scope.Yield()
			}
			w.answers.deliver(answerTo(m, value, failed))
		})
	}()
}

// closedScope answers a call for which no cell is there to make it.
func (s *Session) closedScope(w *worker, m *wire.Message, answer func(json.RawMessage, *host.Error)) {
	const why = "host calls are possible from the running cell alone, and it has ended or yielded"
	refused := s.hostEvent(w, audit.OpHostCall, m.Name, audit.Denied)
	refused.Rule, refused.Reason = "host.scope", why
	s.record.refusedCall(refused)
	answer(nil, &host.Error{Type: "HostError", Code: host.CodeScopeClosed, Message: fmt.Sprintf("host call %q: %s", m.Name, why)})
}

// input has a question of the cell answered; false when it is none.
func (s *Session) input(ctx context.Context, w *worker, e execution, m *wire.Message, answer func(json.RawMessage, *host.Error)) bool {
	var asked struct {
		Prompt   string `json:"prompt"`
		Password bool   `json:"password"`
	}
	if err := exactly(m.Arguments, &asked); err != nil {
		return false
	}
	if w.asks.Add(1) > wire.MaxHostCalls {
		w.asks.Add(-1)
		answer(nil, &host.Error{Type: "HostError", Code: host.CodeBusy, Message: "input: too many questions wait for an answer"})
		return true
	}
	d, err := e.run.decide(m.Name, m.Arguments, asked.Password)
	if err != nil {
		w.asks.Add(-1)
		e.run.fail(err)
		answer(nil, &host.Error{Type: "HostError", Code: host.CodeCancelled, Message: err.Error()})
		return true
	}
	call := s.hostEvent(w, audit.OpHostCall, m.Name, audit.Allowed)
	call.Cell, call.Scope = e.scope.Identity().Cell, e.scope.Identity().Scope
	call.Facts = map[string]any{"prompt": asked.Prompt, "hidden": asked.Password}
	go func() {
		defer w.asks.Add(-1)
		w.out.catchUp()
		if err := s.record.before(call); err != nil {
			answer(nil, &host.Error{Type: "HostError", Code: host.CodeDenied, Message: err.Error()})
			return
		}
		text, err := s.line(ctx, e.run, d, asked.Prompt, asked.Password)
		var failed *host.Error
		switch {
		case err != nil && ctx.Err() != nil:
			failed = &host.Error{Type: "HostError", Code: host.CodeCancelled, Message: "input: the cell asks no longer"}
		case errors.As(err, &failed):
			failed = &host.Error{Type: "HostError", Code: failed.Code, Message: failed.Message}
		case err != nil:
			failed = &host.Error{Type: "HostError", Code: host.CodeNoAnswer, Message: err.Error()}
		}
		answered := s.hostEvent(w, audit.OpHostReturn, m.Name, audit.Allowed)
		answered.Cell, answered.Scope = call.Cell, call.Scope
		if failed != nil {
			answered.Decision, answered.Reason = audit.Incomplete, failed.Message
		}
		_ = s.record.write(answered) // answered already; the loss is counted and said
		answer(marshal(text), failed)
	}()
	return true
}

// exactly decodes arguments that may have no other fields.
func exactly(arguments json.RawMessage, to any) error {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

// answerTo is the launcher's line for a call's outcome.
func answerTo(m *wire.Message, value json.RawMessage, failed *host.Error) wire.Answer {
	a := wire.Answer{ID: m.ID, Scope: m.Scope}
	if failed != nil {
		a.Error = &wire.HostError{Type: failed.Type, Code: failed.Code, Message: failed.Message, Fields: failed.Fields}
		return a
	}
	a.Value = value
	return a
}

// closeScope ends the authority of a cell whose reply has come, before anything
// that its worker may have sent after it is looked at.
func (s *Session) closeScope(w *worker, number int64) {
	s.mu.Lock()
	e := s.running
	s.mu.Unlock()
	if e.worker == w && e.number == number && e.scope != nil {
		e.scope.Close()
	}
}

// callRecord keeps the record of calls that come by one worker's wire.
type callRecord struct {
	s *Session
	w *worker
}

func (r callRecord) event(op, decision string, c host.Call) audit.Record {
	e := r.s.hostEvent(r.w, op, c.Tool, decision)
	e.Generation, e.Cell, e.Scope = c.Identity.Generation, c.Identity.Cell, c.Identity.Scope
	e.Facts = map[string]any{audit.FactCall: c.ID}
	if c.Identity.Role != host.RoleSandbox {
		e.Facts[audit.FactRole] = string(c.Identity.Role)
		e.PID, e.Program = 0, "" // of the sandbox worker, which did not make it
	}
	if c.Identity.Purpose != host.Interactive {
		e.Facts[audit.FactPurpose] = string(c.Identity.Purpose)
	}
	if len(c.Chain) > 0 {
		e.Facts["chain"] = c.Chain
	}
	return e
}

// Refused implements host.Recorder.
func (r callRecord) Refused(c host.Call, rule, reason string) {
	e := r.event(audit.OpHostCall, audit.Denied, c)
	e.Rule, e.Reason = rule, reason
	delete(e.Facts, audit.FactCall) // equal ones are counted, and it would be the first one's
	r.s.record.refusedCall(e)
}

// Before implements host.Recorder. Arguments are named by their digest: they may
// hold what nobody wants in a log.
func (r callRecord) Before(c host.Call, g host.Grant) error {
	if r.s.record == nil {
		return nil
	}
	e := r.event(audit.OpHostCall, audit.Allowed, c)
	e.Rule, e.Reason = g.Rule, g.Reason
	e.Facts["digest"], e.Facts["argumentBytes"] = host.Digest(c.Tool, c.Arguments, g.Action), len(c.Arguments)
	if g.Approval != "" {
		e.Facts["approval"] = g.Approval
	}
	return r.s.record.before(e)
}

// After implements host.Recorder.
func (r callRecord) After(c host.Call, o host.Outcome) {
	if r.s.record == nil {
		return
	}
	e := r.event(audit.OpHostReturn, audit.Allowed, c)
	if o.Error != nil {
		e.Decision, e.Reason = audit.Incomplete, o.Error.Error()
		e.Facts[audit.FactCode] = o.Error.Code
	}
	if o.Late {
		e.Facts["late"] = true
	}
	_ = r.s.record.write(e) // done already; the loss is counted and said
}
