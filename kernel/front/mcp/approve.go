package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"cellblock/kernel/host"
)

// asking is the key of the client whose call a context belongs to.
type asking struct{}

// maxShown bounds what a client is shown of a call that is to be approved, in bytes.
const maxShown = 16 << 10

// Approve has the client's user approve a host call, where the client asks its user
// (elicitation) and its revision of the protocol lets a server ask in the middle of a
// call, as those before 2026-07-28 do. It is for kernel.Options.Approve of the session
// that is served. The error says that nobody could be asked; what is too long to be
// shown is not approved.
func Approve(ctx context.Context, a host.Approval) (bool, error) {
	client, ok := ctx.Value(asking{}).(*sdk.ServerSession)
	if !ok {
		return false, errors.New("the call did not come from a client that could be asked")
	}
	arguments, action := host.Shown(a.Call.Arguments), host.Shown(a.Action)
	if len(arguments)+len(action) > maxShown {
		return false, fmt.Errorf("its arguments and action have more than %d bytes, too many to be read", maxShown)
	}
	text := fmt.Sprintf("A cell of session %s calls %s, which wants to be approved: %s\nArguments: %s", a.Call.Identity.Session, a.Call.Tool, a.Reason, arguments)
	if action != "" {
		text += "\nIt would do: " + action
	}
	answer, err := client.Elicit(ctx, &sdk.ElicitParams{Message: text, RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"approve":{"type":"boolean","description":"carry this one call out"}},"required":["approve"]}`)})
	if err != nil {
		return false, fmt.Errorf("ask the client: %w", err)
	}
	approved, _ := answer.Content["approve"].(bool)
	return answer.Action == "accept" && approved, nil
}
