package rego

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"cellblock/policy"
)

func ask(t *testing.T, module string, op policy.ToolOp) (policy.Effect, []string, []policy.Obligation, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	q, err := Compile(context.Background(), "data.t.d", []Module{{"t.rego", "package t\n\n" + module}})
	if err != nil {
		return "", nil, nil, err
	}
	return q.Evaluate(ctx, op)
}

func TestADecisionIsWhatTheModuleSays(t *testing.T) {
	const module = `
default d := {"effect": "deny", "reasons": ["nobody said yes"]}
d := {"effect": "allow", "reasons": [sprintf("%s may, as %s for %s in %s", [input.tool, input.role, input.purpose, input.session])], "obligations": {"note"}} if {
	input.arguments.path == "/srv/x"
	input.action.writes == false
}
`
	op := policy.ToolOp{Session: "s1", Tool: "files.read", Role: "sandbox", Purpose: "eval", Arguments: json.RawMessage(`{"path": "/srv/x"}`), Action: json.RawMessage(`{"writes": false}`)}
	effect, reasons, obligations, err := ask(t, module, op)
	if err != nil || effect != policy.Allow || !slices.Equal(reasons, []string{"files.read may, as sandbox for eval in s1"}) || !slices.Equal(obligations, []policy.Obligation{"note"}) {
		t.Errorf("%v %v %v %v", effect, reasons, obligations, err)
	}
	op.Arguments = nil
	if effect, reasons, _, err := ask(t, module, op); err != nil || effect != policy.Deny || reasons[0] != "nobody said yes" {
		t.Errorf("%v %v %v", effect, reasons, err)
	}
}

// TestWhatIsNoDecision: none of these is an allow, and each says what is wrong.
func TestWhatIsNoDecision(t *testing.T) {
	for _, c := range []struct{ name, module, want string }{
		{"undefined", `d := {"effect": "allow"} if input.tool == "no"`, "undefined"},
		{"no rule", `e := 1`, "undefined"},
		{"true", `d := true`, "no object"},
		{"text", `d := "allow"`, "no object"},
		{"null", `d := null`, "no object"},
		{"a partial set", `d contains "allow"`, "no object"},
		{"empty", `d := {}`, "no effect"},
		{"another effect", `d := {"effect": "ALLOW"}`, "neither allow nor deny"},
		{"effect is true", `d := {"effect": true}`, "neither allow nor deny"},
		{"another member", `d := {"effect": "allow", "allow": true}`, `member "allow"`},
		{"reasons are a text", `d := {"effect": "allow", "reasons": "r"}`, "no list"},
		{"a reason is a number", `d := {"effect": "allow", "reasons": [1]}`, "no text"},
		{"too many reasons", `d := {"effect": "allow", "reasons": numbers.range(1, 99)}`, "at most"},
		{"a long reason", `d := {"effect": "allow", "reasons": [concat("", [x | some i in numbers.range(1, 2000); x := sprintf("%d", [i])])]}`, "no text of at most"},
		{"an obligation with blanks", `d := {"effect": "allow", "obligations": ["do it"]}`, "no word"},
		{"a conflict", "d := {\"effect\": \"allow\"}\nd := {\"effect\": \"deny\"} if input.tool", "conflict"},
		{"an error of a function", `d := {"effect": "allow", "reasons": [json.unmarshal("{")]}`, "json.unmarshal"},
		{"a division by zero", `d := {"effect": "allow"} if not 1 / input.arguments.zero == 1`, "divide"},
		{"it never ends", `d := {"effect": "allow"} if count([1 | some a in numbers.range(1, 20000); some b in numbers.range(1, 20000); a * b == 7]) > 9`, "time"},
		{"recursion", "d := e\ne := d", "recursive"},
		{"not Rego", `d := {`, "rego"},
		{"of the old dialect", "d = x { x := 1 }", "rego"},
		{"deep", "d := " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), "brackets"},
		{"large", "d := \"" + strings.Repeat("x", MaxModules) + `"`, "bytes of modules"},
		{"another machine", `d := http.send({"method": "get", "url": "http://127.0.0.1/"})`, "undefined function http.send"},
		{"names of machines", `d := net.lookup_ip_addr("localhost")`, "undefined function net.lookup_ip_addr"},
		{"the environment", `d := opa.runtime().env`, "undefined function opa.runtime"},
		{"the clock", `d := time.now_ns()`, "undefined function time.now_ns"},
		{"randomness", `d := rand.intn("x", 2)`, "undefined function rand.intn"},
		{"a schema elsewhere", `d := json.match_schema({}, {"$ref": "http://127.0.0.1/"})`, "undefined function json.match_schema"},
		{"data of nobody", `d := data.secrets`, "undefined"},
	} {
		effect, _, _, err := ask(t, c.module, policy.ToolOp{Tool: "a.b", Arguments: json.RawMessage(`{"zero": 0}`)})
		if err == nil || effect == policy.Allow || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s %v, want %q", c.name, effect, err, c.want)
		}
	}
	if _, _, _, err := ask(t, `d := {"effect": "allow"}`, policy.ToolOp{Arguments: json.RawMessage(`{`)}); err == nil {
		t.Error("arguments that are no JSON are looked at")
	}
	q, err := Compile(t.Context(), "x = [1, 2][_]", nil)
	if err != nil {
		t.Fatal(err)
	}
	if effect, _, _, err := q.Evaluate(t.Context(), policy.ToolOp{}); err == nil || effect == policy.Allow {
		t.Errorf("several results: %v %v", effect, err)
	}
}

// TestNothingOfTheMachineCanBeAsked: whatever a later version of the engine calls
// nondeterministic is not there either.
func TestNothingOfTheMachineCanBeAsked(t *testing.T) {
	known := map[string]bool{}
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		known[b.Name] = true
	}
	for name := range absent {
		if !known[name] {
			t.Errorf("the engine has no %s: the list names what is not there", name)
		}
	}
	for _, b := range Capabilities().Builtins {
		if b.IsNondeterministic() || absent[b.Name] != "" {
			t.Errorf("%s can be called", b.Name)
		}
	}
	if c := Capabilities(); c.AllowNet == nil || len(c.AllowNet) != 0 || len(c.Builtins) < 100 {
		t.Errorf("%v", c.AllowNet)
	}
}

const tested = `package t

allow if input.n > 1

test_passes if allow with input as {"n": 2}

test_fails if allow with input as {"n": 1}

test_undefined if data.nothing.here

test_false := false

test_error if json.unmarshal("{")

todo_test_later if false

test_table[n] if {
	some n, c in {"two": 2, "one": 1}
	allow with input as {"n": c}
}

nothing_test_ if false
`

// TestTestsEndAsInTheEnginesOwnRunner: with the runner as anybody sets it up, and
// everything that it may use, each test ends in the same way.
func TestTestsEndAsInTheEnginesOwnRunner(t *testing.T) {
	modules := []Module{{"t.rego", tested}, {"u_test.rego", "package u_test\n\nimport data.t\n\ntest_other if not t.allow with input as {\"n\": 0}\n"}}
	ours, err := Test(t.Context(), modules)
	if err != nil {
		t.Fatal(err)
	}
	parsed := map[string]*ast.Module{}
	for _, m := range modules {
		parsed[m.Name] = ast.MustParseModule(m.Text)
	}
	store := inmem.New()
	txn, err := store.NewTransaction(t.Context(), storage.WriteParams)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Abort(t.Context(), txn)
	results, err := tester.NewRunner().SetStore(store).SetModules(parsed).RaiseBuiltinErrors(true).SetTimeout(time.Minute).RunTests(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]string{}
	for r := range results {
		theirs[r.Package+"."+r.Name] = fmt.Sprint(r.Pass(), r.Skip)
	}
	for _, o := range ours {
		if got := fmt.Sprint(o.Passed, o.Skipped); theirs[o.Name] != got {
			t.Errorf("%s: %s, the engine's own runner says %s", o.Name, got, theirs[o.Name])
		}
		if o.Line == 0 || o.File == "" || !o.Passed && !o.Skipped && o.Why == "" {
			t.Errorf("%+v", o)
		}
		delete(theirs, o.Name)
	}
	if len(theirs) != 0 || len(ours) < 8 {
		t.Errorf("%d tests; not run: %v", len(ours), theirs)
	}
	if _, err := Test(t.Context(), []Module{{"t.rego", "package t\ntest_x if http.send({})"}}); err == nil {
		t.Error("a test may reach another machine")
	}
}

// TestServeAnswersEachLine: also those that make no sense.
func TestServeAnswersEachLine(t *testing.T) {
	in := strings.Join([]string{
		`{"call": {"tool": "a.b"}}`, `nonsense`, `{}`,
		`{"load": {"query": "data.t.d", "modules": [{"name": "t", "text": "package t\nd := {\"effect\": \"allow\"}"}]}}`,
		`{"call": {"tool": "a.b"}}`,
		`{"load": {"query": "data.t.d", "modules": [{"name": "t", "text": "nonsense"}]}}`,
		`{"call": {"tool": "a.b"}}`,
	}, "\n")
	var out strings.Builder
	if err := Serve(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	var told []string
	for line := range strings.Lines(out.String()) {
		var r Response
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		told = append(told, map[bool]string{true: "error", false: string(r.Effect)}[r.Error != ""])
	}
	// What could not be loaded leaves nothing to be asked.
	if got := strings.Join(told, ","); got != "error,error,error,,allow,error,error" {
		t.Errorf("%s\n%s", got, out.String())
	}
}

func FuzzConform(f *testing.F) {
	for _, s := range []string{`{"effect":"allow","reasons":["r"],"obligations":["o"]}`, `{"effect":"deny"}`, `[]`, `{"effect":{}}`, `{"effect":"allow","x":1}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			return
		}
		effect, reasons, obligations, err := conform(value)
		object, ok := value.(map[string]any)
		if err == nil && (!ok || object["effect"] != string(effect) || len(reasons) > maxReasons || len(obligations) > maxObligations) || err != nil && effect == policy.Allow {
			t.Fatalf("%s: %v %v %v %v", text, effect, reasons, obligations, err)
		}
	})
}
