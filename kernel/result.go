package kernel

import (
	"encoding/json"
	"time"

	"cellblock/kernel/artefact"
	"cellblock/policy"
)

// Call is one call of the python tool.
type Call struct {
	Code         string
	Reset        bool          // clear the namespace; Code is not executed
	ReloadSkills bool          // import every skill afresh; Code is executed after it, when given
	Timeout      time.Duration // of this cell; 0 is the session's
	Purpose      string        // interactive (default), maintenance or eval

	// KeepDefinitions has what this cell defines kept where Options.KeepDefinitions
	// does not say so of every cell. ForgetDefinitions drops what is kept before the
	// cell runs; the names stay defined.
	KeepDefinitions, ForgetDefinitions bool

	// NoCheckpoint keeps nothing of what is decided in a run: Run.Checkpoint has an error.
	NoCheckpoint bool

	// Events gets each event of the call once, in order, from the goroutine in which
	// it happens: a slow one slows the call down.
	Events func(Event)

	run       *Run // that carries the call out
	restoring bool // a kept statement, in a new worker

	// Output gets what the cell writes while it runs, whole and in order. It is
	// called from the goroutine that reads the pipe: a slow one slows the cell
	// down, it does not fill memory.
	Output func(stream, text string)
}

// Result is the tool's whole result.
type Result struct {
	Content []Content `json:"content"`
	Details Details   `json:"details"`
	IsError bool      `json:"isError"`
}

// Content is one part of what a model sees.
type Content struct {
	Type     string `json:"type"` // text or image
	Text     string `json:"text,omitempty"`
	Data     string `json:"data,omitempty"` // base64
	MimeType string `json:"mimeType,omitempty"`
}

// Status of a call.
const (
	StatusOK    = "ok"
	StatusError = "error"
)

// Details is what a program reads beside the text.
type Details struct {
	Status         string            `json:"status"`
	Stdout         string            `json:"stdout"`
	Stderr         string            `json:"stderr"`
	DurationMs     float64           `json:"durationMs"`
	Error          *ErrorDetail      `json:"error,omitempty"`
	Audit          []json.RawMessage `json:"audit,omitempty"`
	AuditPolicy    string            `json:"auditPolicy"`
	Value          *string           `json:"value,omitempty"` // text of the trailing value; absent for None
	Outputs        []OutputRecord    `json:"outputs,omitempty"`
	TruncatedBytes int64             `json:"truncatedBytes,omitempty"` // of Outputs
	ShapeHint      string            `json:"shapeHint,omitempty"`
	FullOutputPath string            `json:"fullOutputPath,omitempty"`
	SkErrors       map[string]string `json:"skErrors,omitempty"`
	ReloadSkills   map[string]string `json:"reload_skills,omitempty"`
	Yielded        bool              `json:"yielded,omitempty"`
	Artefacts      []artefact.File   `json:"artefacts,omitempty"` // when Options.Artefacts asks for them
	Cell           int               `json:"cell,omitempty"`
	Session        string            `json:"session"`
	Generation     int               `json:"generation"`
	Tier           Tier              `json:"tier"`
	Mode           policy.Mode       `json:"mode"`
	Policy         PolicyDetail      `json:"policy"`
	Usage          Usage             `json:"usage"`
	StateLost      bool              `json:"stateLost,omitempty"`
	Restored       *Restored         `json:"restored,omitempty"` // before this call's cell
	Notes          []string          `json:"notes,omitempty"`    // what was cut or dropped
}

// Names of the errors that are the kernel's own, as Details.Error.Name.
const (
	KernelTimeout = "KernelTimeout"
	KernelExited  = "KernelExited"
	KernelKilled  = "KernelKilled"
	KernelRetired = "KernelRetired"
	ToolError     = "ToolError"
)

// ErrorDetail says what went wrong.
type ErrorDetail struct {
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback string   `json:"traceback"`
	Cause     string   `json:"cause,omitempty"` // of a worker's death: exit code, signal, memory limit …
	Death     *Death   `json:"death,omitempty"`
	Missing   *Missing `json:"missing,omitempty"`
}

// Missing names what kept a jail from being built, and what to do.
type Missing struct {
	Feature string `json:"feature"`
	Why     string `json:"why"`
	Remedy  string `json:"remedy"`
}

// OutputRecord is one piece of output. Text output has Stream and Text; a rich
// result has Data. Background output belongs to an earlier cell, named Origin.
type OutputRecord struct {
	Stream     string            `json:"stream"` // stdout, stderr or display
	Text       string            `json:"text,omitempty"`
	Data       map[string]string `json:"data,omitempty"` // MIME type to representation; base64 for images
	Background bool              `json:"background,omitempty"`
	Origin     string            `json:"origin,omitempty"`
}

// PolicyDetail says what is true of the policy in this reply.
type PolicyDetail struct {
	Mode     policy.Mode `json:"mode"`
	Enforced bool        `json:"enforced"`
	// Layer, in mode shadow, names what took the changes outside of the session's
	// own places: "cellblock shadow diff LAYER".
	Layer      string      `json:"layer,omitempty"`
	Violations []Violation `json:"violations"`
}

// Violation is an operation that the policy does not allow.
type Violation struct {
	Op       string   `json:"op"`
	Path     string   `json:"path"`
	Decision string   `json:"decision"` // denied, or would be denied
	Rule     string   `json:"rule"`
	Reason   string   `json:"reason"`
	Source   string   `json:"source"` // os, hook, declared or host
	Count    int      `json:"count"`
	Cell     int      `json:"cell,omitempty"`
	Line     int      `json:"line,omitempty"`
	Program  string   `json:"program,omitempty"` // that did it, where Linux was asked
	PID      int      `json:"pid,omitempty"`     // of that program, on the host
	Nearest  []string `json:"nearest,omitempty"` // where it is allowed
	Note     string   `json:"note,omitempty"`    // what stays of it, and what will be gone

	// For the record: what policy.Op and policy.NetOp know beside the path.
	creates, replaces bool
	proto, addr       string
}

// entry is the violation as it stands in Details.Audit.
func (v Violation) entry() map[string]any {
	e := map[string]any{"op": v.Op, "path": v.Path, "source": v.Source, "count": v.Count, "decision": v.Decision}
	if v.Cell > 0 {
		e["cell"] = v.Cell
	}
	if v.Line > 0 {
		e["line"] = v.Line
	}
	if v.Program != "" {
		e["program"] = v.Program
	}
	return e
}

// Usage is what the session's processes have used since the worker's start.
type Usage struct {
	CPUMs           float64 `json:"cpuMs"`
	PeakMemoryBytes int64   `json:"peakMemoryBytes"`
	Tasks           int64   `json:"tasks"`
}

// Text returns the first text content, which holds all text of the result.
func (r Result) Text() string {
	for _, c := range r.Content {
		if c.Type == "text" {
			return c.Text
		}
	}
	return ""
}
