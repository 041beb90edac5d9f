package mcp

import (
	"context"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"cellblock/kernel"
)

// idleClient is how long a client's own session stays that sends nothing.
const idleClient = time.Hour

// Handler offers one session over streamable HTTP, to any number of clients; their calls
// run one after the other. run returns a whole result and ends soon after its context.
// Who may ask is the caller's business, and so is the header Host.
//
// A client that hangs up ends its call in revisions of the protocol in which a request
// stands for itself (from 2026-07-28 on); before, it has to cancel it.
func Handler(serving context.Context, run func(context.Context, kernel.Call) kernel.Result, version, description string) http.Handler {
	server := newServer(serving, run, version, description)
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		SessionTimeout: idleClient, DisableLocalhostProtection: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: 64 << 20})
}
