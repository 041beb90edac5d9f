package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cellblock/policy/schema"
)

// ToolOp is one host call to decide.
type ToolOp struct {
	Session string `json:"session"`
	Tool    string `json:"tool"`
	Role    string `json:"role"`
	Purpose string `json:"purpose"`
	// Arguments are a JSON object; empty counts as one without members.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Action is what the tool's preflight declared it will do.
	Action json.RawMessage `json:"action,omitempty"`
	// Calls counts the calls of this tool that the session has made before.
	Calls int64 `json:"calls"`
}

// Evaluator answers the query that a document delegates to. It is pure as well:
// its input is the operation alone. An error, which includes a timeout and an
// undefined result, is a denial.
type Evaluator interface {
	Evaluate(op ToolOp) (effect Effect, reasons []string, obligations []Obligation, err error)
}

// DecideTool decides one host call. A rule that denies wins; then some rule must
// allow it, or the default, and one that wants it confirmed wins over those that only
// allow; then the query that the document delegates to, if it has one, must allow it
// too. Without an evaluator such a document denies.
func (p Policy) DecideTool(op ToolOp, rego Evaluator) Decision {
	d := p.Tools.decide(op)
	if !d.Allowed() || p.Tools.Rego == nil {
		return d
	}
	deny := func(reason string) Decision {
		return Decision{Effect: Deny, Rule: "tools.rego", Reason: reason, Enforced: true, Line: p.Tools.Rego.Line}
	}
	if rego == nil {
		return deny("the policy delegates host calls to a query, and there is nothing here that evaluates it")
	}
	effect, reasons, obligations, err := rego.Evaluate(op)
	switch {
	case err != nil:
		return deny("the query failed: " + err.Error())
	case effect != Allow:
		return deny(orText(strings.Join(reasons, "; "), p.Tools.Rego.Reason))
	}
	return Decision{Effect: Allow, Rule: "tools.rego", Reason: orText(strings.Join(reasons, "; "), p.Tools.Rego.Reason),
		Obligations: both(d.Obligations, obligations), Line: p.Tools.Rego.Line}
}

// both are the obligations of the rules and of the query, each once.
func both(a, b []Obligation) []Obligation {
	all := slices.Clone(a)
	for _, o := range b {
		if !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

// decide is DecideTool for the rules alone. A host call is carried out by the
// launcher, so a denial holds in every mode.
func (t ToolsPart) decide(op ToolOp) Decision {
	arguments := op.Arguments
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = json.RawMessage("{}")
	}
	deny := func(rule, reason string, line int) Decision {
		d := Decision{Effect: Deny, Rule: rule, Reason: reason, Enforced: true, Line: line}
		for _, r := range t.Rules {
			if r.Effect != Deny && !slices.Contains(d.Nearest, r.Tool) && len(d.Nearest) < maxNearest {
				d.Nearest = append(d.Nearest, r.Tool)
			}
		}
		return d
	}
	value, err := schema.Read(arguments)
	if err != nil {
		return deny("tools.arguments", "the arguments cannot be read: "+err.Error(), 0)
	}
	for _, r := range t.Rules {
		if r.Effect != Deny || !r.about(op) {
			continue
		}
		// What cannot be held against the schema is denied.
		if unknown, mismatch := r.check(value); mismatch == nil || unknown {
			return deny(r.ID, r.Reason, r.Line)
		}
	}
	var near *ToolRule
	var why string
	// Those that want a confirmation first: where one speaks of these arguments, no
	// other rule lets them through without it.
	for _, effect := range []Effect{Confirm, Allow} {
		for i, r := range t.Rules {
			if r.Effect != effect || !r.about(op) {
				continue
			}
			unknown, mismatch := r.check(value)
			over := r.Limits.over(op, len(arguments))
			switch {
			case mismatch != nil && !(unknown && effect == Confirm):
				near, why = &t.Rules[i], "the arguments are not what the rule allows: "+mismatch.Error()
			case over != "" && effect == Confirm:
				return deny(r.ID, over, r.Line)
			case over != "":
				near, why = &t.Rules[i], over
			case effect == Confirm:
				return Decision{Effect: Allow, Rule: r.ID, Reason: r.Reason, Obligations: []Obligation{ObligeConfirm}, Line: r.Line}
			default:
				return Decision{Effect: Allow, Rule: r.ID, Reason: r.Reason, Line: r.Line}
			}
		}
	}
	switch {
	case near != nil:
		return deny(near.ID, why, near.Line)
	case t.Default == Allow:
		return Decision{Effect: Allow, Rule: "default.tools", Reason: "host calls are open but for what a rule denies"}
	}
	return deny("default.tools", "no rule allows this host call", 0)
}

// over says which limit a call exceeds; empty for none.
func (l ToolLimits) over(op ToolOp, size int) string {
	switch {
	case l.ArgumentBytes > 0 && int64(size) > l.ArgumentBytes:
		return fmt.Sprintf("the arguments have %d bytes, at most %d are allowed", size, l.ArgumentBytes)
	case l.Calls > 0 && op.Calls >= l.Calls:
		return fmt.Sprintf("%d calls are allowed in a session, and were made", l.Calls)
	}
	return ""
}

// Looks reports whether the decision on a call depends on what it brings: its
// arguments, or how many there were before.
func (t ToolsPart) Looks(op ToolOp) bool {
	return t.Rego != nil || slices.ContainsFunc(t.Rules, func(r ToolRule) bool {
		return r.about(op) && (len(r.Schema) > 0 || r.Limits != ToolLimits{})
	})
}

// about reports whether the rule speaks of this call.
func (r ToolRule) about(op ToolOp) bool {
	namespace, all := strings.CutSuffix(r.Tool, "*")
	if r.Tool != op.Tool && !(all && strings.HasPrefix(op.Tool, namespace) && len(op.Tool) > len(namespace)) {
		return false
	}
	return (len(r.Roles) == 0 || slices.Contains(r.Roles, op.Role)) &&
		(len(r.Purposes) == 0 || slices.Contains(r.Purposes, op.Purpose))
}

// check holds the arguments against the rule's schema; unknown says that it cannot be
// said: a number is not exact enough, or the schema, which Parse would have refused,
// cannot be read.
func (r ToolRule) check(arguments schema.Value) (unknown bool, mismatch error) {
	if len(r.Schema) == 0 {
		return false, nil
	}
	s, err := schema.Strict(r.Schema)
	if err != nil {
		return true, err
	}
	err = s.Check(arguments)
	return errors.Is(err, schema.ErrInexact), err
}
