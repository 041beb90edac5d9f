package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"cellblock/policy"
)

// ruleArguments is the rule by which arguments are refused that no tool, or this one not,
// takes.
const ruleArguments = "host.arguments"

// refusal says why a call is not carried out.
type refusal struct{ code, rule, reason string }

func (r *refusal) error(c Call) *Error {
	text := fmt.Sprintf("host call %q: %s", c.Tool, r.reason)
	if r.code == CodeDenied {
		text = fmt.Sprintf("host call %q is not permitted: %s (%s)", c.Tool, r.reason, r.rule)
	}
	return &Error{Type: "HostError", Code: r.code, Message: text}
}

// decided is decide, whose fault is a refusal: what a cell writes is looked at on the way,
// and one call must not take every session with it.
func (d *Door) decided(ctx context.Context, tool *entry, c Call, r Request) (g Grant, refused *refusal) {
	defer func() {
		if p := recover(); p != nil {
			g, refused = Grant{}, &refusal{CodeFailed, "host.fault", fmt.Sprintf("the decision broke off: %v", p)}
		}
	}()
	return d.decide(ctx, tool, c, r)
}

// decide goes the way from a call to the permission to carry it out. What is not
// let through on any step is refused; nothing has been done then.
func (d *Door) decide(ctx context.Context, tool *entry, c Call, r Request) (Grant, *refusal) {
	if tool != nil && len(tool.Roles) > 0 && !slices.Contains(tool.Roles, c.Identity.Role) {
		return Grant{}, &refusal{CodeDenied, "host.role", fmt.Sprintf("the tool is not for role %s", c.Identity.Role)}
	}
	if tool != nil && len(tool.Purposes) > 0 && !slices.Contains(tool.Purposes, c.Identity.Purpose) {
		return Grant{}, &refusal{CodeDenied, "host.purpose", fmt.Sprintf("the tool is not for purpose %s", c.Identity.Purpose)}
	}
	value, why := readArguments(c.Arguments)
	if why != "" {
		return Grant{}, &refusal{CodeArguments, ruleArguments, "the arguments cannot be read: " + why}
	}
	op := policy.ToolOp{Session: c.Identity.Session, Tool: c.Tool, Role: string(c.Identity.Role), Purpose: string(c.Identity.Purpose),
		Arguments: c.Arguments, Calls: d.before(c.Tool)}
	grant, confirm, refused := d.permit(op)
	switch {
	case refused != nil:
		return grant, refused
	case tool == nil:
		return grant, &refusal{CodeUnknown, "host.absent", "there is no tool of this name"}
	}
	if why := tool.mismatch(value); why != "" {
		return grant, &refusal{CodeArguments, ruleArguments, "the arguments are not what the tool takes: " + why}
	}
	if tool.Do == nil && r.Answer == nil {
		return grant, &refusal{CodeNoAnswer, "host.answer", "nobody is there to answer it"}
	}
	if tool.Preflight != nil {
		action, why := d.preflight(ctx, tool, c)
		if why != nil {
			return grant, why
		}
		if action != nil {
			op.Action = action
			var again bool
			if grant, again, refused = d.permit(op); refused != nil {
				return grant, refused
			}
			grant.Action, confirm = action, confirm || again
		}
	}
	if confirm {
		if grant.Approval, refused = d.confirm(ctx, c, grant, r.Approve); refused != nil {
			return grant, refused
		}
	}
	if ctx.Err() != nil {
		return grant, &refusal{CodeCancelled, "host.cancelled", "it was cancelled"}
	}
	return grant, nil
}

// before counts the calls of a tool before the newest, which has its place already:
// of two at once, each sees the other, so that no limit is passed.
func (d *Door) before(tool string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made[tool] - 1
}

// permit asks the policy. An obligation that nobody here carries out makes what is
// allowed with it something that is not.
func (d *Door) permit(op policy.ToolOp) (g Grant, confirm bool, refused *refusal) {
	decision := d.config.Decide(op)
	if !decision.Allowed() {
		return g, false, &refusal{CodeDenied, decision.Rule, decision.Reason}
	}
	for _, o := range decision.Obligations {
		if o != policy.ObligeConfirm {
			return g, false, &refusal{CodeDenied, decision.Rule,
				fmt.Sprintf("it is allowed with the obligation %s, which this launcher cannot carry out", o)}
		}
		confirm = true
	}
	return Grant{Rule: decision.Rule, Reason: decision.Reason}, confirm, nil
}

// preflight asks the tool what the call would do; nil for nothing to decide on.
func (d *Door) preflight(ctx context.Context, tool *entry, c Call) (action json.RawMessage, refused *refusal) {
	action, failed := d.run(ctx, tool.Preflight, c)
	if failed != nil {
		code := failed.Code
		if code == CodeIndeterminate { // a preflight does nothing that could be half done
			code = CodeFailed
		}
		return nil, &refusal{code, "host.preflight", "its preflight failed: " + failed.Message}
	}
	action = bytes.TrimSpace(action)
	switch {
	case bytes.Equal(action, []byte("null")):
		return nil, nil
	case !isObject(action):
		return nil, &refusal{CodeFailed, "host.preflight", "its preflight declared something that is no object"}
	case len(action) > maxAction:
		return nil, &refusal{CodeTooLarge, "host.preflight", fmt.Sprintf("its preflight declared %d bytes, at most %d are looked at", len(action), maxAction)}
	}
	return action, nil
}

func isObject(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) }
