package audit

import (
	"fmt"
	"slices"
)

// codeIndeterminate is in the record of a call's return that says of itself that nobody
// knows whether the call was done.
const codeIndeterminate = "indeterminate"

// FactCode is the code of a host call's error, in the record of its return.
const FactCode = "code"

// maxUnknown bounds the calls that one log can make us keep in mind.
const maxUnknown = 1000

// unknown finds host calls of which the log does not say whether they were done: they
// have no return, or one that says so. The log may be of any origin.
type unknown struct {
	open  map[string]begun
	found []begun
	more  bool
}

// begun is a host call that was let through.
type begun struct {
	line int64
	tool string
}

// add looks at a record, in the order of the log.
func (u *unknown) add(line int64, r Record) {
	call, _ := r.Facts[FactCall].(string)
	if call == "" {
		return
	}
	key := r.Session + "\x00" + call
	switch {
	case r.Op == OpHostCall && r.Decision == Allowed && len(u.open) >= maxUnknown:
		u.more = true
	case r.Op == OpHostCall && r.Decision == Allowed:
		if u.open == nil {
			u.open = map[string]begun{}
		}
		u.open[key] = begun{line, r.Target}
	case r.Op == OpHostReturn:
		was, there := u.open[key]
		delete(u.open, key)
		if code, _ := r.Facts[FactCode].(string); there && code == codeIndeterminate {
			u.keep(was)
		}
	}
}

func (u *unknown) keep(b begun) {
	if len(u.found) >= maxUnknown {
		u.more = true
		return
	}
	u.found = append(u.found, b)
}

// notes says what is not known, at the end of the log; live is whether what writes it
// is still at work.
func (u *unknown) notes(live bool) []string {
	if !live {
		for _, b := range u.open {
			u.keep(b)
		}
	}
	slices.SortFunc(u.found, func(a, b begun) int { return int(a.line - b.line) })
	var out []string
	for i, b := range u.found {
		if i == maxFindings {
			u.more = true
			break
		}
		out = append(out, fmt.Sprintf("record %d: host call %q is indeterminate: whether it was done is not recorded", b.line, b.tool))
	}
	if u.more {
		out = append(out, "further host calls are indeterminate, or were not looked at")
	}
	return out
}
