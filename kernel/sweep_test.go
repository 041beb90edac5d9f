package kernel

import (
	"errors"
	"slices"
	"testing"
	"time"

	"cellblock/policy"
)

// TestRemainsOfOthersRefuseNothing: what cannot be removed of a launcher that was killed is
// told once, and no session is the less for it.
func TestRemainsOfOthersRefuseNothing(t *testing.T) {
	needStage(t)
	s := open(t, Options{SessionDir: t.TempDir(), PythonBin: "/usr/bin/python3", Mode: policy.Report})
	const left = "sweep control groups of dead launchers: one is left"
	s.swept = &sweeping{sweep: &sweep{done: make(chan struct{}), err: errors.New(left)}}
	close(s.swept.done)
	for i := range 2 {
		r := run(t, s, "6 * 7")
		if r.IsError || slices.Contains(r.Details.Notes, left) != (i == 0) {
			t.Errorf("call %d: %+v", i+1, r)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestSweepsAreShared: sessions that are opened one after the other look for remains once.
func TestSweepsAreShared(t *testing.T) {
	first, second := open(t, Options{}), open(t, Options{})
	if first.swept.sweep != second.swept.sweep {
		t.Error("the second looks again")
	}
	sweeps.Lock()
	first.swept.began = time.Now().Add(-sweepRest)
	sweeps.Unlock()
	if third := open(t, Options{}); third.swept.sweep == first.swept.sweep {
		t.Error("after its rest nobody looks again")
	}
}
