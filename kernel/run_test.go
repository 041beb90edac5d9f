package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cellblock/kernel/host"
	"cellblock/policy"
)

// steps takes steps until the run has ended; answer answers what it waits for.
func steps(t *testing.T, r *Run, answer func(Question) Answer) (Step, []Event, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var answers []Answer
	var events []Event
	for {
		step, err := r.Step(ctx, answers...)
		if ctx.Err() != nil {
			t.Fatalf("the run does not end: %+v", events)
		}
		for _, e := range step.Events {
			if e.Number != int64(len(events)+1) {
				t.Fatalf("event %d is number %d", len(events)+1, e.Number)
			}
			events = append(events, e)
		}
		if err != nil || step.State == Finished {
			return step, events, err
		}
		if answers = nil; step.State == Waiting {
			for _, q := range step.Waiting {
				a := answer(q)
				a.ID = q.ID
				answers = append(answers, a)
			}
		}
	}
}

func nothingAsked(t *testing.T) func(Question) Answer {
	return func(q Question) Answer { t.Errorf("asked %+v", q); return Answer{} }
}

func kinds(events []Event) (list []string) {
	for _, e := range events {
		if len(list) == 0 || e.Kind != EventOutput || list[len(list)-1] != string(EventOutput) {
			list = append(list, string(e.Kind))
		}
	}
	return list
}

func TestARunIsDrivenStepByStep(t *testing.T) {
	o := withTools(t, host.Tool{Name: "t.ask"}, host.Tool{Name: "t.echo", Do: echo})
	tiers(t, o, func(t *testing.T, s *Session) {
		var sunk []Event
		r := s.Run(t.Context(), Call{Code: "name = input('who? ')\nprint(name)\n(t.echo(a=1), t.ask(q=name))", Events: func(e Event) { sunk = append(sunk, e) }})
		step, events, err := steps(t, r, func(q Question) Answer {
			switch q.Kind {
			case AskInput:
				if q.Prompt != "who? " || q.Hidden {
					t.Errorf("%+v", q)
				}
				return Answer{Text: "Ada"}
			case AskHostCall:
				if q.Call.Tool != "t.ask" || string(q.Call.Arguments) != `{"q":"Ada"}` || q.Call.Identity.Role != host.RoleSandbox {
					t.Errorf("%+v", q.Call)
				}
				return Answer{Value: json.RawMessage(`[42]`)}
			}
			t.Errorf("%+v", q)
			return Answer{}
		})
		if err != nil || step.Result.IsError || *step.Result.Details.Value != "({'a': 1}, [42])" {
			t.Fatalf("%v, %+v", err, step.Result)
		}
		if want := []string{"asked", "answered", "output", "call", "return", "call", "asked", "answered", "return", "end"}; !slices.Equal(kinds(events), want) {
			t.Errorf("%v", kinds(events))
		}
		if !slices.Equal(sunk, events) {
			t.Errorf("the sink has %+v, the steps %+v", sunk, events)
		}
		if _, err := r.Step(t.Context()); !errors.Is(err, ErrRunEnded) {
			t.Errorf("used after its end: %v", err)
		}
		for range 2 {
			if again, err := r.Continue(t.Context()); err != nil || again.State != Finished || again.Events != nil || again.Result.Text() != step.Result.Text() {
				t.Errorf("continued: %+v, %v", again, err)
			}
		}
		// The next call goes on with the same state, whoever answers.
		if got := value(t, s, "name"); got != "'Ada'" {
			t.Error(got)
		}
		if r := run(t, s, "input()"); !r.IsError || !strings.Contains(r.Text(), "no one is there to answer") {
			t.Errorf("a call that nobody drives: %s", r.Text())
		}
	})
}

// TestOutputComesBeforeWhatFollowsIt: what a cell has written before it asks, or calls, is
// told before that.
func TestOutputComesBeforeWhatFollowsIt(t *testing.T) {
	o := withTools(t, host.Tool{Name: "t.ask"}, host.Tool{Name: "t.echo", Do: echo})
	tiers(t, o, func(t *testing.T, s *Session) {
		const each = "print('a')\ninput()\nprint('b')\nt.echo(a=1)\nprint('c')\nt.ask()\n"
		r := s.Run(t.Context(), Call{Code: "for _ in range(30):\n    " + strings.ReplaceAll(strings.TrimSpace(each), "\n", "\n    ")})
		step, events, err := steps(t, r, func(q Question) Answer { return Answer{} })
		if err != nil || step.Result.IsError {
			t.Fatalf("%v, %+v", err, step.Result)
		}
		one := []string{"output", "asked", "answered", "output", "call", "return", "output", "call", "asked", "answered", "return"}
		if got, want := kinds(events), append(slices.Repeat(one, 30), "end"); !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
	})
}

func TestAnswersFitTheirQuestions(t *testing.T) {
	s := open(t, withTools(t, host.Tool{Name: "t.ask"}))
	r := s.Run(t.Context(), Call{Code: "t.ask()"})
	var step Step
	for step.State != Waiting {
		var err error
		if step, err = r.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	id := step.Waiting[0].ID
	for name, answers := range map[string][]Answer{
		"another id": {{ID: "q99"}}, "no id": {{}}, "twice": {{ID: id}, {ID: id}}, "no JSON": {{ID: id, Value: json.RawMessage("{")}},
		"an approval": {{ID: id, Approved: true}}, "again": {{ID: id, Again: true}}, "two things": {{ID: id, Value: json.RawMessage("1"), Error: &host.Error{}}},
	} {
		if _, err := r.Step(t.Context(), answers...); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	step, _, err := func() (Step, []Event, error) {
		_, err := r.Step(t.Context(), Answer{ID: id, Error: &host.Error{Code: "missing", Message: "no row"}})
		if err != nil {
			return Step{}, nil, err
		}
		var last Step
		for last.State != Finished {
			if last, err = r.Step(t.Context(), Answer{ID: id}); err != nil {
				return last, nil, err
			}
		}
		return last, nil, nil
	}()
	if err != nil || !strings.Contains(step.Result.Text(), "missing: no row") {
		t.Fatalf("%v: %+v", err, step)
	}
}

func TestARunThatWaitsIsCancelled(t *testing.T) {
	o := withTools(t, host.Tool{Name: "t.ask"})
	tiers(t, o, func(t *testing.T, s *Session) {
		run(t, s, "x = 41")
		for name, how := range map[string]func(r *Run){
			"Cancel": (*Run).Cancel, "Interrupt": func(*Run) { s.Interrupt() },
		} {
			for _, code := range []string{"t.ask()", "input()"} {
				r := s.Run(t.Context(), Call{Code: code})
				var events []Event
				var id string
				for {
					step, err := r.Step(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					events = append(events, step.Events...)
					if step.State == Waiting {
						id = step.Waiting[0].ID
						go how(r)
					}
					if step.State == Finished {
						if e := step.Result.Details.Error; e == nil || e.Name != "KeyboardInterrupt" || step.Result.Details.StateLost {
							t.Errorf("%s of %s: %+v", name, code, step.Result)
						}
						break
					}
				}
				if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == EventWithdrawn && e.Question == id }) {
					t.Errorf("%s of %s: %+v", name, code, events)
				}
			}
		}
		if got := value(t, s, "x + 1"); got != "42" {
			t.Error(got)
		}
	})
}

func TestARunEndsWithItsSession(t *testing.T) {
	for name, how := range map[string]func(*Session){"Abort": (*Session).Abort, "Close": func(s *Session) { s.Close() }} {
		tiers(t, withTools(t, host.Tool{Name: "t.ask"}), func(t *testing.T, s *Session) {
			r := s.Run(t.Context(), Call{Code: "t.ask()"})
			step, _, err := steps(t, r, func(Question) Answer {
				how(s)
				return Answer{}
			})
			if err != nil || step.Result.Details.Error == nil || step.Result.Details.Error.Name != KernelKilled {
				t.Errorf("%s: %v, %+v", name, err, step.Result)
			}
		})
	}
}

// TestAHostThatTakesNoStepsSlowsTheCellDown: what waits for it is bounded, nothing
// of it is lost, and nobody else is held up by it.
func TestAHostThatTakesNoStepsSlowsTheCellDown(t *testing.T) {
	s := open(t, Options{})
	const lines = 60000
	code := fmt.Sprintf("for i in range(%d): print('%s')\nprint('over', file=open('done', 'w'))", lines, strings.Repeat("x", 99))
	r := s.Run(t.Context(), Call{Code: code})
	for held, since := 0, time.Now(); time.Since(since) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		r.mu.Lock()
		now := r.held
		r.mu.Unlock()
		if now >= maxEventBytes {
			if held++; held > 10 {
				if now > 2*maxEventBytes {
					t.Errorf("%d bytes wait", now)
				}
				break
			}
		}
	}
	_, events, err := steps(t, r, nothingAsked(t))
	bytes := 0
	for _, e := range events {
		bytes += len(e.Text)
	}
	if err != nil || bytes != lines*100 {
		t.Errorf("%d bytes of output, %v", bytes, err)
	}
	// Where no step is ever taken, the time limit and the end of the session count.
	r = s.Run(t.Context(), Call{Code: code, Timeout: time.Second})
	if r.Result() != nil {
		t.Error("a result before the end")
	}
	<-r.Done()
	if result := r.Result(); result == nil || result.Details.Error == nil || result.Details.Error.Name != KernelTimeout {
		t.Errorf("%+v", result)
	}
	if step, err := r.Continue(t.Context()); err != nil || step.Result.Details.Error == nil || step.Result.Details.Error.Name != KernelTimeout {
		t.Errorf("%+v, %v", step, err)
	}
	r = s.Run(t.Context(), Call{Code: code})
	for r.room() {
		time.Sleep(5 * time.Millisecond)
	}
	s.Close()
	<-r.Done()
}

func (r *Run) room() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held < maxEventBytes
}

// confirming is options whose policy wants calls of t.* confirmed.
func confirming(t *testing.T, tools ...host.Tool) Options {
	t.Helper()
	o := withTools(t, tools...)
	for i := range o.Policy.Tools.Rules {
		if o.Policy.Tools.Rules[i].ID == "t" {
			o.Policy.Tools.Rules[i].Effect = policy.Confirm
		}
	}
	return o
}

func TestApprovals(t *testing.T) {
	var done atomic.Int32
	o := confirming(t, host.Tool{Name: "t.drop",
		Preflight: func(_ context.Context, c host.Call) (json.RawMessage, error) {
			return json.RawMessage(`{"drops": "orders"}`), nil
		},
		Do: func(context.Context, host.Call) (json.RawMessage, error) {
			done.Add(1)
			return json.RawMessage(`true`), nil
		}})
	tiers(t, o, func(t *testing.T, s *Session) {
		done.Store(0)
		for _, approve := range []bool{false, true} {
			step, _, err := steps(t, s.Run(t.Context(), Call{Code: "t.drop(table='orders')"}), func(q Question) Answer {
				if q.Kind != AskApproval || q.Approval.Call.Tool != "t.drop" || string(q.Approval.Action) != `{"drops": "orders"}` {
					t.Errorf("%+v", q)
				}
				return Answer{Approved: approve}
			})
			if err != nil || step.Result.IsError == approve || (done.Load() == 1) != approve {
				t.Errorf("approved %v: done %d times, %v, %s", approve, done.Load(), err, step.Result.Text())
			}
		}
		if r := run(t, s, "t.drop(table='orders')"); !r.IsError || !strings.Contains(r.Text(), "no-answer") || done.Load() != 1 {
			t.Errorf("nobody approves: %s", r.Text())
		}
		// Without steps the option answers, for exactly the call that it is shown.
		o := s.opts
		var shown host.Approval
		o.Approve = func(_ context.Context, a host.Approval) (bool, error) { shown = a; return true, nil }
		s = open(t, o)
		if r := run(t, s, "t.drop(table='x')"); r.IsError || done.Load() != 2 || string(shown.Call.Arguments) != `{"table":"x"}` {
			t.Errorf("%s, %+v", r.Text(), shown)
		}
	})
}
