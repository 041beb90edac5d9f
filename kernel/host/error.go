package host

import "encoding/json"

// Codes of errors that the host itself gives. Tools may use others.
const (
	CodeDenied        = "denied"            // the policy does not allow it
	CodeUnknown       = "unknown"           // there is no tool of this name
	CodeArguments     = "invalid-arguments" // they do not fit the tool's schema
	CodeScopeClosed   = "scope-closed"      // the cell has ended, or has yielded
	CodeCancelled     = "cancelled"         // by the caller, an interrupt or the scope's end
	CodeBusy          = "busy"              // more calls in flight than are served
	CodeTooLarge      = "too-large"         // arguments or result
	CodeFailed        = "failed"            // the tool failed
	CodeIndeterminate = "indeterminate"     // it began, and nobody knows whether it was done
	CodeRetired       = "retired"           // the worker that would do it was given up
	CodeReentrant     = "reentrant"         // the extension waits for this very call
	CodeNoAnswer      = "no-answer"         // nobody is there to answer or to approve
	CodeYield         = "turn-yield"        // no failure: the cell is to end, and makes no further call
)

// Error is what a worker gets instead of a value.
type Error struct {
	// Type is the name of the exception's type where the error began; HostError
	// for the host's own.
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// Fields are what the exception's author declared, a JSON object; empty for none.
	Fields json.RawMessage `json:"fields,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }
