package bench

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// idler is a runner without processes.
type idler struct{ ended *int }

func (idler) run(context.Context, string) (string, error) { return "2", nil }
func (idler) pids() ([]int, error)                        { return nil, nil }
func (i idler) end()                                      { *i.ended++ }

// TestIdlePSS: what all have together is counted, and once: each has an even part.
func TestIdlePSS(t *testing.T) {
	ended := 0
	start := func() (runner, error) { return idler{&ended}, nil }
	samples, err := idlePSS(t.Context(), 4, start, func(running []runner) (float64, error) { return 3 * float64(len(running)), nil })
	if err != nil || len(samples) != 4 || ended != 4 {
		t.Fatalf("%v, %v, %d ended", samples, err, ended)
	}
	for _, mb := range samples {
		if mb != 3 {
			t.Errorf("%v MB of 12 that four share, want 3", mb)
		}
	}
	if samples, err := idlePSS(t.Context(), 1, start, nothingShared); err != nil || samples[0] != 0 {
		t.Errorf("nothing shared: %v, %v", samples, err)
	}
}

// TestAbove: who lives below a process of its own pid namespace was executed there, and is
// not taken for one that was forked.
func TestAbove(t *testing.T) {
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = child.Wait() }()
	if first, err := firstOf(child.Process.Pid); err != nil || first != os.Getpid() {
		t.Errorf("above it is %d, %v, want %d", first, err, os.Getpid())
	}
	if warm, err := warmOf(child.Process.Pid); err == nil || !strings.Contains(err.Error(), "was not forked") {
		t.Errorf("forked of %d, %v", warm, err)
	}
}
