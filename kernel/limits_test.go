package kernel

import (
	"context"
	"os"
	"strings"
	"testing"

	"cellblock/jail"
	"cellblock/policy"
)

func TestTheLimitThatADeathNamesIsTheOneThatTheJailKeeps(t *testing.T) {
	for _, c := range []struct {
		profile string
		asked   policy.Limits
		memory  int64
	}{
		{"default", policy.Limits{}, 2 << 30},
		{"strict", policy.Limits{}, 1 << 30},
		{"strict", policy.Limits{MemoryBytes: 256 << 20}, 256 << 20},
	} {
		o := Options{SessionDir: t.TempDir(), Profile: c.profile, Limits: c.asked, PythonBin: "/usr/bin/python3"}
		p, err := Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSession(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.Limits {
			if l.Name == "memory" && (l.Value != c.memory || s.policy.Limits.MemoryBytes != c.memory) {
				t.Errorf("%s %+v: the jail keeps %d, the policy says %d", c.profile, c.asked, l.Value, s.policy.Limits.MemoryBytes)
			}
			if l.Name == "file-size" && l.Value != s.policy.Limits.FileSizeBytes {
				t.Errorf("file-size: %+v", l)
			}
		}
		death := exitStatus{OOM: true}.death(s.policy.Limits.MemoryBytes, 0, nil)
		if death.String() != "oom: memory limit "+bytesText(c.memory) {
			t.Errorf("%q", death)
		}
	}
}

func TestFullOutputsEndAtTheirLimitAndSaySo(t *testing.T) {
	tiers(t, Options{Limits: policy.Limits{OutputBytes: 50002}}, func(t *testing.T, s *Session) {
		size := func(r Result) int64 {
			t.Helper()
			info, err := os.Stat(r.Details.FullOutputPath)
			if err != nil {
				t.Fatalf("%v: %q", err, r.Details.Notes)
			}
			return info.Size()
		}
		r := run(t, s, "print('x' * 30000)")
		if size(r) != 30001 || len(r.Details.Notes) != 0 {
			t.Fatalf("%d bytes, %q", size(r), r.Details.Notes)
		}
		// A character of two bytes is not cut in two.
		r = run(t, s, "print('é' * 30000)\nprint('after')")
		if size(r) != 20000 || len(r.Details.Notes) != 1 || !strings.Contains(r.Details.Notes[0], "40007 bytes left out: limit output 50002 bytes") {
			t.Fatalf("%d bytes, %q", size(r), r.Details.Notes)
		}
		r = run(t, s, "print('y' * 30000)")
		if size(r) != 1 || len(r.Details.Notes) != 1 {
			t.Fatalf("%d bytes, %q", size(r), r.Details.Notes)
		}
		r = run(t, s, "print('y' * 30000)")
		if r.IsError || r.Details.FullOutputPath != "" || !strings.Contains(strings.Join(r.Details.Notes, ""), "30001 bytes left out") {
			t.Fatalf("%q %q", r.Details.FullOutputPath, r.Details.Notes)
		}
		// Without a cut there is no file, and nothing to say.
		if r = run(t, s, "print('z')"); len(r.Details.Notes) != 0 {
			t.Fatalf("%q", r.Details.Notes)
		}
	})
}

func TestAFullOutputFileHasAnEnd(t *testing.T) {
	o := newCellOutput(100, t.TempDir(), 1, &room{}, nil)
	o.spilled = maxSpill - 150
	o.write(stdout, []byte(strings.Repeat("x", 200)), false)
	o.end()
	if len(o.notes()) != 1 || !strings.Contains(o.notes()[0], "50 bytes left out: one file holds 1 GiB") {
		t.Errorf("%q", o.notes())
	}
}

func TestAJailThatCannotBeBuiltNamesWhatIsMissing(t *testing.T) {
	s := open(t, Options{Tier: TierProcess})
	s.start = func(context.Context, launch) (process, error) {
		return nil, &jail.MissingFeatureError{Feature: jail.UserNamespace, Why: "EPERM", Remedy: "ask for it"}
	}
	r := run(t, s, "1")
	if e := r.Details.Error; e == nil || e.Name != ToolError || e.Missing == nil || *e.Missing != (Missing{"userns", "EPERM", "ask for it"}) {
		t.Fatalf("%+v", e)
	}
}
