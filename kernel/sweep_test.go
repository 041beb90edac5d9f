package kernel

import (
	"errors"
	"slices"
	"testing"

	"cellblock/policy"
)

// TestRemainsOfOthersRefuseNothing: what cannot be removed of a launcher that was killed is
// told once, and no session is the less for it.
func TestRemainsOfOthersRefuseNothing(t *testing.T) {
	needStage(t)
	s := open(t, Options{SessionDir: t.TempDir(), PythonBin: "/usr/bin/python3", Mode: policy.Report})
	<-s.swept.done
	const left = "sweep control groups of dead launchers: one is left"
	s.swept.err = errors.New(left)
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
