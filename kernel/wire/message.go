package wire

import "encoding/json"

// Op names a request.
type Op string

// The closed set of requests. All but Host go to the worker.
const (
	OpInstallRuntime Op = "install-runtime"
	OpInstallTool    Op = "install-tool"
	OpExec           Op = "exec"
	OpRun            Op = "run"
	OpRunBlock       Op = "run-block"
	OpEval           Op = "eval"
	OpConfine        Op = "confine"
	OpNetwork        Op = "network"
	OpStdin          Op = "stdin"
	OpInterrupt      Op = "interrupt"
	OpClose          Op = "close"
	OpHost           Op = "host"
)

// Ops lists every request, for the test that compares them with PROTOCOL.md.
func Ops() []Op {
	return []Op{OpInstallRuntime, OpInstallTool, OpExec, OpRun, OpRunBlock, OpEval,
		OpConfine, OpNetwork, OpStdin, OpInterrupt, OpClose, OpHost}
}

// Request is what the launcher asks of a worker. Fields that an op does not
// carry stay at their zero value and are not sent.
type Request struct {
	ID      int64  `json:"id"`
	Op      Op     `json:"op"`
	Session string `json:"session"`

	Directory  string   `json:"directory,omitempty"`
	SkillRoots []string `json:"skillRoots,omitempty"`
	Input      *bool    `json:"input,omitempty"`
	MaxOutput  int      `json:"maxOutput,omitempty"`
	Reset      bool     `json:"reset,omitempty"`
	Reload     bool     `json:"reload,omitempty"`

	Code    *string `json:"code,omitempty"`
	Purpose string  `json:"purpose,omitempty"`
	Cell    int     `json:"cell,omitempty"`
	Scope   string  `json:"scope,omitempty"`
	Pipes   bool    `json:"pipes,omitempty"`
	Keep    bool    `json:"keep,omitempty"`

	Read     *[]string `json:"read,omitempty"`
	Write    *[]string `json:"write,omitempty"`
	Deny     []string  `json:"deny,omitempty"`
	Observed bool      `json:"observed,omitempty"`
	Refusal  *string   `json:"refusal,omitempty"`
	Enabled  *bool     `json:"enabled,omitempty"`
	Text     *string   `json:"text,omitempty"`
	Target   int64     `json:"target,omitempty"`

	Name      string          `json:"name,omitempty"`
	Schema    json.RawMessage `json:"schema,omitempty"`
	Doc       string          `json:"doc,omitempty"`
	Signature string          `json:"signature,omitempty"`
}

// Answer is the launcher's reply to a host call: Value, which is JSON, or Error
// when it is set. Scope is that of the call.
type Answer struct {
	ID    int64           `json:"id"`
	Scope string          `json:"scope,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	Error *HostError      `json:"error,omitempty"`
}

// HostError refuses a host call, or says how it failed. Fields is a JSON object.
type HostError struct {
	Type    string          `json:"type"`
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Fields  json.RawMessage `json:"fields,omitempty"`
}

// Message is what came from a worker: a host call when Op is set, else a reply.
type Message struct {
	ID        int64
	Op        Op
	Name      string          // of a host call
	Arguments json.RawMessage // of a host call, an object
	Scope     string

	Value json.RawMessage // of a reply, as it came; checked JSON
	Info  *Info           // of a reply to install-runtime
	Error *WorkerError
}

// WorkerError is a request that the worker refused or failed. Code is given by
// extension workers alone. Fields, an object or nothing, is what the exception's
// author declared.
type WorkerError struct {
	Type, Code, Message string
	Fields              json.RawMessage
}

// ErrorNoDescriptors is the Type of a worker's error to a request whose descriptors
// did not arrive. Nothing was done; once more, they will.
const ErrorNoDescriptors = "NoDescriptors"

func (e *WorkerError) Error() string { return e.Type + ": " + e.Message }

// Info is what a worker says of itself when it is ready.
type Info struct {
	Python     string
	Executable string
	PID        int64
	Skills     []string
	SkErrors   map[string]string
	Reload     map[string]string
}

// CellReply is the value of a reply to run-block.
type CellReply struct {
	Status     string
	Value      *string
	ShapeHint  string
	Error      *CellError
	Reprs      []map[string]string
	Figures    []string
	Audit      []json.RawMessage
	Observed   []Observed
	Background []Background
	Forked     bool
	Yielded    bool
	SkErrors   map[string]string
	Notes      []string
	DurationMs float64
	// Definitions is nil where they were not asked for.
	Definitions *Definitions
}

// Definitions are what is left of what the cells of a generation have defined.
type Definitions struct {
	Kept   []Definition // in the order in which they ran
	Others []string     // names that other statements have bound
}

// Definition is the place of one statement: bytes Start to End of the cell's code.
type Definition struct {
	Cell, Start, End int64
	Kind             string   // function, class, import or constant
	Names            []string // that it still defines; "*" for an import of all
}

// CellError is the exception that ended a cell.
type CellError struct{ Name, Value, Traceback string }

// Observed is what the worker's audit hook saw.
type Observed struct {
	Op, Path          string
	Count, Cell, Line int64
}

// Background is output of something that an earlier cell left behind.
type Background struct{ Origin, Stream, Text string }
