package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"cellblock/kernel/host"
)

// parked steps a run until it waits for a question of a kind, and returns the
// question and a checkpoint; what is asked before gets answer.
func parked(t *testing.T, r *Run, kind QuestionKind, answer func(Question) Answer) (Question, []byte) {
	t.Helper()
	var answers []Answer
	for {
		step, err := r.Step(t.Context(), answers...)
		if err != nil || step.State == Finished {
			t.Fatalf("it never waits for %s: %v, %+v", kind, err, step.Result)
		}
		answers = nil
		for _, q := range step.Waiting {
			if q.Kind == kind {
				saved, err := r.Checkpoint()
				if err != nil {
					t.Fatal(err)
				}
				return q, saved
			}
			a := answer(q)
			a.ID = q.ID
			answers = append(answers, a)
		}
	}
}

const twoEffects = "name = input('who? ')\na = t.effect(n=1)\nb = t.ask(q=name)\nc = t.effect(n=2)\n(name, a, b, c)"

func TestACheckpointRepeatsNoEffect(t *testing.T) {
	var done atomic.Int32
	o := withTools(t, host.Tool{Name: "t.ask"}, host.Tool{Name: "t.effect", Do: func(_ context.Context, c host.Call) (json.RawMessage, error) {
		done.Add(1)
		return c.Arguments, nil
	}})
	tiers(t, o, func(t *testing.T, s *Session) {
		done.Store(0)
		c := Call{Code: twoEffects}
		r := s.Run(t.Context(), c)
		_, saved := parked(t, r, AskHostCall, func(Question) Answer { return Answer{Text: "Ada"} })
		s.Close() // the launcher ends in the middle of the run
		if done.Load() != 1 {
			t.Fatalf("control: %d effects before the end", done.Load())
		}
		s = open(t, s.opts)
		r, err := s.RunFrom(t.Context(), c, saved)
		if err != nil {
			t.Fatal(err)
		}
		var asked []QuestionKind
		step, _, err := steps(t, r, func(q Question) Answer {
			asked = append(asked, q.Kind)
			return Answer{Value: json.RawMessage(`"answer"`)}
		})
		if err != nil || step.Result.IsError || *step.Result.Details.Value != "('Ada', {'n': 1}, 'answer', {'n': 2})" {
			t.Fatalf("%v: %s", err, step.Result.Text())
		}
		if done.Load() != 2 || !slices.Equal(asked, []QuestionKind{AskHostCall}) {
			t.Errorf("%d effects, asked %v", done.Load(), asked)
		}
		// What is whole is asked for and done no more at all.
		if saved, err = r.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if r, err = s.RunFrom(t.Context(), c, saved); err != nil {
			t.Fatal(err)
		}
		again, _, err := steps(t, r, nothingAsked(t))
		if err != nil || again.Result.Text() != step.Result.Text() || done.Load() != 2 {
			t.Errorf("%v, %d effects: %s", err, done.Load(), again.Result.Text())
		}
	})
}

func TestACheckpointThatDoesNotFitIsAnError(t *testing.T) {
	var done atomic.Int32
	o := withTools(t, host.Tool{Name: "t.ask"}, host.Tool{Name: "t.effect", Do: func(_ context.Context, c host.Call) (json.RawMessage, error) {
		done.Add(1)
		return c.Arguments, nil
	}})
	s := open(t, o)
	run(t, s, "n = 1")
	c := Call{Code: "t.effect(n=n)\ntry: t.ask()\nexcept BaseException: t.effect(n=5)"}
	r := s.Run(t.Context(), c)
	_, saved := parked(t, r, AskHostCall, nil)
	r.Cancel()
	<-r.Done()
	done.Store(0)
	run(t, s, "n = 2") // another state than the run began from
	r, err := s.RunFrom(t.Context(), c, saved)
	if err != nil {
		t.Fatal(err)
	}
	step, _, err := steps(t, r, nothingAsked(t))
	var mismatch *MismatchError
	if !errors.As(err, &mismatch) || mismatch.Call != 1 || !strings.Contains(err.Error(), "t.effect with other arguments") || !step.Result.IsError || done.Load() != 0 {
		t.Errorf("%v, %d effects, %+v", err, done.Load(), step.Result)
	}
	// A call that is refused makes another one no repetition.
	if _, err := r.Continue(t.Context()); !errors.As(err, &mismatch) {
		t.Error(err)
	}
	for name, bad := range map[string][]byte{
		"another code": bytes.Replace(saved, []byte(`"codeSha256":"`), []byte(`"codeSha256":"0`), 1), "no JSON": saved[:9],
		"another version": bytes.Replace(saved, []byte(`"version":1`), []byte(`"version":2`), 1), "no state": bytes.Replace(saved, []byte(`"done"`), []byte(`"fine"`), 1),
		"null": []byte(strings.Replace(string(saved), `"decisions":[`, `"decisions":[null,`, 1)),
	} {
		if _, err := s.RunFrom(t.Context(), c, bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// Decisions that nobody asks for are told of.
	run(t, s, "def f(): pass\nn = 1")
	o2 := Call{Code: "1"}
	other := s.Run(t.Context(), o2)
	if _, _, err := steps(t, other, nothingAsked(t)); err != nil {
		t.Fatal(err)
	}
}

// TestWhatWasBegunIsNeverDoneAgainByItself: after a crash nobody knows, and the host
// says what becomes of it.
func TestWhatWasBegunIsNeverDoneAgainByItself(t *testing.T) {
	var done atomic.Int32
	hold := make(chan struct{})
	began := make(chan struct{}, 1)
	o := withTools(t, host.Tool{Name: "t.effect", Do: func(ctx context.Context, c host.Call) (json.RawMessage, error) {
		if done.Add(1) == 1 {
			began <- struct{}{}
			<-hold // as if the launcher were killed here
		}
		return json.RawMessage(`"done"`), nil
	}})
	s := open(t, o)
	c := Call{Code: "t.effect(n=1)"}
	r := s.Run(t.Context(), c)
	<-began
	saved, err := r.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	r.Cancel()
	<-r.Done()
	close(hold)
	for name, a := range map[string]struct {
		answer Answer
		text   string
		more   int32
	}{
		"it was done":        {Answer{Value: json.RawMessage(`"seen"`)}, "'seen'", 0},
		"it was not":         {Answer{Error: &host.Error{Code: "lost", Message: "it was not done"}}, "lost: it was not done", 0},
		"do it again":        {Answer{Again: true}, "'done'", 1},
		"nothing more to it": {Answer{}, "(no output)", 0},
	} {
		before := done.Load()
		if r, err = s.RunFrom(t.Context(), c, saved); err != nil {
			t.Fatal(err)
		}
		step, _, err := steps(t, r, func(q Question) Answer {
			if q.Kind != AskIndeterminate || q.Call.Tool != "t.effect" || q.Error != nil {
				t.Errorf("%s: %+v", name, q)
			}
			return a.answer
		})
		if err != nil || !strings.Contains(step.Result.Text(), a.text) || done.Load()-before != a.more {
			t.Errorf("%s: %v, %d effects more: %s", name, err, done.Load()-before, step.Result.Text())
		}
	}
}

func TestAnOutcomeThatNobodyKnowsIsTheHostsToJudge(t *testing.T) {
	var done atomic.Int32
	o := withTools(t, host.Tool{Name: "t.effect", Do: func(context.Context, host.Call) (json.RawMessage, error) {
		if done.Add(1)%2 == 1 {
			return nil, &host.Error{Code: host.CodeIndeterminate, Message: "its process has died"}
		}
		return json.RawMessage(`"done"`), nil
	}})
	s := open(t, o)
	step, _, err := steps(t, s.Run(t.Context(), Call{Code: "t.effect()"}), func(q Question) Answer {
		if q.Kind != AskIndeterminate || q.Error == nil || q.Error.Message != "its process has died" {
			t.Errorf("%+v", q)
		}
		return Answer{Again: true}
	})
	if err != nil || step.Result.Text() != "'done'" || done.Load() != 2 {
		t.Errorf("%v, %d: %s", err, done.Load(), step.Result.Text())
	}
	if r := run(t, s, "t.effect()"); !strings.Contains(r.Text(), "indeterminate: its process has died") || done.Load() != 3 {
		t.Errorf("nobody drives: %s", r.Text())
	}
}

func TestACheckpointKeepsApprovalsForWhatTheyWereGiven(t *testing.T) {
	var done atomic.Int32
	o := confirming(t, host.Tool{Name: "t.drop", Do: func(context.Context, host.Call) (json.RawMessage, error) { done.Add(1); return nil, nil }})
	o.Tools = append(o.Tools, host.Tool{Name: "t.ask"})
	s := open(t, o)
	c := Call{Code: "t.drop(n=1)\ntry: t.drop(n=2)\nexcept Exception as e: print(e)\nt.ask()"}
	r := s.Run(t.Context(), c)
	_, saved := parked(t, r, AskHostCall, func(q Question) Answer {
		return Answer{Approved: string(q.Call.Arguments) != `{"n":2}`}
	})
	r.Cancel()
	<-r.Done()
	r, err := s.RunFrom(t.Context(), c, saved)
	if err != nil {
		t.Fatal(err)
	}
	step, _, err := steps(t, r, func(q Question) Answer {
		if q.Kind != AskHostCall {
			t.Errorf("asked %+v", q)
		}
		return Answer{}
	})
	if err != nil || step.Result.IsError || !strings.Contains(step.Result.Details.Stdout, "it was not approved") || done.Load() != 1 {
		t.Errorf("%v, %d: %s", err, done.Load(), step.Result.Text())
	}
}

func TestAPasswordIsInNoCheckpoint(t *testing.T) {
	s := open(t, withTools(t, host.Tool{Name: "t.ask"}))
	c := Call{Code: "import getpass\np = getpass.getpass()\nt.ask()\nlen(p)"}
	r := s.Run(t.Context(), c)
	_, saved := parked(t, r, AskHostCall, func(q Question) Answer {
		if !q.Hidden {
			t.Errorf("%+v", q)
		}
		return Answer{Text: "s3cret"}
	})
	if bytes.Contains(saved, []byte("s3cret")) {
		t.Errorf("%s", saved)
	}
	r.Cancel()
	<-r.Done()
	r, err := s.RunFrom(t.Context(), c, saved)
	if err != nil {
		t.Fatal(err)
	}
	var asked []QuestionKind
	step, _, err := steps(t, r, func(q Question) Answer {
		asked = append(asked, q.Kind)
		return map[QuestionKind]Answer{AskInput: {Text: "s3cret!"}, AskHostCall: {}}[q.Kind]
	})
	if err != nil || step.Result.Text() != "7" || !slices.Equal(asked, []QuestionKind{AskInput, AskHostCall}) {
		t.Errorf("%v, %v: %s", err, asked, step.Result.Text())
	}
}

// FuzzCheckpoint: a checkpoint that is taken says the same when it is written down and
// read again, and each of its decisions has a state.
func FuzzCheckpoint(f *testing.F) {
	c := Call{Code: "x"}
	for _, decisions := range []string{
		`[]`, `null`, `[null]`, `[{"tool": "a.b", "digest": "d", "state": "done", "value": {"x": [1, "é"]}}]`, `[{"state": "begun", "approvals": [{"digest": "d", "approved": true}]}]`,
		`[{"state": "asked", "error": {"code": "denied", "fields": {}}}]`, `[{"state": "lost"}]`, `[{"state": "done", "value": 1e999}]`,
	} {
		f.Add([]byte(fmt.Sprintf(`{"version": 1, "codeSha256": %q, "decisions": %s}`, codeOf(c), decisions)))
	}
	f.Fuzz(func(t *testing.T, saved []byte) {
		point, err := readCheckpoint(c, saved)
		if err != nil {
			return
		}
		for i, d := range point.Decisions {
			if d.State == "" {
				t.Errorf("%q: decision %d has no state", saved, i)
			}
		}
		text, err := json.Marshal(point)
		if err != nil {
			return // a date that JSON cannot say
		}
		again, err := readCheckpoint(c, text)
		second, _ := json.Marshal(again)
		if err != nil || !bytes.Equal(text, second) {
			t.Errorf("%q, then %q: %v", text, second, err)
		}
	})
}
