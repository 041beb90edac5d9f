package rego

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	opa "github.com/open-policy-agent/opa/v1/rego"

	"cellblock/policy"
)

// Module is one file of Rego.
type Module struct {
	Name string `json:"name"` // for messages
	Text string `json:"text"`
}

// Bounds of what is compiled and of a decision.
const (
	MaxModules     = 1 << 20 // bytes of all together
	maxDepth       = 500     // of nested brackets: the parser's own recursion
	maxReasons     = 16
	maxReason      = 1 << 10 // bytes
	maxObligations = 16
)

// absent are built-in functions that are taken away beside those that the engine
// itself calls nondeterministic: what they answer is not in the input, or what they
// read may lead elsewhere.
var absent = map[string]string{
	"http.send":              "another machine",
	"net.lookup_ip_addr":     "another machine",
	"opa.runtime":            "the process's settings and environment",
	"time.now_ns":            "the clock",
	"rand.intn":              "randomness",
	"uuid.rfc4122":           "randomness",
	"json.match_schema":      "a schema may refer to another machine",
	"json.verify_schema":     "a schema may refer to another machine",
	"providers.aws.sign_req": "it is there for requests to another machine",
}

// Capabilities are what modules may use.
func Capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		return b.IsNondeterministic() || absent[b.Name] != ""
	})
	c.AllowNet = []string{} // nobody, where nil is everybody
	return c
}

// parse reads modules within their bounds.
func parse(modules []Module) (map[string]*ast.Module, error) {
	total := 0
	parsed := map[string]*ast.Module{}
	options := ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: Capabilities()}
	for _, m := range modules {
		if total += len(m.Text); total > MaxModules {
			return nil, fmt.Errorf("rego: more than %d bytes of modules", MaxModules)
		}
		if nested(m.Text) > maxDepth {
			return nil, fmt.Errorf("rego: %s: more than %d brackets within each other", m.Name, maxDepth)
		}
		if parsed[m.Name] != nil {
			return nil, fmt.Errorf("rego: module %s is there twice", m.Name)
		}
		module, err := ast.ParseModuleWithOpts(m.Name, m.Text, options)
		if err != nil {
			return nil, fmt.Errorf("rego: %w", err)
		}
		if module == nil {
			return nil, fmt.Errorf("rego: %s: no module in it", m.Name)
		}
		parsed[m.Name] = module
	}
	return parsed, nil
}

// nested is how deep brackets open within each other at most, those in texts too.
func nested(text string) int {
	depth, most := 0, 0
	for _, c := range text {
		switch c {
		case '(', '[', '{':
			depth++
			most = max(most, depth)
		case ')', ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return most
}

// Query is a query with its modules, ready to be asked. It may be asked by several
// goroutines.
type Query struct{ prepared opa.PreparedEvalQuery }

// Compile reads the modules and the query.
func Compile(ctx context.Context, query string, modules []Module) (*Query, error) {
	parsed, err := parse(modules)
	if err != nil {
		return nil, err
	}
	options := []func(*opa.Rego){opa.Query(query), opa.Capabilities(Capabilities()), opa.StrictBuiltinErrors(true), opa.SetRegoVersion(ast.RegoV1)}
	for _, m := range parsed {
		options = append(options, opa.ParsedModule(m))
	}
	prepared, err := opa.New(options...).PrepareForEval(ctx)
	if err != nil {
		return nil, fmt.Errorf("rego: %w", err)
	}
	return &Query{prepared}, nil
}

// input is what a query is asked.
type input struct {
	Session   string          `json:"session"`
	Purpose   string          `json:"purpose"`
	Role      string          `json:"role"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Action    json.RawMessage `json:"action"`
}

// Evaluate asks about one host call.
func (q *Query) Evaluate(ctx context.Context, op policy.ToolOp) (policy.Effect, []string, []policy.Obligation, error) {
	fail := func(err error) (policy.Effect, []string, []policy.Obligation, error) {
		return policy.Deny, nil, nil, err
	}
	in := input{op.Session, op.Purpose, op.Role, op.Tool, op.Arguments, op.Action}
	if len(in.Arguments) == 0 {
		in.Arguments = json.RawMessage("{}")
	}
	if len(in.Action) == 0 {
		in.Action = json.RawMessage("null")
	}
	text, err := json.Marshal(in)
	if err != nil {
		return fail(fmt.Errorf("input: %w", err))
	}
	value, err := ast.ValueFromReader(strings.NewReader(string(text)))
	if err != nil {
		return fail(fmt.Errorf("input: %w", err))
	}
	results, err := q.prepared.Eval(ctx, opa.EvalParsedInput(value))
	switch {
	case ctx.Err() != nil:
		return fail(fmt.Errorf("no answer in time: %w", ctx.Err()))
	case err != nil:
		return fail(err)
	case len(results) == 0:
		return fail(errors.New("the result is undefined"))
	case len(results) > 1 || len(results[0].Expressions) != 1:
		return fail(errors.New("the query has several results"))
	}
	return conform(results[0].Expressions[0].Value)
}

var obligationPattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// conform reads a decision: an object of the three members and nothing else.
func conform(value any) (effect policy.Effect, reasons []string, obligations []policy.Obligation, err error) {
	object, ok := value.(map[string]any)
	if !ok {
		return policy.Deny, nil, nil, fmt.Errorf("the result is %s, and no object", kindOf(value))
	}
	for key, v := range object {
		switch key {
		case "effect":
			text, _ := v.(string)
			if effect = policy.Effect(text); effect != policy.Allow && effect != policy.Deny {
				return policy.Deny, nil, nil, errors.New("effect is neither allow nor deny")
			}
		case "reasons":
			if reasons, err = texts(v, maxReasons, maxReason); err != nil {
				return policy.Deny, nil, nil, fmt.Errorf("reasons: %w", err)
			}
		case "obligations":
			words, err := texts(v, maxObligations, maxReason)
			if err != nil {
				return policy.Deny, nil, nil, fmt.Errorf("obligations: %w", err)
			}
			for _, w := range words {
				if !obligationPattern.MatchString(w) {
					return policy.Deny, nil, nil, fmt.Errorf("obligations: %q is no word of lower-case letters, digits and dashes", w)
				}
				obligations = append(obligations, policy.Obligation(w))
			}
		default:
			return policy.Deny, nil, nil, fmt.Errorf("the result has a member %q", key)
		}
	}
	if effect == "" {
		return policy.Deny, nil, nil, errors.New("the result has no effect")
	}
	return effect, reasons, obligations, nil
}

// texts reads a list or a set of short texts.
func texts(value any, most, bytes int) ([]string, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%s, and no list", kindOf(value))
	}
	if len(list) > most {
		return nil, fmt.Errorf("%d, at most %d may be", len(list), most)
	}
	var out []string
	for _, v := range list {
		text, ok := v.(string)
		if !ok || len(text) > bytes {
			return nil, fmt.Errorf("one is no text of at most %d bytes", bytes)
		}
		out = append(out, text)
	}
	return out, nil
}

func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case json.Number, float64, int:
		return "a number"
	case []any:
		return "a list"
	}
	return "something else"
}
