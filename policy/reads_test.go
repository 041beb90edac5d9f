package policy

import "testing"

// TestTellsReads: who is told of reads pays for each, so only a policy that has
// something to report of them says yes.
func TestTellsReads(t *testing.T) {
	for _, c := range []struct {
		name, fs string
		mode     Mode
		want     bool
	}{
		{"no rule about reading", "rules: [{path: /srv/x, access: [write], effect: deny, reason: r}]", Report, false},
		{"a rule that is reported", "rules: [{path: /srv/x, access: [read], effect: deny, reason: r}]", Report, true},
		{"the same, enforced", "rules: [{path: /srv/x, access: [read], effect: deny, reason: r}]", Enforce, true},
		{"one that is enforced in every mode", "rules: [{path: /srv/x, access: [read], effect: deny, mode: enforce, reason: r}]", Report, false},
		{"one that is only reported, in enforce", "rules: [{path: /srv/x, access: [read], effect: deny, mode: report, reason: r}]", Enforce, true},
		{"a list of what may be read", "defaults: {read: {effect: deny, reason: r}}", Report, true},
		{"that list, enforced", "defaults: {read: {effect: deny, reason: r}}", Enforce, true},
		{"that list, enforced in every mode", "defaults: {read: {effect: deny, mode: enforce, reason: r}}", Enforce, false},
	} {
		doc, err := Parse("test.yaml", []byte("version: 1\nname: x\nfs: {"+c.fs+"}\n"))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, exists := range []bool{true, false} {
			p, _, err := Compile(doc, Facts{Mode: c.mode, SessionDir: "/work", Paths: map[string]Found{"/srv/x": {Exists: exists, Path: "/srv/x"}}})
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if got := p.TellsReads(); got != c.want {
				t.Errorf("%s, there %v: %v", c.name, exists, got)
			}
		}
	}
}
