package policy

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const tools = `version: 1
name: tools
fs: {}
tools:
  rules:
    - id: read
      tool: files.read
      roles: [sandbox]
      purposes: [interactive]
      schema: {type: object, properties: {path: {type: string, pattern: "^/srv/"}}, required: [path], additionalProperties: false}
      limits: {calls: 2, argument-bytes: 100}
      effect: allow
      reason: reads
    - {id: mail, tool: "mail.*", effect: allow, reason: mail}
    - {id: never, tool: mail.send, schema: {required: [bcc]}, effect: deny, reason: no hidden readers}
    - {id: admin, tool: "admin.*", effect: deny, reason: never}
    - {id: shown, tool: mail.delete, schema: {required: [all]}, limits: {calls: 3}, effect: confirm, reason: it cannot be undone}
`

func TestConfirmWinsOverAllowAndDenyOverBoth(t *testing.T) {
	p := compiled(t, tools+"    - {id: last, tool: mail.delete, schema: {required: [everyone]}, effect: deny, reason: never}\n", Facts{SessionDir: "/s"}, Report)
	for _, c := range []struct {
		arguments string
		calls     int64
		rule      string
		brief     string
	}{
		{`{"all": 1}`, 0, "shown", "confirm (shown)"},
		{`{"one": 1}`, 0, "mail", "allow (mail)"},
		{`{"all": 1}`, 3, "shown", "deny (shown)"},
		{`{"one": 1}`, 3, "mail", "allow (mail)"},
		{`{"all": 1, "everyone": 1}`, 0, "last", "deny (last)"},
	} {
		d := p.DecideTool(ToolOp{Tool: "mail.delete", Role: "sandbox", Purpose: "interactive", Arguments: json.RawMessage(c.arguments), Calls: c.calls}, nil)
		if d.Rule != c.rule || d.Brief() != c.brief {
			t.Errorf("%s after %d calls: %+v, want %s", c.arguments, c.calls, d, c.brief)
		}
	}
	if _, err := Parse("t.yaml", []byte(strings.Replace(tools, "effect: allow", "effect: ask", 1))); err == nil || !strings.Contains(err.Error(), "allow, confirm, deny") {
		t.Error(err)
	}
}

// A query that allows does not take the confirmation away.
func TestAQueryKeepsTheConfirmation(t *testing.T) {
	p := compiled(t, tools+"  rego: {module: \"package x\", query: data.x.d, reason: the query}\n", Facts{SessionDir: "/s"}, Report)
	d := p.DecideTool(ToolOp{Tool: "mail.delete", Role: "sandbox", Purpose: "interactive", Arguments: json.RawMessage(`{"all": 1}`)}, allows{})
	if d.Rule != "tools.rego" || d.Brief() != "confirm (tools.rego)" || len(d.Obligations) != 1 {
		t.Errorf("%+v", d)
	}
}

type allows struct{}

func (allows) Evaluate(ToolOp) (Effect, []string, []Obligation, error) {
	return Allow, nil, []Obligation{ObligeConfirm}, nil
}

func TestHostCalls(t *testing.T) {
	p := compiled(t, tools, Facts{SessionDir: "/s"}, Report)
	base := ToolOp{Tool: "files.read", Role: "sandbox", Purpose: "interactive", Arguments: json.RawMessage(`{"path": "/srv/x"}`)}
	for _, c := range []struct {
		name    string
		change  func(*ToolOp)
		rule    string
		allowed bool
	}{
		{"as the rule says", func(*ToolOp) {}, "read", true},
		{"another role", func(o *ToolOp) { o.Role = "extension" }, "default.tools", false},
		{"another purpose", func(o *ToolOp) { o.Purpose = "eval" }, "default.tools", false},
		{"another path", func(o *ToolOp) { o.Arguments = json.RawMessage(`{"path": "/etc/x"}`) }, "read", false},
		{"an argument more", func(o *ToolOp) { o.Arguments = json.RawMessage(`{"path": "/srv/x", "a": 1}`) }, "read", false},
		{"no arguments", func(o *ToolOp) { o.Arguments = nil }, "read", false},
		{"no JSON", func(o *ToolOp) { o.Arguments = json.RawMessage(`{`) }, "tools.arguments", false},
		{"long arguments", func(o *ToolOp) { o.Arguments = json.RawMessage(`{"path": "/srv/` + strings.Repeat("x", 100) + `"}`) }, "read", false},
		{"one call too many", func(o *ToolOp) { o.Calls = 2 }, "read", false},
		{"a namespace", func(o *ToolOp) { o.Tool = "mail.list" }, "mail", true},
		{"a namespace's own name", func(o *ToolOp) { o.Tool = "mail." }, "default.tools", false},
		{"a name that begins like it", func(o *ToolOp) { o.Tool = "mailer.list" }, "default.tools", false},
		{"a deny whose schema does not match", func(o *ToolOp) { o.Tool = "mail.send" }, "mail", true},
		{"a deny whose schema matches", func(o *ToolOp) { o.Tool = "mail.send"; o.Arguments = json.RawMessage(`{"bcc": 1}`) }, "never", false},
		{"unknown", func(o *ToolOp) { o.Tool = "x" }, "default.tools", false},
		{"denied", func(o *ToolOp) { o.Tool = "admin.x" }, "admin", false},
	} {
		op := base
		c.change(&op)
		d := p.DecideTool(op, nil)
		if d.Rule != c.rule || d.Allowed() != c.allowed || !c.allowed && (!d.Enforced || d.Reason == "") {
			t.Errorf("%s: %+v, want %s", c.name, d, c.rule)
		}
	}
	if d := p.DecideTool(ToolOp{Tool: "x"}, nil); len(d.Nearest) != 3 {
		t.Errorf("nearest: %v", d.Nearest)
	}
}

// answer is an evaluator that always says the same.
type answer struct {
	effect Effect
	err    error
}

func (a answer) Evaluate(ToolOp) (Effect, []string, []Obligation, error) {
	return a.effect, nil, nil, a.err
}

func TestDelegation(t *testing.T) {
	text := strings.Replace(tools, "tools:\n", "tools:\n  default: allow\n  rego: {module: m, query: q, reason: by the query}\n", 2)
	text = strings.Replace(text, "name: tools\n  default: allow\n  rego: {module: m, query: q, reason: by the query}\n", "name: tools\n", 1)
	p := compiled(t, text, Facts{SessionDir: "/s"}, Report)
	op := ToolOp{Tool: "x.y"}
	for name, c := range map[string]struct {
		by      Evaluator
		allowed bool
	}{
		"nothing that evaluates": {nil, false},
		"allowed":                {answer{effect: Allow}, true},
		"denied":                 {answer{effect: Deny}, false},
		"undefined":              {answer{}, false},
		"failed":                 {answer{Allow, errors.New("timeout")}, false},
	} {
		if d := p.DecideTool(op, c.by); d.Allowed() != c.allowed || d.Rule != "tools.rego" {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if d := p.DecideTool(ToolOp{Tool: "admin.x"}, answer{effect: Allow}); d.Allowed() || d.Rule != "admin" {
		t.Errorf("a deny of the rules holds whatever the query says: %+v", d)
	}
}

// A number that a schema cannot be held against is neither let through by a rule that
// allows, nor past one that denies, nor without the question of one that confirms.
func TestNumbersAreDecidedOnExactlyOrRefused(t *testing.T) {
	p := compiled(t, `version: 1
name: numbers
fs: {}
tools:
  default: allow
  rules:
    - {id: one, tool: pay.one, schema: {properties: {n: {enum: [9007199254740992]}}}, effect: allow, reason: this one}
    - {id: others, tool: pay.one, effect: deny, schema: {not: {properties: {n: {enum: [9007199254740992]}}}}, reason: no other}
    - {id: much, tool: pay.much, effect: deny, schema: {properties: {n: {minimum: 100}}}, reason: too much}
    - {id: shown, tool: pay.shown, effect: confirm, schema: {properties: {n: {minimum: 100}}}, reason: somebody looks}
`, Facts{SessionDir: "/s"}, Report)
	huge := "1" + strings.Repeat("0", 400)
	for _, c := range []struct{ tool, n, brief string }{
		{"pay.one", "9007199254740992", "allow (one)"},
		{"pay.one", "9007199254740993", "deny (others)"},
		{"pay.one", huge, "deny (others)"},
		{"pay.much", "99", "allow (default.tools)"},
		{"pay.much", "18446744073709551615", "deny (much)"},
		{"pay.much", huge, "deny (much)"},
		{"pay.shown", huge, "confirm (shown)"},
		{"pay.free", huge, "allow (default.tools)"},
	} {
		d := p.DecideTool(ToolOp{Tool: c.tool, Role: "sandbox", Purpose: "interactive", Arguments: json.RawMessage(`{"n": ` + c.n + `}`)}, nil)
		if d.Brief() != c.brief {
			t.Errorf("%s(%.30s): %s, want %s", c.tool, c.n, d.Brief(), c.brief)
		}
	}
	_, err := Parse("t.yaml", []byte("version: 1\nname: n\nfs: {}\ntools:\n  rules:\n    - {tool: a.b, schema: {maximum: 9007199254740993}, effect: allow, reason: r}\n"))
	if err == nil || !strings.Contains(err.Error(), "9007199254740993") {
		t.Error(err)
	}
}
