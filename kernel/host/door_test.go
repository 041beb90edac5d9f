package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cellblock/policy"
)

// log is a recorder that keeps what it is told.
type log struct {
	mu    sync.Mutex
	lines []string
	fail  bool
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) Refused(c Call, rule, _ string) { l.add("refused %s %s", c.Tool, rule) }

func (l *log) Before(c Call, g Grant) error {
	if l.fail {
		return errors.New("no record, no call")
	}
	l.add("before %s %s", c.Tool, g.Rule)
	return nil
}

func (l *log) After(c Call, o Outcome) {
	code := "ok"
	if o.Error != nil {
		code = o.Error.Code
	}
	if o.Late {
		code += " late"
	}
	l.add("after %s %s", c.Tool, code)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, ", ")
}

var me = Identity{Session: "s", Scope: "s/1", Cell: 1, Purpose: Interactive, Role: RoleSandbox}

// echo answers with its arguments.
func echo(_ context.Context, c Call) (json.RawMessage, error) { return c.Arguments, nil }

func allow(policy.ToolOp) policy.Decision {
	return policy.Decision{Effect: policy.Allow, Rule: "all", Reason: "for the test"}
}

func doorWith(t *testing.T, c Config, tools ...Tool) *Door {
	t.Helper()
	if c.Decide == nil {
		c.Decide = allow
	}
	d := NewDoor(c)
	if err := d.Set("test", tools); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOnlyWhatPassesEveryStepIsCarriedOut(t *testing.T) {
	ran := 0
	count := func(ctx context.Context, c Call) (json.RawMessage, error) { ran++; return echo(ctx, c) }
	schema := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)
	tools := []Tool{
		{Name: "t.open", Do: count},
		{Name: "t.schema", Schema: schema, Do: count},
		{Name: "t.role", Roles: []Role{RoleExtension}, Do: count},
		{Name: "t.purpose", Purposes: []Purpose{Maintenance}, Do: count},
		{Name: "t.denied", Do: count},
		{Name: "t.confirm", Do: count},
		{Name: "t.obliged", Do: count},
		{Name: "t.nobody"},
		{Name: "t.badflight", Do: count, Preflight: func(context.Context, Call) (json.RawMessage, error) { return nil, errors.New("no") }},
		{Name: "t.noaction", Do: count, Preflight: func(context.Context, Call) (json.RawMessage, error) { return json.RawMessage(`[1]`), nil }},
		{Name: "t.action", Do: count, Preflight: func(_ context.Context, c Call) (json.RawMessage, error) {
			return json.RawMessage(`{"deletes":` + string(c.Arguments) + `}`), nil
		}},
	}
	decide := func(op policy.ToolOp) policy.Decision {
		d := allow(op)
		switch {
		case op.Tool == "t.denied", strings.Contains(string(op.Action), "all"):
			d = policy.Decision{Effect: policy.Deny, Rule: "no", Reason: "never"}
		case op.Tool == "t.confirm":
			d.Obligations = []policy.Obligation{policy.ObligeConfirm}
		case op.Tool == "t.obliged":
			d.Obligations = []policy.Obligation{policy.ObligeConfirm, "sing"}
		}
		return d
	}
	for _, c := range []struct {
		name, tool, arguments string
		as                    func(*Request)
		code, record          string
	}{
		{"the control", "t.open", `{"a":1}`, nil, "", "before t.open all, after t.open ok"},
		{"unknown", "t.none", `{}`, nil, CodeUnknown, "refused t.none host.absent"},
		{"denied", "t.denied", `{}`, nil, CodeDenied, "refused t.denied no"},
		{"its schema", "t.schema", `{"n":1}`, nil, "", "before t.schema all, after t.schema ok"},
		{"another type", "t.schema", `{"n":"1"}`, nil, CodeArguments, "refused t.schema host.arguments"},
		{"one more", "t.schema", `{"n":1,"m":2}`, nil, CodeArguments, "refused t.schema host.arguments"},
		{"no object", "t.open", `[1]`, nil, CodeArguments, "refused t.open host.arguments"},
		{"more digits than a schema compares", "t.schema", `{"n":1` + strings.Repeat("0", 400) + `}`, nil, CodeArguments, "refused t.schema host.arguments"},
		{"as many as a schema does", "t.schema", `{"n":9007199254740993}`, nil, "", "before t.schema all, after t.schema ok"},
		{"a number beyond all", "t.open", `{"n":1e999}`, nil, CodeArguments, "refused t.open host.arguments"},
		{"another role", "t.role", `{}`, nil, CodeDenied, "refused t.role host.role"},
		{"its role", "t.role", `{}`, func(r *Request) { r.Identity.Role = RoleExtension }, "", "before t.role all, after t.role ok"},
		{"another purpose", "t.purpose", `{}`, nil, CodeDenied, "refused t.purpose host.purpose"},
		{"its purpose", "t.purpose", `{}`, func(r *Request) { r.Identity.Purpose = Maintenance }, "", "before t.purpose all, after t.purpose ok"},
		{"too long", "t.open", `{"a":"` + strings.Repeat("x", MaxArguments) + `"}`, nil, CodeTooLarge, "refused t.open host.size"},
		{"nobody answers", "t.nobody", `{}`, nil, CodeNoAnswer, "refused t.nobody host.answer"},
		{"somebody answers", "t.nobody", `{}`, func(r *Request) { r.Answer = count }, "", "before t.nobody all, after t.nobody ok"},
		{"nobody approves", "t.confirm", `{}`, nil, CodeNoAnswer, "refused t.confirm host.approval"},
		{"disapproved", "t.confirm", `{}`, func(r *Request) {
			r.Approve = func(context.Context, Approval) (bool, error) { return false, nil }
		}, CodeDenied, "refused t.confirm host.approval"},
		{"an error is no approval", "t.confirm", `{}`, func(r *Request) {
			r.Approve = func(context.Context, Approval) (bool, error) { return true, errors.New("gone") }
		}, CodeNoAnswer, "refused t.confirm host.approval"},
		{"approved", "t.confirm", `{}`, func(r *Request) {
			r.Approve = func(context.Context, Approval) (bool, error) { return true, nil }
		}, "", "before t.confirm all, after t.confirm ok"},
		{"an obligation nobody carries out", "t.obliged", `{}`, func(r *Request) {
			r.Approve = func(context.Context, Approval) (bool, error) { return true, nil }
		}, CodeDenied, "refused t.obliged all"},
		{"a preflight that fails", "t.badflight", `{}`, nil, CodeFailed, "refused t.badflight host.preflight"},
		{"an action that is none", "t.noaction", `{}`, nil, CodeFailed, "refused t.noaction host.preflight"},
		{"an action that is allowed", "t.action", `{"x":1}`, nil, "", "before t.action all, after t.action ok"},
		{"an action that is denied", "t.action", `{"all":1}`, nil, CodeDenied, "refused t.action no"},
		{"no record", "t.open", `{}`, func(r *Request) { r.Record.(*log).fail = true }, CodeDenied, ""},
	} {
		ran = 0
		d := doorWith(t, Config{Decide: decide}, tools...)
		l := &log{}
		r := Request{Identity: me, Tool: c.tool, Arguments: json.RawMessage(c.arguments), Record: l}
		if c.as != nil {
			c.as(&r)
		}
		value, failed := d.Call(t.Context(), r)
		code := ""
		if failed != nil {
			code = failed.Code
		}
		if code != c.code || (code == "") != (ran == 1) || code == "" && string(value) != c.arguments || l.String() != c.record {
			t.Errorf("%s: %s %v, the tool ran %d times, record %q", c.name, value, failed, ran, l)
		}
	}
}

// What is approved is what is carried out, whatever whoever approves does to what
// it was shown.
func TestAnApprovalIsForExactlyOneCall(t *testing.T) {
	confirm := func(op policy.ToolOp) policy.Decision {
		d := allow(op)
		d.Obligations = []policy.Obligation{policy.ObligeConfirm}
		return d
	}
	d := doorWith(t, Config{Decide: confirm}, Tool{Name: "t.do", Do: echo, Preflight: func(_ context.Context, c Call) (json.RawMessage, error) {
		return json.RawMessage(`{"would":"do"}`), nil
	}})
	var seen []Approval
	approve := func(_ context.Context, a Approval) (bool, error) {
		seen = append(seen, a)
		copy(a.Call.Arguments, `{"n":9}`)
		copy(a.Action, `{"nothing":1}`)
		return true, nil
	}
	for _, arguments := range []string{`{"n":1}`, `{"n":2}`, `{"n":2}`} {
		value, failed := d.Call(t.Context(), Request{Identity: me, Tool: "t.do", Arguments: json.RawMessage(arguments), Approve: approve})
		if failed != nil || string(value) != arguments {
			t.Fatalf("%s, %v, want %s", value, failed, arguments)
		}
	}
	if len(seen) != 3 || seen[0].Digest == seen[1].Digest || seen[1].Digest != seen[2].Digest || seen[1].ID == seen[2].ID {
		t.Errorf("%+v", seen)
	}
}

func TestAnApprovalExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		confirm := func(op policy.ToolOp) policy.Decision {
			d := allow(op)
			d.Obligations = []policy.Obligation{policy.ObligeConfirm}
			return d
		}
		d := doorWith(t, Config{Decide: confirm, ApprovalTime: time.Minute}, Tool{Name: "t.do", Do: echo})
		for wait, code := range map[time.Duration]string{59 * time.Second: "", 61 * time.Second: CodeNoAnswer} {
			_, failed := d.Call(t.Context(), Request{Identity: me, Tool: "t.do", Arguments: json.RawMessage(`{}`),
				Approve: func(context.Context, Approval) (bool, error) { time.Sleep(wait); return true, nil }})
			switch {
			case failed != nil && failed.Code != code:
				t.Errorf("%v: %v", wait, failed)
			case failed == nil && code != "":
				t.Errorf("%v: carried out", wait)
			}
		}
		time.Sleep(time.Minute) // until the late answer has come to nobody
	})
}

// Calls at once never pass a limit on their number.
func TestABudgetIsNotSpentTwice(t *testing.T) {
	const budget = 5
	ran := make(chan int64, 100)
	d := doorWith(t, Config{Decide: func(op policy.ToolOp) policy.Decision {
		if op.Calls >= budget {
			return policy.Decision{Effect: policy.Deny, Rule: "budget", Reason: "spent"}
		}
		return allow(op)
	}}, Tool{Name: "t.do", Do: func(ctx context.Context, c Call) (json.RawMessage, error) {
		ran <- 1
		return nil, nil
	}})
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			_, _ = d.Call(t.Context(), Request{Identity: me, Tool: "t.do", Arguments: json.RawMessage(`{}`)})
		})
	}
	all.Wait()
	if len(ran) > budget || len(ran) == 0 {
		t.Errorf("%d calls of %d", len(ran), budget)
	}
	// What was refused has spent nothing.
	for len(ran) < budget {
		if _, failed := d.Call(t.Context(), Request{Identity: me, Tool: "t.do", Arguments: json.RawMessage(`{}`)}); failed != nil {
			t.Fatal(failed)
		}
	}
	if _, failed := d.Call(t.Context(), Request{Identity: me, Tool: "t.do", Arguments: json.RawMessage(`{}`)}); failed == nil || failed.Code != CodeDenied {
		t.Errorf("one more: %v", failed)
	}
}

func TestACancelledCallReturnsAtOnceAndItsOutcomeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := doorWith(t, Config{}, Tool{Name: "t.slow", Do: func(context.Context, Call) (json.RawMessage, error) {
			<-release
			return json.RawMessage(`1`), nil
		}})
		l := &log{}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		if _, failed := d.Call(ctx, Request{Identity: me, Tool: "t.slow", Arguments: json.RawMessage(`{}`), Record: l}); failed == nil || failed.Code != CodeCancelled {
			t.Fatal(failed)
		}
		if l.String() != "before t.slow all" {
			t.Errorf("%s", l)
		}
		close(release)
		synctest.Wait()
		if l.String() != "before t.slow all, after t.slow ok late" {
			t.Errorf("%s", l)
		}
	})
}

func TestTheOpenCallsAreBoundedAndAccountedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := doorWith(t, Config{}, Tool{Name: "t.slow", Do: func(context.Context, Call) (json.RawMessage, error) { <-release; return nil, nil }})
		l := &log{}
		ctx, cancel := context.WithCancel(t.Context())
		for range MaxOpen {
			go d.Call(ctx, Request{Identity: me, Tool: "t.slow", Arguments: json.RawMessage(`{}`), Record: l})
		}
		synctest.Wait()
		if _, failed := d.Call(ctx, Request{Identity: me, Tool: "t.slow", Arguments: json.RawMessage(`{}`)}); failed == nil || failed.Code != CodeBusy {
			t.Fatal(failed)
		}
		cancel()
		synctest.Wait() // their callers have gone; the tools have not
		if _, failed := d.Call(t.Context(), Request{Identity: me, Tool: "t.slow", Arguments: json.RawMessage(`{}`)}); failed == nil || failed.Code != CodeBusy {
			t.Fatal(failed)
		}
		d.Close(time.After(time.Second))
		if got := strings.Count(l.String(), "after t.slow indeterminate"); got != MaxOpen {
			t.Errorf("%d of %d are accounted for", got, MaxOpen)
		}
		close(release)
		synctest.Wait()
		if got := strings.Count(l.String(), "after"); got != MaxOpen {
			t.Errorf("%d returns of %d calls", got, MaxOpen)
		}
		if _, failed := d.Call(t.Context(), Request{Identity: me, Tool: "t.slow", Arguments: json.RawMessage(`{}`)}); failed == nil || failed.Code != CodeScopeClosed {
			t.Fatal(failed)
		}
	})
}

func TestWhatAToolReturnsIsToldAsItIs(t *testing.T) {
	for _, c := range []struct {
		name  string
		value string
		err   error
		want  Error
	}{
		{"nothing", "", nil, Error{}},
		{"its own error", "", &Error{Type: "NotFound", Code: "missing", Message: "no row", Fields: json.RawMessage(`{"id":7}`)}, Error{"NotFound", "missing", "no row", json.RawMessage(`{"id":7}`)}},
		{"any error", "", errors.New("disk full"), Error{"HostError", CodeFailed, "disk full", nil}},
		{"wrapped", "", fmt.Errorf("later: %w", &Error{Message: "x"}), Error{"HostError", CodeFailed, "x", nil}},
		{"fields that are none", "", &Error{Message: "x", Fields: json.RawMessage(`[1]`)}, Error{"HostError", CodeFailed, "x (its fields could not be passed on)", nil}},
		{"no JSON", "{", nil, Error{"HostError", CodeFailed, "the tool's result is not JSON: no JSON", nil}},
		{"too long", `"` + strings.Repeat("x", MaxResult) + `"`, nil, Error{"HostError", CodeTooLarge, fmt.Sprintf("the result has %d bytes, at most %d are passed on", MaxResult+2, MaxResult), nil}},
	} {
		d := doorWith(t, Config{}, Tool{Name: "t.do", Do: func(context.Context, Call) (json.RawMessage, error) { return json.RawMessage(c.value), c.err }})
		value, failed := d.Call(t.Context(), Request{Identity: me, Tool: "t.do", Arguments: json.RawMessage(`{}`)})
		switch {
		case failed == nil && (c.want.Code != "" || string(value) != "null"):
			t.Errorf("%s: %s", c.name, value)
		case failed != nil && (failed.Type != c.want.Type || failed.Code != c.want.Code || failed.Message != c.want.Message || string(failed.Fields) != string(c.want.Fields)):
			t.Errorf("%s: %+v", c.name, failed)
		}
	}
	d := doorWith(t, Config{}, Tool{Name: "t.do", Do: func(context.Context, Call) (json.RawMessage, error) { panic("oops") }})
	if _, failed := d.Call(t.Context(), Request{Identity: me, Tool: "t.do", Arguments: json.RawMessage(`{}`)}); failed == nil || failed.Code != CodeIndeterminate {
		t.Errorf("a panic: %v", failed)
	}
}

// TestAFaultOnTheWayIsARefusal: neither a policy nor an approval that breaks off ends the
// launcher, and nothing is carried out.
func TestAFaultOnTheWayIsARefusal(t *testing.T) {
	confirm := func(policy.ToolOp) policy.Decision {
		return policy.Decision{Effect: policy.Allow, Obligations: []policy.Obligation{policy.ObligeConfirm}}
	}
	for name, c := range map[string]struct {
		decide  func(policy.ToolOp) policy.Decision
		approve func(context.Context, Approval) (bool, error)
		want    string
	}{
		"the policy":       {func(policy.ToolOp) policy.Decision { panic("oops") }, nil, CodeFailed},
		"the approval":     {confirm, func(context.Context, Approval) (bool, error) { panic("oops") }, CodeNoAnswer},
		"a goroutine ends": {confirm, func(context.Context, Approval) (bool, error) { runtime.Goexit(); return true, nil }, CodeNoAnswer},
	} {
		d := doorWith(t, Config{Decide: c.decide}, Tool{Name: "t.do", Do: func(context.Context, Call) (json.RawMessage, error) {
			t.Errorf("%s: the call was carried out", name)
			return nil, nil
		}})
		_, failed := d.Call(t.Context(), Request{Identity: me, Tool: "t.do", Arguments: json.RawMessage(`{}`), Approve: c.approve})
		if failed == nil || failed.Code != c.want {
			t.Errorf("%s: %v", name, failed)
		}
		if n := len(d.open); n != 0 {
			t.Errorf("%s: %d calls stay open", name, n)
		}
	}
}

func TestToolsThatCannotBe(t *testing.T) {
	d := doorWith(t, Config{}, Tool{Name: "a.b", Do: echo})
	for name, tools := range map[string][]Tool{
		"no name":           {{}},
		"no identifier":     {{Name: "a-b"}},
		"a keyword":         {{Name: "x.class"}},
		"the launcher's":    {{Name: "host.cancel"}},
		"input":             {{Name: "input"}},
		"twice":             {{Name: "x"}, {Name: "x"}},
		"another owner's":   {{Name: "a.b"}},
		"a tool as a space": {{Name: "a.b.c"}},
		"a space as a tool": {{Name: "a"}},
		"a role":            {{Name: "x", Roles: []Role{"root"}}},
		"a purpose":         {{Name: "x", Purposes: []Purpose{"fun"}}},
		"no schema":         {{Name: "x", Schema: json.RawMessage(`{`)}},
		"a schema of text":  {{Name: "x", Schema: json.RawMessage(`{"type":"string"}`)}},
		"a schema afar":     {{Name: "x", Schema: json.RawMessage(`{"$ref":"https://schemas.invalid/x"}`)}},
	} {
		if err := d.Set("other", tools); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := d.Set("other", []Tool{{Name: "a.c"}, {Name: "b"}}); err != nil || len(d.Tools()) != 3 || len(d.Tools("test")) != 2 {
		t.Errorf("the control: %v, %v", err, d.Tools())
	}
	if err := d.Set("other", nil); err != nil || len(d.Tools()) != 1 {
		t.Errorf("taken away: %v, %v", err, d.Tools())
	}
}

func TestAScopeEndsForGood(t *testing.T) {
	s := NewScope(t.Context(), me)
	first, done, ok := s.Begin(1)
	if !ok || first.Err() != nil {
		t.Fatal("the control")
	}
	if s.Cancel(2) || !s.Cancel(1) || s.Cancel(1) || first.Err() == nil {
		t.Error("a cancellation is for one call, once")
	}
	done()
	second, _, _ := s.Begin(2)
	s.Interrupt()
	if second.Err() == nil || !s.Live() {
		t.Error("an interrupt ends the calls, not the scope")
	}
	third, _, _ := s.Begin(3)
	s.Yield()
	if _, _, ok := s.Begin(4); ok || third.Err() == nil || s.Live() {
		t.Error("a scope that has yielded makes no call")
	}
	s = NewScope(t.Context(), me)
	fourth, _, _ := s.Begin(1)
	s.Close()
	if _, _, ok := s.Begin(2); ok || fourth.Err() == nil || s.Live() {
		t.Error("a closed scope makes no call")
	}
}
