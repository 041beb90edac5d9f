package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestCallsOfWhichNobodyKnows: a note names each host call without a return, and those whose
// return says that it is not known; and none that was done, refused or failed.
func TestCallsOfWhichNobodyKnows(t *testing.T) {
	call := func(session, id, op, decision, code string) Record {
		r := Record{Session: session, Op: op, Target: "t." + id, Source: SourceHost, Decision: decision, Facts: map[string]any{FactCall: id}}
		if code != "" {
			r.Facts[FactCode] = code
		}
		return r
	}
	l := newLog(t, Options{})
	must(t, l.Append(
		call("a", "1", OpHostCall, Allowed, ""), call("a", "2", OpHostCall, Allowed, ""), call("a", "3", OpHostCall, Allowed, ""), call("b", "1", OpHostCall, Allowed, ""),
		call("a", "4", OpHostCall, Allowed, ""), call("a", "5", OpHostCall, Denied, ""), Record{Session: "a", Op: OpHostCall, Target: "input", Decision: Allowed, Source: SourceHost},
		call("a", "2", OpHostReturn, Incomplete, codeIndeterminate), call("a", "1", OpHostReturn, Allowed, ""), call("a", "3", OpHostReturn, Incomplete, "failed")))
	if v := verify(t, l.Path()); slices.ContainsFunc(v.Notes, func(n string) bool { return strings.Contains(n, "t.4") }) {
		t.Errorf("while it is under way: %q", v.Notes)
	}
	must(t, l.Close(Record{Session: "a", Op: OpSessionEnd, Source: SourceKernel}))
	v := verify(t, l.Path())
	want := []string{
		`record 2: host call "t.2" is indeterminate: whether it was done is not recorded`,
		`record 4: host call "t.1" is indeterminate: whether it was done is not recorded`,
		`record 5: host call "t.4" is indeterminate: whether it was done is not recorded`,
	}
	if !v.Clean() || !slices.Equal(v.Notes, want) {
		t.Errorf("%q, %q", v.Findings, v.Notes)
	}
}

// TestALogCannotFillTheMemoryWithCalls: what is kept of calls is bounded, and says so.
func TestALogCannotFillTheMemoryWithCalls(t *testing.T) {
	var u unknown
	for i := range 3 * maxUnknown {
		u.add(int64(i+1), Record{Op: OpHostCall, Decision: Allowed, Facts: map[string]any{FactCall: fmt.Sprint(i)}})
	}
	if len(u.open) != maxUnknown {
		t.Errorf("%d calls are kept", len(u.open))
	}
	if notes := u.notes(false); len(notes) != maxFindings+1 || !strings.Contains(notes[maxFindings], "further") {
		t.Errorf("%d notes, the last %q", len(notes), notes[len(notes)-1])
	}
}
