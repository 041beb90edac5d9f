package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cellblock/policy/audit"
)

// TestTheRuleThatAllowsIt: a name is made and removed in its directory, and a rule for
// what is not there is none.
func TestTheRuleThatAllowsIt(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ op, target, path, access string }{
		{"write", there, there, "write"},
		{"chmod", there, there, "write"},
		{"read", there, there, "read"},
		{"exec", filepath.Join(dir, "gone"), filepath.Join(dir, "gone"), "exec"},
		{"write", filepath.Join(dir, "new"), dir, "write"},
		{"mkdir", filepath.Join(dir, "new"), dir, "write"},
		{"remove", there, dir, "write"},
		{"rename", there, dir, "write"},
	} {
		rule := change(audit.Record{Op: c.op, Target: c.target})
		if !strings.HasPrefix(rule, `{path: "`+c.path+`", access: [`+c.access+`]`) {
			t.Errorf("%s %s: %s", c.op, c.target, rule)
		}
	}
}
