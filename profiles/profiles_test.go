package profiles

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestEveryProfileReadsAndNamesItself(t *testing.T) {
	if len(List()) < 2 {
		t.Fatalf("profiles: %v", List())
	}
	for _, name := range List() {
		p, err := Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != name {
			t.Errorf("%s.json calls itself %q", name, p.Name)
		}
		if _, err := Seccomp(p.Seccomp.Profile); err != nil {
			t.Error(err)
		}
	}
}

func TestEverySystemCallEntryHasItsReason(t *testing.T) {
	for _, name := range SeccompNames() {
		document, err := Seccomp(name)
		if err != nil {
			t.Fatal(err)
		}
		var profile struct {
			Syscalls []struct {
				Names   []string
				Comment string
			}
		}
		if err := json.Unmarshal(document, &profile); err != nil {
			t.Fatal(err)
		}
		for i, entry := range profile.Syscalls {
			if len(strings.TrimSpace(entry.Comment)) < 10 {
				t.Errorf("%s: entry %d (%v) has no reason", name, i, entry.Names)
			}
		}
	}
}

func TestStrictIsNarrowerThanDefault(t *testing.T) {
	wide, err := Get("default")
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := Get("strict")
	if err != nil {
		t.Fatal(err)
	}
	if len(narrow.Optional) >= len(wide.Optional) {
		t.Error("strict lets as many features be absent as default")
	}
}

func TestUnknownNamesListTheKnown(t *testing.T) {
	for _, name := range []string{"", "nope", "../go", "default.json", "seccomp/strict", "policies/ci"} {
		if _, err := Get(name); err == nil || !strings.Contains(err.Error(), "default") {
			t.Errorf("Get(%q): %v", name, err)
		}
		if _, err := Seccomp(name); err == nil || !strings.Contains(err.Error(), "compatible") {
			t.Errorf("Seccomp(%q): %v", name, err)
		}
		if _, err := Policy(name); err == nil || !strings.Contains(err.Error(), "notebook") {
			t.Errorf("Policy(%q): %v", name, err)
		}
	}
}

func TestParseIsStrict(t *testing.T) {
	good := `{"name":"x","description":"d","seccomp":{"profile":"strict","reason":"r"}`
	if _, err := Parse([]byte(good + "}")); err != nil {
		t.Fatalf("the least profile: %v", err)
	}
	for wrong, want := range map[string]string{
		good + `,"colour":"red"}`: "colour",
		good + `} {}`:             "after the document",
		good + `,"limits":{}}`:    "limits",
		good + `,"optional":[{"feature":"","reason":"r"}]}`:                       "without a name",
		`{"name":"x","description":"d","seccomp":{"profile":"lax","reason":"r"}}`: "lax",
		`{"description":"d"}`: "name",
	} {
		if _, err := Parse([]byte(wrong)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n gives %v, want an error with %q", wrong, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	// Small: the fuzzer spends its time on shortening large seeds.
	f.Add([]byte(`{"name":"x","description":"d","seccomp":{"profile":"strict","reason":"r"},
		"optional":[{"feature":"cgroup","reason":"r"}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		p, err := Parse(document)
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(again); err != nil {
			t.Errorf("a profile that was accepted is refused when written out: %v\n%s", err, again)
		}
	})
}
