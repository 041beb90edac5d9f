package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"cellblock/kernel"
	"cellblock/kernel/host"
	"cellblock/policy"
)

// A host call that the policy wants confirmed is put to the client's user; without one
// who answers, or with another answer than yes, it is not carried out.
func TestTheClientsUserApproves(t *testing.T) {
	doc, err := kernel.BuiltInPolicy("default")
	if err != nil {
		t.Fatal(err)
	}
	doc.Tools.Rules = append(doc.Tools.Rules, policy.ToolRule{ID: "t", Tool: "t.*", Effect: policy.Confirm, Reason: "a person looks"})
	const revision = "2025-11-25"
	yes := func(m string) *sdk.ElicitResult {
		for _, want := range []string{"calls t.do", "a person looks", `{"n":7}`, `{"would":"do"}`} {
			if !strings.Contains(m, want) {
				t.Errorf("the question does not say %q: %s", want, m)
			}
		}
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}
	}
	for _, c := range []struct {
		name   string
		answer func(message string) *sdk.ElicitResult // nil: the client asks nobody
		done   bool

		revision string
	}{
		{"approved", yes, true, revision},
		{"no", func(string) *sdk.ElicitResult {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": false}}
		}, false, revision},
		{"declined", func(string) *sdk.ElicitResult { return &sdk.ElicitResult{Action: "decline"} }, false, revision},
		{"dismissed", func(string) *sdk.ElicitResult {
			return &sdk.ElicitResult{Action: "cancel", Content: map[string]any{"approve": true}}
		}, false, revision},
		{"nobody is asked", nil, false, revision},
		// There a server may not ask in the middle of a call.
		{"a revision that has no such question", yes, false, "2026-07-28"},
	} {
		t.Run(c.name, func(t *testing.T) {
			done := false
			session, err := kernel.Open(kernel.Options{SessionDir: t.TempDir(), PythonBin: "/usr/bin/python3", Tier: kernel.TierProcess, Policy: &doc, Approve: Approve,
				Tools: []host.Tool{{Name: "t.do", Do: func(context.Context, host.Call) (json.RawMessage, error) { done = true; return nil, nil },
					Preflight: func(context.Context, host.Call) (json.RawMessage, error) {
						return json.RawMessage(`{"would":"do"}`), nil
					}}}})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			ours, theirs := sdk.NewInMemoryTransports()
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- Serve(ctx, session, "test", "a description", ours) }()
			options := &sdk.ClientOptions{}
			if c.answer != nil {
				options.ElicitationHandler = func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					return c.answer(r.Params.Message), nil
				}
			}
			client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(ctx, theirs, &sdk.ClientSessionOptions{ProtocolVersion: c.revision})
			if err != nil {
				t.Fatal(err)
			}
			result, err := client.CallTool(ctx, &sdk.CallToolParams{Name: "python", Arguments: map[string]any{"code": "t.do(n=7)"}})
			if err != nil {
				t.Fatal(err)
			}
			if text := result.Content[0].(*sdk.TextContent).Text; done != c.done || result.IsError == c.done {
				t.Errorf("carried out: %v: %s", done, text)
			}
			_ = client.Close()
			cancel()
			<-served
		})
	}
}
