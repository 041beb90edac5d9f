package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cellblock/policy/audit"
)

// TestVerifyNamesCallsOfWhichNobodyKnows: an extension that ends in the middle of a call
// leaves one whose effect nobody knows; the cell is told so, and the record's check.
func TestVerifyNamesCallsOfWhichNobodyKnows(t *testing.T) {
	e := newExtensible(t, map[string]string{"home/odd.py": `
import os
def ends(): os._exit(3)
def fine(): return 1
def fails(): raise ValueError("no")
cellblock.register(cellblock.Extension(name="odd", tools=[ends, fine, fails]))
`})
	log := filepath.Join(newDirIn(t, "/var/tmp"), "a.jsonl")
	s := open(t, e.options("odd.*"), audited(log))
	s.shows("odd.fine()", "1")
	s.raises("odd.fails()", "HostError")
	if r := s.run("odd.ends()"); r.ename() != "HostError" || !strings.Contains(r.text(), "not known") {
		t.Errorf("%s", r)
	}
	if err := s.kernel.Close(); err != nil {
		t.Fatal(err)
	}
	v, err := audit.Verify(log)
	if err != nil || !v.Clean() {
		t.Fatalf("%v, %v", v.Findings, err)
	}
	of := func(tool string) bool {
		return slices.ContainsFunc(v.Notes, func(n string) bool {
			return strings.Contains(n, fmt.Sprintf("host call %q is indeterminate", tool))
		})
	}
	if !of("odd.ends") || of("odd.fine") || of("odd.fails") {
		t.Errorf("%q", v.Notes)
	}
}
