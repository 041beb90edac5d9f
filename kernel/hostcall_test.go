package kernel

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"cellblock/kernel/host"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// withTools is options whose policy lets through what is called t.
func withTools(t *testing.T, tools ...host.Tool) Options {
	t.Helper()
	doc, err := BuiltInPolicy("default")
	if err != nil {
		t.Fatal(err)
	}
	doc.Tools.Rules = append(doc.Tools.Rules, policy.ToolRule{ID: "t", Tool: "t.*", Effect: policy.Allow, Reason: "tools of the test"})
	return Options{Policy: &doc, Tools: tools}
}

// echo answers with its arguments.
func echo(_ context.Context, c host.Call) (json.RawMessage, error) { return c.Arguments, nil }

func TestACellCallsTheHostsTools(t *testing.T) {
	var who host.Identity
	o := withTools(t,
		host.Tool{Name: "t.echo", Do: echo},
		host.Tool{Name: "t.who", Do: func(_ context.Context, c host.Call) (json.RawMessage, error) { who = c.Identity; return nil, nil }},
		host.Tool{Name: "t.fail", Do: func(context.Context, host.Call) (json.RawMessage, error) {
			return nil, &host.Error{Type: "NotFound", Code: "missing", Message: "no row", Fields: json.RawMessage(`{"id":7}`)}
		}},
		host.Tool{Name: "other.echo", Do: echo})
	tiers(t, o, func(t *testing.T, s *Session) {
		if got := value(t, s, `t.echo(b=1, a=[None, 2.5, "é"])`); got != `{'b': 1, 'a': [None, 2.5, 'é']}` {
			t.Error(got)
		}
		r := s.Call(t.Context(), Call{Code: "t.who()", Purpose: "maintenance"})
		if want := (host.Identity{Session: s.name, Workspace: s.dir, Generation: 1, Cell: 2, Scope: s.name + "/2", Purpose: host.Maintenance, Role: host.RoleSandbox}); r.IsError || who != want {
			t.Errorf("%+v, want %+v: %s", who, want, r.Text())
		}
		if r := run(t, s, "other.echo()"); !r.IsError || !strings.Contains(r.Text(), "denied: host call \"other.echo\" is not permitted") {
			t.Error(r.Text())
		}
		if r := run(t, s, "t.fail()"); !r.IsError || !strings.Contains(r.Text(), "missing: NotFound: no row") {
			t.Error(r.Text())
		}
		s.Call(t.Context(), Call{Reset: true})
		if got := value(t, s, "t.echo()"); got != "{}" {
			t.Errorf("after a reset: %s", got)
		}
		if r := s.Call(t.Context(), Call{Code: "1", Purpose: "fun"}); !r.IsError || !strings.Contains(r.Text(), "interactive, maintenance, eval") {
			t.Error(r.Text())
		}
	})
}

// A worker may send what it likes: a call is of the cell that runs on its wire, or
// it is of none.
func TestNothingInACallMakesItAnothersOrAnEarlierCells(t *testing.T) {
	const call = `
def call(n, **more):
    say(dict({"id": n, "op": "host", "name": "t.echo", "arguments": {"n": n}}, **more)); return json.loads(f.readline())
`
	for _, c := range []struct{ name, bad string }{
		{"the control", `
got = call(1, scope=m["scope"])
assert got == {"id": 1, "scope": m["scope"], "value": {"n": 1}}, got`},
		{"no scope", `
got = call(1)
assert got["error"]["code"] == "scope-closed", got`},
		{"another cell's scope", `
got = call(1, scope=m["scope"][:-1] + "7")
assert got["error"]["code"] == "scope-closed", got`},
		{"another session's scope", `
got = call(1, scope="s1-1/1")
assert got["error"]["code"] == "scope-closed", got`},
		{"a role and a session in the arguments", `
say({"id": 1, "op": "host", "name": "t.who", "arguments": {"session": "x", "role": "extension", "scope": "y"}, "scope": m["scope"]})
got = json.loads(f.readline())
assert got["value"]["role"] == "sandbox" and got["value"]["scope"] == m["scope"], got`},
		{"cancelled twice", `
say({"id": 1, "op": "host", "name": "t.slow", "arguments": {}, "scope": m["scope"]})
say({"id": 2, "op": "host", "name": "host.cancel", "arguments": {"call": 1}, "scope": m["scope"]})
say({"id": 3, "op": "host", "name": "host.cancel", "arguments": {"call": 1}, "scope": m["scope"]})
got = sorted((json.loads(f.readline()) for _ in range(3)), key=lambda g: g["id"])
assert got[0]["error"]["code"] == "cancelled" and got[1]["value"] is True and got[2]["value"] is False, got`},
		{"after its reply", `
say({"id": m["id"], "value": {"status": "ok", "value": "held"}})
got = call(1, scope=m["scope"])
open(os.environ["HOME"] + "/after", "w").write(got["error"]["code"])
time.sleep(600)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := withTools(t, host.Tool{Name: "t.echo", Do: echo},
				host.Tool{Name: "t.who", Do: func(_ context.Context, c host.Call) (json.RawMessage, error) { return json.Marshal(c.Identity) }},
				host.Tool{Name: "t.slow", Do: func(ctx context.Context, _ host.Call) (json.RawMessage, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}})
			o.Audit = auditFile(t)
			o.SessionDir = t.TempDir()
			s := withFake(t, call+c.bad+`
say({"id": m["id"], "value": {"status": "ok", "value": "held"}})`, o)
			r := run(t, s, "1")
			if r.Details.Value == nil || *r.Details.Value != "held" {
				t.Fatalf("%s", r.Text())
			}
			if strings.Contains(c.name, "after") {
				waitFor(t, func() bool {
					got, _ := os.ReadFile(o.SessionDir + "/after")
					return string(got) == "scope-closed"
				})
			}
			denied := 0
			for _, r := range recorded(t, s) {
				if r.Op == audit.OpHostCall && r.Decision == audit.Denied && r.Rule == "host.scope" {
					denied++
				}
			}
			if want := strings.Contains(c.name, "scope") || strings.Contains(c.name, "after"); (denied == 1) != want {
				t.Errorf("%d refusals in the record", denied)
			}
		})
	}
}

func TestTheMethodsThatEverySessionHas(t *testing.T) {
	store := host.NewMemoryStore()
	store.Put(host.Evidence{Ref: "log:1", Kind: "log", Body: json.RawMessage(`{"lines":3}`)})
	tiers(t, Options{Store: store}, func(t *testing.T, s *Session) {
		if got := value(t, s, "import cellblock; cellblock.workspace_info() == {'path': '"+s.dir+"', 'session_id': '"+s.name+"'}"); got != "True" {
			t.Error(got)
		}
		if got := value(t, s, "cellblock.evidence_resolve(['log:1', 'x'])"); got !=
			"{'resolved': [{'ref': 'log:1', 'kind': 'log', 'lines': 3}], 'unavailable': [{'ref': 'x', 'reason': 'nothing is known of it'}]}" {
			t.Error(got)
		}
		if r := run(t, s, "cellblock.maintenance_originate('p', 'r')"); !r.IsError || !strings.Contains(r.Text(), "denied") {
			t.Errorf("for another purpose: %s", r.Text())
		}
		maintain := func(code string) Result { return s.Call(t.Context(), Call{Code: code, Purpose: "maintenance"}) }
		if r := maintain("item = (await cellblock.maintenance_originate('p', 'r', ['log:1']))['work_item_id']\nawait cellblock.maintenance_assess(item, 'deferred', reason='later')"); r.IsError ||
			*r.Details.Value != "{'work_item_id': '"+store.WorkItems()[len(store.WorkItems())-1].ID+"', 'outcome': 'deferred'}" {
			t.Errorf("%s", r.Text())
		}
		// What the module would not send, the host refuses as well.
		if r := maintain("cellblock.call('maintenance.assess', work_item_id=item, outcome='activated')"); !r.IsError || !strings.Contains(r.Text(), "invalid-arguments: outcome activated needs candidate_revision") {
			t.Errorf("%s", r.Text())
		}
		if r := run(t, s, "workspace"); !r.IsError || !strings.Contains(r.Text(), "NameError") {
			t.Errorf("the methods are bound by name: %s", r.Text())
		}
	})
}

// inThread is Python that makes a call in a thread, which waits until it has been started:
// an interrupt within Thread.start can come out as an error of threading's own lock.
const inThread = `
import threading
gate = threading.Lock(); gate.acquire()
x = threading.Thread(target=lambda: (gate.acquire(), t.slow()), daemon=True); x.start()
gate.release()
`

func TestTheEndOfACellAndAnInterruptEndItsCalls(t *testing.T) {
	ended := make(chan struct{}, 4)
	began := make(chan struct{}, 4)
	o := withTools(t, host.Tool{Name: "t.slow", Do: func(ctx context.Context, _ host.Call) (json.RawMessage, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	}})
	tiers(t, o, func(t *testing.T, s *Session) {
		results := make(chan Result, 1)
		for _, c := range []struct {
			code  string
			calls int
		}{
			{"t.slow()", 1},
			{"await t.slow()", 1},
			{"import asyncio; await asyncio.gather(t.slow(), t.slow())", 2},
			{inThread + "while True: pass", 1},
			{inThread + "import time; time.sleep(0.1); t.slow()", 2},
			{inThread + "x.join()", 1},
		} {
			go func() { results <- s.Call(t.Context(), Call{Code: "state = 5\n" + c.code}) }()
			for range c.calls {
				<-began
			}
			if !s.Interrupt() {
				t.Errorf("%s: nothing was interrupted", c.code)
			}
			r := <-results
			for range c.calls {
				<-ended
			}
			if r.Details.Error == nil || r.Details.Error.Name != "KeyboardInterrupt" || r.Details.StateLost {
				t.Errorf("%s: %s", c.code, r.Text())
			}
			if got := value(t, s, "state"); got != "5" {
				t.Errorf("%s: the state after it: %s", c.code, got)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { results <- s.Call(ctx, Call{Code: "t.slow()"}) }()
		<-began
		cancel()
		<-ended
		<-results
		go func() { results <- s.Call(t.Context(), Call{Code: "t.slow()"}) }()
		<-began
		s.Abort()
		<-ended
		if r := <-results; r.Details.Error == nil || r.Details.Error.Name != KernelKilled {
			t.Errorf("%s", r.Text())
		}
	})
}

func TestHostCallsAreRecordedBeforeAndAfter(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		o := withTools(t, host.Tool{Name: "t.echo", Do: echo})
		o.Tier, o.Audit = s.opts.Tier, auditFile(t)
		s = open(t, o)
		run(t, s, `t.echo(password="t0ps3cret")`)
		got := recorded(t, s)
		call, back := find(t, got, audit.OpHostCall), find(t, got, audit.OpHostReturn)
		if call.Target != "t.echo" || call.Rule != "t" || call.Decision != audit.Allowed || call.Cell != 1 || call.Facts["call"] == "" ||
			call.Facts["call"] != back.Facts["call"] || call.Facts["digest"] == nil || back.Decision != audit.Allowed {
			t.Errorf("%+v\n%+v", call, back)
		}
	})
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come")
		}
	}
}

// A cell can break its interpreter so that it resets nothing: a reset means a session
// that works, all the same.
func TestAResetOfABrokenInterpreterIsAFreshOne(t *testing.T) {
	tiers(t, withTools(t, host.Tool{Name: "t.echo", Do: echo}), func(t *testing.T, s *Session) {
		run(t, s, `import builtins; builtins.isinstance = builtins.str = lambda *a: "{}"; builtins.set = None`)
		if r := s.Call(t.Context(), Call{Reset: true}); r.IsError {
			t.Fatalf("%s", r.Text())
		}
		if got := value(t, s, "t.echo(n=6 * 7)"); got != "{'n': 42}" {
			t.Error(got)
		}
	})
}
