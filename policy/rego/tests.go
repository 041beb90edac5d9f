package rego

import (
	"context"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/open-policy-agent/opa/v1/storage"
)

// Outcome is what became of one test.
type Outcome struct {
	File       string  `json:"file"`
	Line       int     `json:"line"`
	Name       string  `json:"name"` // with its package
	Passed     bool    `json:"passed"`
	Skipped    bool    `json:"skipped,omitempty"` // todo_test_…
	Why        string  `json:"why,omitempty"`
	DurationMs float64 `json:"durationMs"`
}

// testLimit bounds one test.
const testLimit = 10 * time.Second

// Test runs the rules of the modules that begin with test_, with the engine's own
// runner and with what a query may use.
func Test(ctx context.Context, modules []Module) ([]Outcome, error) {
	parsed, err := parse(modules)
	if err != nil {
		return nil, err
	}
	store := inmem.New()
	txn, err := store.NewTransaction(ctx, storage.WriteParams)
	if err != nil {
		return nil, fmt.Errorf("rego: %w", err)
	}
	defer store.Abort(ctx, txn)
	compiler := ast.NewCompiler().WithCapabilities(Capabilities()).WithEnablePrintStatements(true)
	results, err := tester.NewRunner().SetCompiler(compiler).SetStore(store).SetModules(parsed).SetTimeout(testLimit).
		RaiseBuiltinErrors(true).CapturePrintOutput(true).RunTests(ctx, txn)
	if err != nil {
		return nil, fmt.Errorf("rego: %w", err)
	}
	var out []Outcome
	for r := range results {
		o := Outcome{Name: r.Package + "." + r.Name, Passed: r.Pass(), Skipped: r.Skip, DurationMs: float64(r.Duration.Microseconds()) / 1000}
		if r.Location != nil {
			o.File, o.Line = r.Location.File, r.Location.Row
		}
		switch {
		case r.Error != nil:
			o.Why = r.Error.Error()
		case r.Fail && r.FailedAt != nil && r.FailedAt.Location != nil:
			o.Why = fmt.Sprintf("false or undefined at line %d: %s", r.FailedAt.Location.Row, r.FailedAt.Location.Text)
		case r.Fail:
			o.Why = "false or undefined"
		}
		out = append(out, o)
	}
	return out, nil
}
