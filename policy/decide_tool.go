package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
// allow it, or the default; then the query that the document delegates to, if it
// has one, must allow it too. Without an evaluator such a document denies.
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
		Obligations: obligations, Line: p.Tools.Rego.Line}
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
			if r.Effect == Allow && !slices.Contains(d.Nearest, r.Tool) && len(d.Nearest) < maxNearest {
				d.Nearest = append(d.Nearest, r.Tool)
			}
		}
		return d
	}
	var value any
	if err := json.Unmarshal(arguments, &value); err != nil {
		return deny("tools.arguments", "the arguments are not JSON: "+err.Error(), 0)
	}
	for _, r := range t.Rules {
		if r.Effect != Deny || !r.about(op) {
			continue
		}
		// A schema that cannot be read, which Parse would have refused, denies.
		if broken, mismatch := r.check(value); mismatch == nil || broken {
			return deny(r.ID, r.Reason, r.Line)
		}
	}
	var near *ToolRule
	var why string
	for i, r := range t.Rules {
		if r.Effect != Allow || !r.about(op) {
			continue
		}
		switch _, err := r.check(value); {
		case err != nil:
			near, why = &t.Rules[i], "the arguments are not what the rule allows: "+err.Error()
		case r.Limits.ArgumentBytes > 0 && int64(len(arguments)) > r.Limits.ArgumentBytes:
			near, why = &t.Rules[i], fmt.Sprintf("the arguments have %d bytes, at most %d are allowed", len(arguments), r.Limits.ArgumentBytes)
		case r.Limits.Calls > 0 && op.Calls >= r.Limits.Calls:
			near, why = &t.Rules[i], fmt.Sprintf("%d calls are allowed in a session, and were made", r.Limits.Calls)
		default:
			return Decision{Effect: Allow, Rule: r.ID, Reason: r.Reason, Line: r.Line}
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

// check holds the arguments against the rule's schema; broken says that there is
// none that can be read.
func (r ToolRule) check(arguments any) (broken bool, mismatch error) {
	if len(r.Schema) == 0 {
		return false, nil
	}
	schema, err := resolveSchema(r.Schema)
	if err != nil {
		return true, err
	}
	return false, schema.Validate(arguments)
}
