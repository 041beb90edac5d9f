package host

import (
	"context"
	"encoding/json"
)

// Tool is one call that the host can carry out.
type Tool struct {
	// Name is what a cell calls it by: identifiers joined by dots, which make a
	// namespace.
	Name string
	// Doc and Signature are what help() shows; Signature reads like
	// "(query: str, limit: int = 10)". Both may be empty.
	Doc, Signature string
	// Schema is the JSON Schema of the arguments, an object's; empty takes any.
	Schema json.RawMessage
	// Roles and Purposes are those that may call it; empty stands for all.
	Roles    []Role
	Purposes []Purpose
	// Reason says why the tool is there, for whoever reads the table.
	Reason string
	// Preflight, when there is one, says what a call would do, as a JSON object,
	// or null for nothing that needs a decision. It does not do it.
	Preflight func(ctx context.Context, c Call) (json.RawMessage, error)
	// Do carries the call out. When ctx ends it returns soon. A tool without Do is
	// answered by who drives the run. Its error is an *Error to be passed on as it
	// is; of any other the worker sees the text, with the code "failed".
	Do func(ctx context.Context, c Call) (json.RawMessage, error)
}

// Call is one call that the policy has let through.
type Call struct {
	ID        string // of this call, unique within the launcher's life
	Identity  Identity
	Tool      string
	Arguments json.RawMessage // an object, as it came
	// Chain are the tools whose handlers wait for this call, the outermost first.
	Chain []string
}
