package api

import (
	"time"

	"cellblock/kernel"
	"cellblock/policy"
)

// Create asks for a session. What it leaves out is as the operator has set it; what it
// sets may be tighter than that, and is refused when it is wider.
type Create struct {
	// Directory is where cells start and what they may write: an absolute path at or
	// beneath a root of the caller's, or one relative to it when the caller has one root.
	Directory string `json:"directory"`
	Make      bool   `json:"make,omitempty"` // make the directory when it is missing (0700)

	// Name is for people: up to 64 letters, digits and ._-, the first a letter or digit.
	Name string `json:"name,omitempty"`

	Mode           policy.Mode       `json:"mode,omitempty"` // the same or stricter: off, report, shadow, enforce
	Net            policy.Net        `json:"net,omitempty"`  // none, or nothing
	Limits         map[string]string `json:"limits,omitempty"`
	TimeoutSeconds float64           `json:"timeoutSeconds,omitempty"` // of each cell
	MaxOutput      int               `json:"maxOutput,omitempty"`      // characters a stream
	IdleSeconds    float64           `json:"idleSeconds,omitempty"`    // until an unused session is ended
	OnTimeout      kernel.OnTimeout  `json:"onTimeout,omitempty"`      // kill or interrupt

	Tools []Tool `json:"tools,omitempty"` // that the caller answers, in runs that it drives
}

// Session is what a caller is told of one of its sessions.
type Session struct {
	ID          string    `json:"id"` // made by the server; as long as nobody is told, nobody guesses it
	Name        string    `json:"name,omitempty"`
	Created     time.Time `json:"created"`
	LastUsed    time.Time `json:"lastUsed"`
	Calls       int       `json:"calls"` // that run or wait
	IdleSeconds float64   `json:"idleSeconds"`

	TimeoutSeconds float64 `json:"timeoutSeconds"` // of each cell, at most
	Description    string  `json:"description"`    // what a model is to be told of the tool

	Info kernel.Info `json:"info"`
}

// Sessions is the answer to a list: the caller's own, the oldest first.
type Sessions struct {
	Sessions []Session `json:"sessions"`
}

// Run asks for one call of the tool. The answer is a kernel.Result, or with
// "Accept: text/event-stream" a stream of events: "output" (Output) for what the cell
// writes while it runs, then one "result" (kernel.Result). With Questions the first event
// is "started" (Started), and between are "question" (Question) for what the cell waits
// for, and "withdrawn" (Withdrawn) when nobody waits for an answer any more.
type Run struct {
	Code           *string `json:"code,omitempty"`         // may be empty, and is left out with ReloadSkills only
	ReloadSkills   bool    `json:"reloadSkills,omitempty"` // import every skill afresh, before the code
	TimeoutSeconds float64 `json:"timeoutSeconds,omitempty"`
	// Questions has the stream tell what the cell asks; answers go to the run that the
	// stream names. Without it nobody answers.
	Questions bool `json:"questions,omitempty"`
}

// Names of the events of a stream.
const (
	EventStarted   = "started"
	EventOutput    = "output"
	EventQuestion  = "question"
	EventWithdrawn = "withdrawn"
	EventResult    = "result"
)

// Output is a piece of what a cell writes.
type Output struct {
	Stream string `json:"stream"` // stdout or stderr
	Text   string `json:"text"`
}

// Withdrawn names a question that nobody waits for an answer to.
type Withdrawn struct {
	ID string `json:"id"`
}

// Interrupted is the answer to an interrupt: false when no cell ran.
type Interrupted struct {
	Interrupted bool `json:"interrupted"`
}

// Nothing is the body of requests that say all by their path; it may be left out.
type Nothing struct{}

// Health is what the server says of itself to everybody who may connect.
type Health struct {
	Status string `json:"status"` // ok, or draining: it takes no new work and ends soon
}

// Values of Health.Status.
const (
	StatusOK       = "ok"
	StatusDraining = "draining"
)
