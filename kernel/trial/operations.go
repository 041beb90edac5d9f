package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
)

// Bounds of one session: a program that hangs is a failure of the runner.
const (
	maxReply  = 1 << 20 // characters
	taskLimit = 2 * time.Minute
)

// refusals are errors in which Linux refuses; absences are those in which it may when
// a policy hides something or keeps it from being made, and which otherwise mean that
// a case found no file.
var (
	refusals = []string{"EACCES", "EROFS", "EPERM", "EBUSY", "EXDEV", "ENETUNREACH", "EHOSTUNREACH"}
	absences = []string{"ENOENT", "EEXIST", "ENOTDIR", "EISDIR"}
)

func (r *runner) operations(ctx context.Context, t *task, o kernel.Options, room *room, done []Result) error {
	p, _, err := kernel.Policy(o)
	if err != nil {
		return err
	}
	var (
		todo      []act
		of        []int // index into done, for each of todo
		decisions []policy.Decision
		outside   bool
	)
	for i, at := range t.cases {
		c := t.suite.Cases.Cases[at]
		if c.Op[0] == "tool" {
			if err := r.tool(t.suite, p, c, &done[i]); err != nil {
				return err
			}
			continue
		}
		a := newAct(c, room)
		d := a.decide(p)
		done[i].Rule = d.Rule
		if path := a.lost(d, t.mode, room); path != "" {
			done[i].Error = fmt.Sprintf("not run: in mode %s it would be done, and %s is the host's; name it in files, where it is the test's own, or leave the mode out", t.mode, path)
			continue
		}
		outside = outside || a.Undo && !d.Enforced
		todo, of, decisions = append(todo, a), append(of, i), append(decisions, d)
	}
	if len(todo) == 0 {
		return nil
	}
	if outside && !t.elsewhere() {
		r.outside.Lock()
		defer r.outside.Unlock()
	}
	ended, told, err := r.perform(ctx, o, todo)
	if err != nil {
		return err
	}
	for i, a := range todo {
		c := t.suite.Cases.Cases[t.cases[of[i]]]
		judge(&done[of[i]], c, decisions[i], ended[i], a.seen(told))
	}
	return nil
}

// perform does the acts in one session.
func (r *runner) perform(ctx context.Context, o kernel.Options, todo []act) (ended []string, told []kernel.Violation, err error) {
	s, err := r.open(o)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	list, err := json.Marshal(todo)
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(string(list)) // a string of JSON is one of Python
	if err != nil {
		return nil, nil, err
	}
	result := s.Call(ctx, kernel.Call{Code: acts + "\n_all(json.loads(" + string(text) + "))\n", Timeout: taskLimit})
	if e := result.Details.Error; e != nil {
		return nil, nil, fmt.Errorf("the program that does the operations ended in %s: %s", e.Name, e.Value)
	}
	if err := json.Unmarshal([]byte(result.Details.Stdout), &ended); err != nil || len(ended) != len(todo) {
		return nil, nil, fmt.Errorf("the program that does the operations told of %d of %d", len(ended), len(todo))
	}
	return ended, result.Details.Policy.Violations, nil
}

// judge holds what an operation came to against the policy and the case.
func judge(r *Result, c policy.Case, d policy.Decision, errno string, seen bool) {
	refused := slices.Contains(refusals, errno) || slices.Contains(absences, errno) && !d.Allowed() && d.Enforced
	carried := d.Effect // what the mode makes of the decision
	if r.Mode == policy.Off && !d.Enforced {
		carried = policy.Allow
	}
	switch {
	case errno != "" && !refused:
		r.Error = fmt.Sprintf("it ended in %s, which is no refusal: name in files what it needs", errno)
		return
	case refused:
		r.Got, r.Errno = policy.Deny, errno
	case seen:
		r.Got = policy.Deny
	default:
		r.Got = policy.Allow
	}
	said := fmt.Sprintf("%s by rule %s (%s)", carried, d.Rule, d.Reason)
	switch {
	case refused && d.Allowed():
		r.Failure = fmt.Sprintf("%s, and not by the policy, which says %s: by the rights of the file?", errno, said)
	case refused && !d.Enforced:
		r.Failure = fmt.Sprintf("%s, where the policy only reports: %s: by the rights of the file?", errno, said)
	case r.Got != carried:
		r.Failure = fmt.Sprintf("%s, where the policy says %s", was(*r), said)
	case r.Got != r.Want:
		r.Failure = fmt.Sprintf("want %s; %s: %s", r.Want, was(*r), said)
	case c.Rule != "" && c.Rule != d.Rule:
		r.Failure = fmt.Sprintf("want rule %s; %s", c.Rule, said)
	case c.Errno != "" && refused && c.Errno != errno:
		r.Failure = fmt.Sprintf("want %s; refused with %s by rule %s", c.Errno, errno, d.Rule)
	}
}

// was says what was seen of an operation.
func was(r Result) string {
	switch {
	case r.Errno != "":
		return "refused with " + r.Errno
	case r.Got == policy.Deny:
		return "done, and reported"
	}
	return "done"
}

// tool decides a host call. The launcher carries these out, so that its decision is
// all there is to see.
func (r *runner) tool(s *Suite, p policy.Policy, c policy.Case, done *Result) error {
	op := policy.ToolOp{Session: "trial", Tool: c.Op[1], Role: c.Role, Purpose: c.Purpose}
	if len(c.Op) > 2 {
		op.Arguments = json.RawMessage(c.Op[2])
	}
	var rego policy.Evaluator
	if r.options.Rego != nil && p.Tools.Rego != nil {
		var err error
		if rego, err = r.options.Rego(*s); err != nil {
			return err
		}
	}
	d := p.DecideTool(op, rego)
	done.Got, done.Rule = d.Effect, d.Rule
	switch {
	case d.Effect != done.Want:
		done.Failure = fmt.Sprintf("want %s; %s by rule %s (%s)", done.Want, d.Effect, d.Rule, d.Reason)
	case c.Rule != "" && c.Rule != d.Rule:
		done.Failure = fmt.Sprintf("want rule %s; %s by rule %s (%s)", c.Rule, d.Effect, d.Rule, d.Reason)
	}
	return nil
}

// errnoText finds the number of an error in the text of an OSError.
var errnoText = regexp.MustCompile(`^\[Errno (\d+)\]`)

// cell runs a cell in a session of its own. It is denied when something that it did
// was, or when it ended in an error of a refusal.
func (r *runner) cell(ctx context.Context, t *task, o kernel.Options, done *Result) error {
	c := t.suite.Cases.Cases[t.cases[0]]
	s, err := r.open(o)
	if err != nil {
		return err
	}
	defer s.Close()
	result := s.Call(ctx, kernel.Call{Code: c.Cell, Timeout: taskLimit})
	var rules, told []string
	for _, v := range result.Details.Policy.Violations {
		rules = append(rules, v.Rule)
		told = append(told, fmt.Sprintf("%s %s by rule %s", v.Op, v.Path, v.Rule))
	}
	done.Got = policy.Allow
	if len(rules) > 0 {
		done.Got, done.Rule = policy.Deny, rules[0]
		if slices.Contains(rules, c.Rule) {
			done.Rule = c.Rule
		}
	}
	raised := ""
	if e := result.Details.Error; e != nil {
		raised = e.Name + ": " + e.Value
		switch e.Name {
		case kernel.ToolError, kernel.KernelExited, kernel.KernelKilled, kernel.KernelTimeout:
			done.Got, done.Error = "", "the cell did not come back: "+raised
			return nil
		}
		if m := errnoText.FindStringSubmatch(e.Value); m != nil {
			if name := errnoName(m[1]); slices.Contains(refusals, name) || slices.Contains(absences, name) && done.Got == policy.Deny {
				done.Errno, done.Got = name, policy.Deny
			}
		}
	}
	switch {
	case raised != "" && done.Errno == "":
		done.Failure = "the cell raised " + raised
	case done.Got != done.Want && done.Got == policy.Deny:
		done.Failure = fmt.Sprintf("want %s; denied: %s", done.Want, orText(strings.Join(told, "; "), raised))
	case done.Got != done.Want:
		done.Failure = fmt.Sprintf("want %s; nothing that it did was denied", done.Want)
	case done.Got == policy.Deny && c.Rule != "" && !slices.Contains(rules, c.Rule):
		done.Failure = fmt.Sprintf("want rule %s; denied: %s", c.Rule, orText(strings.Join(told, "; "), raised))
	case done.Got == policy.Deny && c.Errno != "" && t.mode == policy.Enforce && done.Errno != c.Errno:
		done.Failure = fmt.Sprintf("want %s; %s", c.Errno, orText(raised, "the cell raised no error"))
	}
	return nil
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
