package kernel

import (
	"encoding/json"
	"errors"
	"fmt"

	"cellblock/kernel/delegate"
	"cellblock/kernel/wire"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// hostCall answers a worker's call to the host. There is input, and what the
// policy lets through of it.
func (s *Session) hostCall(m *wire.Message) {
	s.mu.Lock()
	w := s.worker
	s.mu.Unlock()
	if w == nil {
		return
	}
	if m.Name != "input" || s.opts.Input == nil {
		why, rule, reason := s.refuse(m)
		refused := s.hostEvent(w, audit.OpHostCall, m.Name, audit.Denied)
		refused.Rule, refused.Reason = rule, reason
		s.record.refusedCall(refused)
		_ = w.conn.Reply(wire.Answer{ID: m.ID, Error: why})
		return
	}
	var asked struct {
		Prompt   string `json:"prompt"`
		Password bool   `json:"password"`
	}
	if err := json.Unmarshal(m.Arguments, &asked); err != nil {
		w.fail(&wire.ProtocolError{Rule: wire.RuleWrongType, Detail: "input: arguments"})
		return
	}
	if w.calls.Add(1) > wire.MaxHostCalls {
		w.fail(&wire.ProtocolError{Rule: wire.RuleTooMany, Detail: "host calls that wait for an answer"})
		return
	}
	go func() {
		defer w.calls.Add(-1)
		call := s.hostEvent(w, audit.OpHostCall, m.Name, audit.Allowed)
		call.Facts = map[string]any{"prompt": asked.Prompt, "hidden": asked.Password}
		if err := s.record.before(call); err != nil {
			_ = w.conn.Reply(wire.Answer{ID: m.ID, Error: &wire.HostError{Type: "HostError", Code: "denied", Message: err.Error()}})
			return
		}
		text, err := s.opts.Input(asked.Prompt, asked.Password)
		answered := s.hostEvent(w, audit.OpHostReturn, m.Name, audit.Allowed)
		answered.Cell, answered.Scope = call.Cell, call.Scope
		answer := wire.Answer{ID: m.ID, Value: text}
		if err != nil {
			answered.Decision, answered.Reason = audit.Incomplete, err.Error()
			answer = wire.Answer{ID: m.ID, Error: &wire.HostError{Type: "HostError", Code: "no-answer", Message: err.Error()}}
		}
		_ = s.record.write(answered) // answered already; the loss is counted and said
		_ = w.conn.Reply(answer)
	}()
}

// delegated starts what answers the query to which the policy delegates host calls.
func (s *Session) delegated() error {
	r := s.policy.Tools.Rego
	if r == nil {
		return nil
	}
	var err error
	switch {
	case len(r.Sources) == 0:
		err = errors.New("its modules have not been read")
	case s.opts.Rego == "":
		err = errors.New("no program is named that evaluates it: cellblock-rego is installed beside cellblock")
	default:
		s.rego, err = delegate.Start(s.opts.Rego, *r)
	}
	if err != nil {
		s.rego = nil
		return fmt.Errorf("policy %s: tools.rego: %w", s.policy.Name, err)
	}
	return nil
}

// decideTool is the decision on a host call. One that obliges to what nobody here
// carries out is none to act on.
func (s *Session) decideTool(op policy.ToolOp) policy.Decision {
	var rego policy.Evaluator
	if s.rego != nil {
		rego = s.rego
	}
	d := s.policy.DecideTool(op, rego)
	if d.Allowed() && len(d.Obligations) > 0 {
		d = policy.Decision{Effect: policy.Deny, Rule: d.Rule, Enforced: true, Line: d.Line,
			Reason: fmt.Sprintf("it is allowed with the obligation %s, which this launcher cannot carry out", d.Obligations[0])}
	}
	return d
}

// refuse says why a host call is not carried out: the policy denies it, or there
// is no tool of this name.
func (s *Session) refuse(m *wire.Message) (why *wire.HostError, rule, reason string) {
	d := s.decideTool(policy.ToolOp{Session: s.name, Tool: m.Name, Role: "sandbox", Purpose: "interactive", Arguments: m.Arguments})
	if !d.Allowed() {
		return &wire.HostError{Type: "HostError", Code: "denied",
			Message: fmt.Sprintf("host call %q is not permitted: %s (%s)", m.Name, d.Reason, d.Rule)}, d.Rule, d.Reason
	}
	const absent = "there is no tool of this name"
	return &wire.HostError{Type: "HostError", Code: "unknown", Message: fmt.Sprintf("host call %q: %s", m.Name, absent)}, "host.absent", absent
}
