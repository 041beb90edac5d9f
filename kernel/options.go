package kernel

import (
	"context"
	"io"
	"time"

	"cellblock/kernel/extension"
	"cellblock/kernel/host"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// Tier says what stands between a worker and the host.
type Tier string

// The tiers. The zero value is TierJail.
const (
	TierJail    Tier = "jail"    // namespaces, mounts, Landlock, seccomp, limits
	TierProcess Tier = "process" // nothing; for development, said in every reply
)

// OnTimeout says what a cell's time limit does.
type OnTimeout string

// The answers to a time limit. The zero value is TimeoutKill.
const (
	TimeoutKill      OnTimeout = "kill"      // worker killed, state lost
	TimeoutInterrupt OnTimeout = "interrupt" // KeyboardInterrupt first; killed if the cell does not unwind
)

// Defaults of Options.
const (
	DefaultPython       = "python3"
	DefaultCellTimeout  = 120 * time.Second
	DefaultStartTimeout = 10 * time.Second
	DefaultMaxOutput    = 20000 // characters a stream
	DefaultProfile      = "default"
)

// Control's own limits: a worker that does not obey in time is retired.
const (
	interruptExchange = time.Second     // an interrupt's answer
	unwindGrace       = 2 * time.Second // from interrupt to a cell that has unwound
	closeGrace        = 200 * time.Millisecond
)

// Options say what a session is. The zero value of each field but SessionDir
// stands for its default.
type Options struct {
	SessionDir   string        // an existing directory that the operator may write
	Name         string        // shown in replies; made up when empty
	PythonBin    string        // a path, a name on PATH, or a virtual environment
	CellTimeout  time.Duration // of one cell
	StartTimeout time.Duration // until a worker is ready
	MaxOutput    int           // cap, in characters a stream
	OnTimeout    OnTimeout
	Mode         policy.Mode
	Profile      string           // name of a jail profile
	Policy       *policy.Document // nil: the built-in one that is called like the profile
	Limits       policy.Limits    // what is set replaces the policy's
	Net          policy.Net       // what is set replaces the policy's: host, or none in every mode
	Tier         Tier
	SkillRoots   []string // nil: from the environment and the home directory
	Env          []string // NAME passes the launcher's variable, NAME=VALUE sets one
	TimeZone     string   // name of a zone; empty: the launcher's TZ, or UTC
	HostUID      int      // as root: the unprivileged id a jail runs as; 0 is the default
	HostGID      int      // as root: its group; 0 is HostUID
	Rego         string   // the program cellblock-rego, for policies that delegate host calls
	Home         string   // the operator's home, absolute; empty: that of the environment
	State        []string // the launcher's own directories: a session may neither be nor see them

	// Runtime is a directory of the launcher's own, beneath one of State, that
	// keeps the worker's source and byte code from one start to the next. It is
	// made when it is missing. When empty, every start writes and compiles them.
	Runtime string

	// Trust is a directory of the launcher's own, beneath one of State, that remembers
	// which extensions of session directories the operator trusts; see TrustExtensions.
	// When empty, none of them is loaded unless Extensions names their directory.
	Trust string

	// Shadow is a directory of the launcher's own, beneath one of State, that keeps
	// the layers of sessions in mode shadow. It is made when it is missing. A layer
	// in which something differs from the host stays when its session ends.
	Shadow string

	// Artefacts has each result tell which files of the session directory its cell made
	// and changed (Details.Artefacts). Each cell then costs two looks through the directory.
	Artefacts bool

	// KeepDefinitions keeps the source of the functions, classes, imports and plain
	// constants that cells define. A new worker runs it, statement by statement,
	// before its first call, whose reply tells what it has again (Details.Restored).
	// A reset forgets them.
	KeepDefinitions bool
	// Definitions is a directory of the launcher's own, beneath one of State, that
	// keeps them from one session of the same Name to the next. It is made when it is
	// missing. When empty they last as long as the session.
	Definitions string

	// Audit is the file of the session's audit record; empty for none. It lies in
	// a directory that is the caller's alone (0700), which is made when it does
	// not exist, and which no session may be in or see.
	Audit     string
	AuditSync audit.Sync // when records are forced to the disk

	// Input answers input() and getpass() of a cell. When nil they raise at
	// once. It runs on its own goroutine; what it returns after the cell has
	// ended is dropped.
	Input func(prompt string, password bool) (string, error)

	// Tools are calls that the host's own code carries out, bound in a session by
	// their names. The policy decides on each call.
	Tools []host.Tool

	// Retire has a session whose worker is gone, for whatever reason, refuse calls
	// (KernelRetired) until one with Reset, instead of going on in a fresh interpreter
	// whose first reply says that state was lost.
	Retire bool

	// Store is what the methods that every session has answer from (workspace.info,
	// evidence.resolve, maintenance.originate, maintenance.assess); nil for one of the
	// session's own, which ends with it. It stays the caller's.
	Store host.Store

	// Stock has workers ready for sessions like this one; nil for none. A session that
	// it has nothing for is started as without it.
	Stock *Stock

	// Approve answers where the policy wants a host call confirmed: for exactly the
	// call that it is shown, once. When nil, such calls are refused. It runs on its
	// own goroutine; what it answers after ctx has ended, or after the approval has
	// expired, is dropped.
	Approve func(ctx context.Context, a host.Approval) (approved bool, err error)

	// Extensions are the directories in which extensions are looked for; nil stands
	// for ExtensionRoots, and an empty list for none. No session sees or changes one.
	Extensions []string
	// ExtensionPython is the interpreter that extensions run in; empty for PythonBin.
	// It runs outside of any jail, so that one which cells can change is refused.
	ExtensionPython string
	ExtensionLimits extension.Limits
	// ExtensionLogs is a directory of the launcher's own, beneath one of State, that
	// keeps what extensions print. When empty the end of it is kept for messages.
	ExtensionLogs string

	// Log takes what workers print outside cells and what the launcher finds
	// worth telling an operator. When nil it is kept for error messages only.
	Log io.Writer
}

// withDefaults fills in what was left out and checks what can be checked
// without looking at the host.
func (o Options) withDefaults() (Options, error) {
	if o.PythonBin == "" {
		o.PythonBin = DefaultPython
	}
	if o.CellTimeout == 0 {
		o.CellTimeout = DefaultCellTimeout
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = DefaultStartTimeout
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	if o.OnTimeout == "" {
		o.OnTimeout = TimeoutKill
	}
	if o.Profile == "" {
		o.Profile = DefaultProfile
	}
	if o.Tier == "" {
		o.Tier = TierJail
	}
	mode, err := policy.ParseMode(string(o.Mode))
	if err != nil {
		return o, err
	}
	o.Mode = mode
	return o, o.check()
}
