package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseMode(t *testing.T) {
	for text, want := range map[string]Mode{
		"": Report, "off": Off, "0": Off, "false": Off, "False": Off, "report": Report, "1": Report, "true": Report,
		"TRUE": Report, " enforce ": Enforce, "Enforce": Enforce,
	} {
		if got, err := ParseMode(text); got != want || err != nil {
			t.Errorf("%q gives %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"on", "none", "2", "enforced", "report,enforce", "shadows", "\x00"} {
		got, err := ParseMode(text)
		var wrong *ModeError
		if !errors.As(err, &wrong) || got != "" {
			t.Errorf("%q gives %q, %v, want a *ModeError", text, got, err)
			continue
		}
		for _, m := range Available() {
			if !strings.Contains(err.Error(), string(m)) {
				t.Errorf("%q: %q does not name %s, which may be chosen", text, err, m)
			}
		}
	}
}

// TestModeNamesAreReadBack: what a mode prints is what is parsed, and the zero
// value is the default that never blocks.
func TestModeNamesAreReadBack(t *testing.T) {
	for _, m := range Available() {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("%q is read back as %q, %v", m, got, err)
		}
		if m.Enforced() != (m == Enforce) {
			t.Errorf("%q: enforced is %v", m, m.Enforced())
		}
	}
	if m := Mode(""); m.String() != "report" || m.OrDefault() != Report || m.Enforced() {
		t.Errorf("the zero mode is %q", m.String())
	}
}

func TestParseKind(t *testing.T) {
	for kind := range kinds {
		if got := ParseKind(string(kind)); got != kind || !got.Known() {
			t.Errorf("%q gives %q", kind, got)
		}
		if kind.Changes() != (kind != Read && kind != Exec && kind != Load) {
			t.Errorf("%q: changes is %v", kind, kind.Changes())
		}
	}
	for name, want := range synonyms {
		if got := ParseKind(name); got != want || !want.Known() {
			t.Errorf("%q gives %q, want %q, a known kind", name, got, want)
		}
	}
	// What nobody knows is a change, so that it cannot vanish from a report.
	for _, name := range []string{"", "splice", "READ", "read ", "re\x00ad"} {
		if got := ParseKind(name); !got.Changes() {
			t.Errorf("%q gives %q, which changes nothing", name, got)
		}
		if k := OpKind(name); k.Known() || !k.Changes() {
			t.Errorf("kind %q: known %v, changes %v", name, k.Known(), k.Changes())
		}
	}
}

func TestEnvPasses(t *testing.T) {
	for _, c := range []struct {
		pass []string
		name string
		want bool
	}{
		{nil, "HOME", false},
		{[]string{"HOME"}, "HOME", true},
		{[]string{"HOME"}, "HOME2", false},
		{[]string{"HOME"}, "home", false},
		{[]string{"OMP_*"}, "OMP_NUM_THREADS", true},
		{[]string{"OMP_*"}, "OMP_", true},
		{[]string{"OMP_*"}, "OMP", false},
		{[]string{"OMP_*"}, "XOMP_A", false},
		{[]string{"A*B"}, "AxB", false}, // only a trailing star means something
		{[]string{"A*B"}, "A*B", true},
		// A star alone does not open the door to what loads foreign code.
		{[]string{"*"}, "EDITOR", true},
		{[]string{"*"}, "LD_PRELOAD", false},
		{[]string{"*"}, "LD_", false},
		{[]string{"LD_*"}, "LD_LIBRARY_PATH", false},
		{[]string{"*"}, "PYTHONPATH", false},
		{[]string{"*"}, "PYTHON", false},
		{[]string{"PYTHON*"}, "PYTHONSTARTUP", false},
		{[]string{"*"}, "GCONV_PATH", false},
		{[]string{"*"}, "GLIBC_TUNABLES", false},
		{[]string{"*"}, "MALLOC_TRACE", false},
		{[]string{"*"}, "BASH_ENV", false},
		{[]string{"*"}, "ENV", false},
		{[]string{"*"}, "IFS", false},
		{[]string{"*"}, "ENVIRONMENT", true},
		// Named in full they pass: somebody meant it.
		{[]string{"LD_PRELOAD"}, "LD_PRELOAD", true},
		{[]string{"PYTHONPATH"}, "PYTHONPATH", true},
		{[]string{"*", "BASH_ENV"}, "BASH_ENV", true},
	} {
		if got := (Env{Pass: c.pass}).Passes(c.name); got != c.want {
			t.Errorf("%q passes %q: %v, want %v", c.pass, c.name, got, c.want)
		}
	}
}

func TestEnvFilter(t *testing.T) {
	host := []string{"A=1", "LD_PRELOAD=x", "B=2=3", "C=", "broken", "=nameless", "A=again"}
	got := Env{Pass: []string{"A", "B", "C", "broken", "*"}}.Filter(host)
	if want := []string{"A=1", "B=2=3", "C=", "A=again"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Env{}).Filter(host); got != nil {
		t.Errorf("an empty policy passes %q", got)
	}
}

// TestMergeKeepsItsParts: merging adds and never writes through to what was
// merged.
func TestMergeKeepsItsParts(t *testing.T) {
	base := Env{Pass: make([]string, 1, 8), Set: []string{"X=1"}}
	base.Pass[0] = "A"
	one, two := base.Merge(Env{Pass: []string{"B"}}), base.Merge(Env{Pass: []string{"C"}})
	if !slices.Equal(one.Pass, []string{"A", "B"}) || !slices.Equal(two.Pass, []string{"A", "C"}) || !slices.Equal(one.Set, []string{"X=1"}) {
		t.Errorf("%v and %v", one, two)
	}
	l := Limits{MemoryBytes: 1, Tasks: 2, OpenFiles: 3, FileSizeBytes: 4, CPUSeconds: 5, TmpBytes: 6, OutputBytes: 7}
	if got := (Limits{}).Merge(l); got != l {
		t.Errorf("%+v is merged to %+v", l, got)
	}
	if got := l.Merge(Limits{}); got != l {
		t.Errorf("%+v and nothing is merged to %+v", l, got)
	}
}
