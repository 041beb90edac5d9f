package policy

import (
	"path"
	"slices"
	"strings"
)

// Effect is what a decision comes to.
type Effect string

// The effects.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
	// Confirm, of a rule about host calls, allows with the obligation to have each
	// call approved first. No decision has it as its effect.
	Confirm Effect = "confirm"
)

// Decision says what becomes of one operation, which rule said so and why. The
// effect does not depend on the mode: the mode says whether Linux carries it out.
type Decision struct {
	Effect Effect `json:"effect"`
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
	// Enforced, on a denial, says that Linux refuses the operation in this mode;
	// otherwise it is done, and reported.
	Enforced bool     `json:"enforced,omitempty"`
	Private  bool     `json:"private,omitempty"` // allowed, but gone when the session ends
	Nearest  []string `json:"nearest,omitempty"` // on a denial: where the same thing is allowed
	// Obligations bind whoever carries out what is allowed.
	Obligations []Obligation `json:"obligations,omitempty"`
	Line        int          `json:"line,omitempty"` // of the rule in its document
}

// Obligation is something to be done with what was allowed.
type Obligation string

// The obligations.
const (
	// ObligeAddress: a name was allowed; decide again with each address it
	// resolves to, before the connection is made.
	ObligeAddress Obligation = "decide-address"
	// ObligeForward: the port is to be reachable from the host.
	ObligeForward Obligation = "forward"
	// ObligeConfirm: the host call is to be approved by the operator's side, once.
	ObligeConfirm Obligation = "confirm"
)

// Allowed reports whether d lets the operation through.
func (d Decision) Allowed() bool { return d.Effect == Allow }

// Decide decides one operation on files. It is pure. Deny rules win at any
// depth; what the document allows adds up; what nothing decides meets the
// defaults.
func (p Policy) Decide(op Op) Decision {
	d := p.decide(op)
	if op.Kind != Socket || d.Allowed() {
		return d
	}
	// No mount keeps anybody from a socket that is in view: the launcher does, in the
	// modes that keep its changes from the host. No layer could take what it is told.
	switch {
	case p.Mode == Shadow:
		d.Enforced = !p.Unjailed
	case p.Mode != Enforce && !p.Hidden(path.Clean(op.Path)) && !d.Unlisted():
		d.Enforced = false
	}
	return d
}

func (p Policy) decide(op Op) Decision {
	parts, metadata := op.Needs()
	changes := op.Kind.Changes()
	if !strings.HasPrefix(op.Path, "/") || strings.ContainsRune(op.Path, 0) {
		return p.nowhere(op)
	}
	at := path.Clean(op.Path)
	if need, ok := deepest(p.Needs, at); ok && !changes && need.Access.Has(parts) {
		return allow(need)
	}
	base := p.undenied(op, at, parts, metadata)
	rule, denied := p.denying(op.Kind, at, changes)
	if !denied {
		return base
	}
	reason := rule.Reason
	if !contains(rule.Path, at) {
		reason = "it is on the way to " + rule.Path + ": " + reason
	}
	return p.deny(op.Kind, rule.ID, reason, rule.Enforced || !base.Allowed() && base.Enforced, rule.Line)
}

// undenied is the decision without the rules that deny.
func (p Policy) undenied(op Op, at string, parts Access, metadata bool) Decision {
	if op.Kind.Changes() {
		return p.change(op, at, parts, metadata)
	}
	seen, ok := p.seen(at)
	if !ok {
		return p.deny(op.Kind, "default.read", p.ReadDefault.Reason, p.ReadDefault.Enforced, 0)
	}
	if op.Kind != Exec {
		return seen // what may be executed is a list of programs, not of libraries
	}
	if r, ok := covering(p.Allow, at, AccessExec); ok {
		return allow(r)
	}
	if p.ExecDefault.Effect == Allow {
		return Decision{Effect: Allow, Rule: "default.exec", Reason: p.ExecDefault.Reason}
	}
	return p.deny(op.Kind, "default.exec", p.ExecDefault.Reason, p.ExecDefault.Enforced, 0)
}

// nowhere decides an operation whose place nobody knows.
func (p Policy) nowhere(op Op) Decision {
	switch {
	case op.Kind.Changes():
		return p.deny(op.Kind, "default.write", "no absolute path is known for this change", p.WriteDefault.Enforced, 0)
	case op.Kind == Exec && p.ExecDefault.Effect == Deny:
		return p.deny(op.Kind, "default.exec", p.ExecDefault.Reason, p.ExecDefault.Enforced, 0)
	}
	return Decision{Effect: Allow, Rule: "default.read", Reason: "what has no path is no file of the host"}
}

// denying looks for a rule that denies: one that Linux enforces before one that is
// reported, and then the deepest.
func (p Policy) denying(k OpKind, at string, changes bool) (Rule, bool) {
	var best *Rule
	for i := range p.Deny {
		r := &p.Deny[i]
		if !r.denies(k, at, changes) {
			continue
		}
		if best == nil || r.Enforced && !best.Enforced || r.Enforced == best.Enforced && depth(r.Path) > depth(best.Path) {
			best = r
		}
	}
	return found(best)
}

// found is a copy of the rule that a search ended with, if it did with one.
func found(r *Rule) (Rule, bool) {
	if r == nil {
		return Rule{}, false
	}
	return *r, true
}

// denies reports whether the rule denies this kind of operation at this path.
func (r *Rule) denies(k OpKind, at string, changes bool) bool {
	if k.takes() && slices.Contains(r.Pins, at) {
		return true
	}
	if !contains(r.Path, at) {
		return false
	}
	switch {
	case r.Access.Has(AccessRead): // hidden: nothing is there to use
		return true
	case changes:
		return r.Access&AccessWrite != 0
	case k == Exec || k == Load:
		return r.Access.Has(AccessExec)
	}
	return false
}

// change decides a change that no rule denies. The deepest place that contains
// it says whose it is: a bind of the host's lies over a private place, and a
// private place over what the jail shows read-only.
func (p Policy) change(op Op, at string, parts Access, metadata bool) Decision {
	for i := range p.Devices {
		if r := &p.Devices[i]; at == r.Path && (op.Kind == Write || op.Kind == Truncate) {
			return allow(*r)
		}
	}
	if p.ReadDefault.Effect == Deny && !inOwn(at) && !p.shown(at, op.Kind.names()) {
		return p.deny(op.Kind, "default.read", p.ReadDefault.Reason, p.ReadDefault.Enforced || p.WriteDefault.Enforced, 0)
	}
	granted, inAllow := covering(p.Allow, at, 0)
	place, inPrivate := deepest(p.Private, at)
	seal, inSealed := deepest(p.Sealed, at)
	if inAllow && isOwn(granted.Path) {
		inAllow = inPrivate && depth(granted.Path) > depth(place.Path)
	}
	switch {
	case inSealed && (!inAllow || depth(seal.Path) >= depth(granted.Path)) && (!inPrivate || depth(seal.Path) >= depth(place.Path)):
		return p.deny(op.Kind, seal.ID, seal.Reason, true, 0)
	case inPrivate && (!inAllow || depth(place.Path) > depth(granted.Path)):
		if metadata && place.Access.Has(AccessCreate) || !metadata && place.Access.Has(parts) && !(op.Kind.names() && at == place.Path) {
			d := allow(place)
			d.Private = true
			return d
		}
		return p.deny(op.Kind, place.ID, place.Reason, true, 0)
	case inAllow:
		if metadata || p.granted(at, op.Kind, parts) {
			return allow(granted)
		}
	}
	if p.WriteDefault.Effect == Allow {
		return Decision{Effect: Allow, Rule: "default.write", Reason: p.WriteDefault.Reason}
	}
	return p.deny(op.Kind, "default.write", p.WriteDefault.Reason, p.WriteDefault.Enforced, 0)
}

// Unlisted says whether d denies what is not shown to the session at all, since it is
// on no list of what may be read.
func (d Decision) Unlisted() bool {
	return !d.Allowed() && d.Enforced && d.Rule == "default.read"
}

// shown reports whether a path lies in what a listed tree shows; strictly beneath
// it, where the path's name is the matter.
func (p Policy) shown(at string, name bool) bool {
	for _, rules := range [][]Rule{p.Allow, p.Needs} {
		for i := range rules {
			if r := &rules[i]; contains(r.Path, at) && !(name && r.Path == at) {
				return true
			}
		}
	}
	return false
}

// granted adds up what the document allows at a path. Making and taking a name is
// a change of the directory above it, so a rule gives it strictly beneath its
// path only.
func (p Policy) granted(at string, k OpKind, parts Access) bool {
	var sum Access
	for i := range p.Allow {
		if r := &p.Allow[i]; contains(r.Path, at) && !(k.names() && r.Path == at) {
			sum |= r.Access
		}
	}
	return sum.Has(parts)
}

// seen reports whether a path is shown to the session at all, and by what.
func (p Policy) seen(at string) (Decision, bool) {
	if p.ReadDefault.Effect == Allow {
		return Decision{Effect: Allow, Rule: "default.read", Reason: p.ReadDefault.Reason}, true
	}
	for _, rules := range [][]Rule{p.Allow, p.Needs, p.Sealed, p.Private} {
		if r, ok := deepest(rules, at); ok {
			return allow(r), true
		}
	}
	if inOwn(at) {
		return Decision{Effect: Allow, Rule: "ground.own", Reason: "a place of the jail's own, where nothing of the host is"}, true
	}
	for _, rules := range [][]Rule{p.Allow, p.Needs, p.Private} {
		for i := range rules {
			if r := &rules[i]; contains(at, r.Path) {
				return Decision{Effect: Allow, Rule: r.ID, Reason: "it is on the way to " + r.Path, Line: r.Line}, true
			}
		}
	}
	return Decision{}, false
}

func allow(r Rule) Decision {
	return Decision{Effect: Allow, Rule: r.ID, Reason: r.Reason, Line: r.Line}
}

func (p Policy) deny(k OpKind, rule, reason string, enforced bool, line int) Decision {
	d := Decision{Effect: Deny, Rule: rule, Reason: reason, Enforced: enforced && !p.Unjailed, Line: line}
	want := AccessRead
	switch {
	case k.Changes():
		want = AccessWrite
	case k == Exec || k == Load:
		want = AccessExec
	}
	for _, r := range p.Allow {
		if r.Access&want != 0 && !slices.Contains(d.Nearest, r.Path) && len(d.Nearest) < maxNearest {
			d.Nearest = append(d.Nearest, r.Path)
		}
	}
	return d
}

// maxNearest bounds what a denial lists: it is read by a person or a model.
const maxNearest = 8

// covering returns the deepest rule with the access that contains at.
func covering(rules []Rule, at string, access Access) (Rule, bool) {
	var best *Rule
	for i := range rules {
		r := &rules[i]
		ok := r.Access.Has(access)
		if access == 0 {
			ok = r.Access&AccessWrite != 0
		}
		if ok && contains(r.Path, at) && (best == nil || len(r.Path) > len(best.Path)) {
			best = r
		}
	}
	return found(best)
}

// deepest returns the rule with the longest path that contains at.
func deepest(rules []Rule, at string) (Rule, bool) {
	var best *Rule
	for i := range rules {
		if r := &rules[i]; contains(r.Path, at) && (best == nil || len(r.Path) > len(best.Path)) {
			best = r
		}
	}
	return found(best)
}
