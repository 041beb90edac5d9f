package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
)

// drive asks for a step.
func (l *live) drive(run string, ask api.Ask) (api.Step, got) {
	l.t.Helper()
	body, _ := json.Marshal(ask)
	g := l.ask("POST", run+"/step", string(body))
	var step api.Step
	if err := json.Unmarshal([]byte(g.body), &step); err != nil {
		l.t.Fatalf("%d %s", g.status, g.body)
	}
	return step, g
}

// until drives a run until it waits or has finished, and returns the texts on the way.
func (l *live) until(run string, answers ...api.Answer) (api.Step, string) {
	l.t.Helper()
	var text string
	for {
		step, g := l.drive(run, api.Ask{Answers: answers})
		answers = nil
		if g.status != http.StatusOK {
			l.t.Fatalf("%d %s", g.status, g.body)
		}
		for _, e := range step.Events {
			text += e.Text
		}
		if step.State == kernel.Waiting || step.State == kernel.Finished {
			return step, text
		}
	}
}

// TestARunCountsWhenItHasEnded: whether its caller asks for the end, often or never.
func TestARunCountsWhenItHasEnded(t *testing.T) {
	l := serve(t, nil)
	s := l.create("")
	const ok = `cellblock_cells_total\{outcome="ok"\}`
	l.begin(s, "1")
	eventually(t, "a run that nobody drives is counted", func() bool { return l.metric(ok) == 1 })
	run := s + "/runs/" + l.begin(s, "2")
	for range 2 {
		if step, _ := l.until(run); step.State != kernel.Finished {
			t.Errorf("%+v", step)
		}
	}
	eventually(t, "one that is driven is counted once", func() bool { return l.metric(ok) == 2 })
}

// TestACallerDrivesARun: questions of input(), host calls that the policy lets through and
// such that it wants confirmed are answered in steps; a step is said again when asked.
func TestACallerDrivesARun(t *testing.T) {
	l := serve(t, withTools(t))
	s := l.create(`, "tools": [{"name": "prices.of", "doc": "A price.", "schema": {"type": "object", "required": ["thing"]}}, {"name": "orders.drop"}, {"name": "other.call"}]`)
	run := s + "/runs/" + l.begin(s, "print('begun')\nname = input('who? ')\n(name, prices.of(thing='lamp'))")
	step, text := l.until(run)
	if text != "begun\n" || len(step.Waiting) != 1 || step.Waiting[0].Kind != kernel.AskInput || step.Waiting[0].Prompt != "who? " {
		t.Fatalf("%q %+v", text, step)
	}
	if again, _ := l.drive(run, api.Ask{Step: step.Step}); again.Step != step.Step || len(again.Waiting) != 1 {
		t.Errorf("said again: %+v", again)
	}
	for name, ask := range map[string]api.Ask{
		"a step that is far":  {Step: step.Step + 5},
		"no such question":    {Answers: []api.Answer{{ID: "q99", Text: "x"}}},
		"not what was asked":  {Answers: []api.Answer{{ID: step.Waiting[0].ID, Approved: true}}},
		"a wait without end":  {WaitSeconds: 1e9},
		"a wait before begin": {WaitSeconds: -1},
	} {
		if _, g := l.drive(run, ask); g.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, g.status, g.body)
		}
	}
	if idle, _ := l.drive(run, api.Ask{WaitSeconds: 0.01}); idle.State != api.StateNothing || idle.Step != 0 {
		t.Errorf("nothing happens: %+v", idle)
	}
	step, _ = l.until(run, api.Answer{ID: step.Waiting[0].ID, Text: "Ada"})
	if len(step.Waiting) != 1 || step.Waiting[0].Kind != kernel.AskHostCall || step.Waiting[0].Call.Tool != "prices.of" || !strings.Contains(string(step.Waiting[0].Call.Arguments), "lamp") {
		t.Fatalf("%+v", step)
	}
	step, _ = l.until(run, api.Answer{ID: step.Waiting[0].ID, Value: json.RawMessage(`42`)})
	if step.State != kernel.Finished || step.Result == nil || step.Result.Details.Value == nil || *step.Result.Details.Value != "('Ada', 42)" {
		t.Fatalf("%+v", step)
	}
	if again, g := l.drive(run, api.Ask{}); g.status != 200 || again.State != kernel.Finished {
		t.Errorf("the end is said again: %d %s", g.status, g.body)
	}

	// What the policy wants confirmed is shown first, and a refusal reaches the cell.
	run = s + "/runs/" + l.begin(s, "orders.drop(id=7)")
	step, _ = l.until(run)
	if len(step.Waiting) != 1 || step.Waiting[0].Kind != kernel.AskApproval || step.Waiting[0].Approval.Reason != "it cannot be undone" || step.Waiting[0].Approval.Digest == "" {
		t.Fatalf("%+v", step)
	}
	if step, _ = l.until(run, api.Answer{ID: step.Waiting[0].ID}); step.State != kernel.Finished || !step.Result.IsError {
		t.Errorf("not approved: %+v", step)
	}
	// What it does not let through is never asked.
	run = s + "/runs/" + l.begin(s, "other.call()")
	if step, _ = l.until(run); step.State != kernel.Finished || !step.Result.IsError {
		t.Errorf("a call that the policy denies: %+v", step)
	}
	// Without steps nobody answers.
	if r := l.run(s, "input()"); !r.IsError {
		t.Errorf("%+v", r.Details)
	}
	// A cancelled run comes to its end, and the session goes on.
	run = s + "/runs/" + l.begin(s, "input()")
	l.until(run)
	if g := l.ask("DELETE", run, ""); g.status != http.StatusNoContent {
		t.Errorf("%d %s", g.status, g.body)
	}
	for step.State = ""; step.State != kernel.Finished; {
		step, _ = l.drive(run, api.Ask{})
	}
	if r := l.run(s, "name"); r.Details.Value == nil || *r.Details.Value != "'Ada'" {
		t.Errorf("%+v", r.Details)
	}
}
