package policy

import (
	"path"
	"strings"
)

// Effect is what a decision comes to.
type Effect string

// The effects.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
)

// Decision says what becomes of one operation, which rule said so and why.
// It does not depend on the mode: the mode says what the effect does.
type Decision struct {
	Effect  Effect   `json:"effect"`
	Rule    string   `json:"rule"`
	Reason  string   `json:"reason"`
	Private bool     `json:"private,omitempty"` // allowed, but gone when the session ends
	Nearest []string `json:"nearest,omitempty"` // on a denial: where the same thing is allowed
}

// Allowed reports whether d lets the operation through.
func (d Decision) Allowed() bool { return d.Effect == Allow }

// Decide decides one operation. It is pure. Deny rules win; after them the
// deepest rule that contains the path; what no rule contains may be read and
// executed, and not changed.
func (p Policy) Decide(op Op) Decision {
	changes := op.Kind.Changes()
	if !strings.HasPrefix(op.Path, "/") || strings.ContainsRune(op.Path, 0) {
		if !changes {
			return Decision{Effect: Allow, Rule: "fs.read.default", Reason: "reading is open except for secrets"}
		}
		return p.deny("fs.write.unknown", "no absolute path is known for this change")
	}
	at := path.Clean(op.Path)
	if r, ok := deepest(p.Deny, at); ok {
		return p.deny(r.ID, r.Reason)
	}
	if !changes {
		return Decision{Effect: Allow, Rule: "fs.read.default", Reason: "reading is open except for secrets"}
	}
	for _, r := range p.Devices {
		if at == path.Clean(r.Path) && (op.Kind == Write || op.Kind == Truncate) {
			return Decision{Effect: Allow, Rule: r.ID, Reason: r.Reason}
		}
	}
	w, inWrite := deepest(p.Write, at)
	v, inPrivate := deepest(p.Private, at)
	switch {
	case inWrite && (!inPrivate || depth(w.Path) >= depth(v.Path)):
		return Decision{Effect: Allow, Rule: w.ID, Reason: w.Reason}
	case inPrivate:
		return Decision{Effect: Allow, Rule: v.ID, Reason: v.Reason, Private: true}
	}
	return p.deny("fs.write.outside", "changes are allowed in the session directory and private places only")
}

func (p Policy) deny(rule, reason string) Decision {
	d := Decision{Effect: Deny, Rule: rule, Reason: reason}
	for _, r := range p.Write {
		d.Nearest = append(d.Nearest, r.Path)
	}
	return d
}

// deepest returns the rule with the longest path that contains at.
func deepest(rules []Rule, at string) (Rule, bool) {
	best, found := Rule{}, false
	for _, r := range rules {
		if Within(r.Path, at) && (!found || depth(r.Path) > depth(best.Path)) {
			best, found = r, true
		}
	}
	return best, found
}
