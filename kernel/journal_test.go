package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
)

// decides has a run decide n calls, each with an outcome of value.
func decides(t *testing.T, r *Run, n int, value json.RawMessage) {
	t.Helper()
	for i := range n {
		d, err := r.decide("t.effect", json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.journal.outcome(t.Context(), d, value, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A cell makes as many calls as it likes. What a run keeps of them has a bound, and past
// it there is no checkpoint: never one with a gap.
func TestACellCannotFillTheLauncherWithDecisions(t *testing.T) {
	large := json.RawMessage(`"` + string(make([]byte, 1<<20)) + `"`)
	for name, c := range map[string]struct {
		n     int
		value json.RawMessage
		call  Call
		kept  bool
	}{
		"control":      {n: 40, value: large, kept: true},
		"large ones":   {n: 80, value: large},
		"many":         {n: maxJournal/decisionBytes + 1, value: nil},
		"none wanted":  {n: 1, call: Call{NoCheckpoint: true}},
		"many refused": {n: 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(context.Background(), nil, c.call, true)
			defer r.cancel()
			decides(t, r, c.n, c.value)
			if name == "many refused" { // which the policy lets nobody carry out: no outcome
				for range maxJournal/decisionBytes + 1 {
					if _, err := r.decide("t.none", json.RawMessage("{}"), false); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := len(r.journal.point.Decisions); (got > 0) != c.kept {
				t.Errorf("%d decisions are kept", got)
			}
			if c.kept {
				return
			}
			if saved, err := r.Checkpoint(); err == nil {
				t.Errorf("a checkpoint of %d bytes, which lacks decisions", len(saved))
			}
		})
	}
}

// What a run began with answers its calls, also when no new checkpoint can be had.
func TestARunThatGivesItsCheckpointUpStillHasTheOldOne(t *testing.T) {
	first := newRun(context.Background(), nil, Call{}, true)
	defer first.cancel()
	decides(t, first, 3, json.RawMessage("1"))
	saved, err := first.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(context.Background(), nil, Call{}, true)
	defer r.cancel()
	if err := json.Unmarshal(saved, &r.journal.point); err != nil {
		t.Fatal(err)
	}
	r.journal.kept = len(r.journal.point.Decisions)
	r.journal.refrain(Call{NoCheckpoint: true})
	for i := range 3 {
		d, err := r.decide("t.effect", json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), false)
		if err != nil {
			t.Fatal(err)
		}
		if state, value, _ := r.journal.look(d); state != stateDone || string(value) != "1" {
			t.Errorf("call %d: %s %s", i, state, value)
		}
	}
	if _, err := r.Checkpoint(); err == nil {
		t.Error("a checkpoint that nobody wants")
	}
}

// An answer to a question that was withdrawn is dropped, one to none is an error; and of
// questions that a cell asks and withdraws nothing is kept.
func TestWithdrawnQuestionsLeaveNothing(t *testing.T) {
	r := newRun(context.Background(), nil, Call{}, true)
	defer r.cancel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if _, err := r.ask(gone, Question{Kind: AskInput}); err == nil {
			t.Fatal("nobody asks, and an answer comes")
		}
	}
	for id, known := range map[string]bool{"q1": true, "q3": true, "q4": false, "q0": false, "q01": false, "q+1": false, "1": false, "": false, "qq1": false} {
		if err := r.Answer(Answer{ID: id}); (err == nil) != known {
			t.Errorf("answer to %q: %v", id, err)
		}
	}
	if len(r.open) != 0 || len(r.unsettled) != 0 {
		t.Errorf("kept: %d open, %d unsettled", len(r.open), len(r.unsettled))
	}
}
