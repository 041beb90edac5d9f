package api

import (
	"encoding/json"
	"time"

	"cellblock/kernel"
)

// Tool is a host call that cells of a session may make and its caller answers, in the
// steps of a run. Whether a cell may make it is the operator's policy to say (tools).
type Tool struct {
	Name      string          `json:"name"` // identifiers joined by dots
	Doc       string          `json:"doc,omitempty"`
	Signature string          `json:"signature,omitempty"` // such as "(query: str, limit: int = 10)"
	Schema    json.RawMessage `json:"schema,omitempty"`    // JSON Schema of the arguments, an object's
	Reason    string          `json:"reason,omitempty"`
}

// Started is the answer to the begin of a run that its caller drives.
type Started struct {
	Run string `json:"run"`
}

// Ask asks for the next step of a run, with answers to what it waits for.
type Ask struct {
	// Step is the number of the step that is asked for, from 1. The number of the last
	// one has it said again, with its answers not given twice: a client whose connection
	// broke loses nothing. Left out, it is the next.
	Step    int      `json:"step,omitempty"`
	Answers []Answer `json:"answers,omitempty"`
	// WaitSeconds is how long to wait for something to happen, 20 when left out and at
	// most 60. When nothing does, the answer has State "nothing" and no number.
	WaitSeconds float64 `json:"waitSeconds,omitempty"`
}

// Answers are given to a run without asking for a step.
type Answers struct {
	Answers []Answer `json:"answers"`
}

// Answer answers one question. What it may say depends on the question's kind.
type Answer struct {
	ID       string          `json:"id"`
	Value    json.RawMessage `json:"value,omitempty"`    // of a host call
	Text     string          `json:"text,omitempty"`     // of input and getpass
	Approved bool            `json:"approved,omitempty"` // of an approval
	Again    bool            `json:"again,omitempty"`    // carry a call out whose outcome is not known
	Error    *ToolFailure    `json:"error,omitempty"`    // what the cell gets in place of an answer
}

// ToolFailure is an error of a host call.
type ToolFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// StateNothing is the State of a step in which nothing has happened.
const StateNothing kernel.State = "nothing"

// Step is what has happened since the one before it.
type Step struct {
	Step    int            `json:"step"`
	State   kernel.State   `json:"state"` // progress, waiting, finished or nothing
	Events  []kernel.Event `json:"events"`
	Waiting []Question     `json:"waiting"`
	Result  *kernel.Result `json:"result,omitempty"` // once it has finished
}

// Question is what a run waits for.
type Question struct {
	ID       string              `json:"id"`
	Kind     kernel.QuestionKind `json:"kind"` // host-call, input, approval or indeterminate
	Call     *HostCall           `json:"call,omitempty"`
	Approval *Approval           `json:"approval,omitempty"`
	Error    *ToolFailure        `json:"error,omitempty"`
	Prompt   string              `json:"prompt,omitempty"`
	Hidden   bool                `json:"hidden,omitempty"` // getpass: show nothing of the answer
}

// HostCall is a call that a cell makes.
type HostCall struct {
	ID        string          `json:"id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Chain     []string        `json:"chain,omitempty"`
}

// Approval is what is to be approved: exactly this call.
type Approval struct {
	ID      string          `json:"id"`
	Action  json.RawMessage `json:"action,omitempty"`
	Digest  string          `json:"digest"`
	Reason  string          `json:"reason"`
	Expires time.Time       `json:"expires"`
}
