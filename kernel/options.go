package kernel

import (
	"fmt"
	"io"
	"time"

	"cellblock/policy"
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
	State        []string // the launcher's own directories: a session may neither be nor see them

	// Input answers input() and getpass() of a cell. When nil they raise at
	// once. It runs on its own goroutine; what it returns after the cell has
	// ended is dropped.
	Input func(prompt string, password bool) (string, error)

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
	switch {
	case o.CellTimeout < 0:
		return o, fmt.Errorf("option cell timeout: %v is negative", o.CellTimeout)
	case o.StartTimeout < 0:
		return o, fmt.Errorf("option start timeout: %v is negative", o.StartTimeout)
	case o.MaxOutput < 0:
		return o, fmt.Errorf("option max output: %d is negative", o.MaxOutput)
	case o.MaxOutput > maxMaxOutput:
		return o, fmt.Errorf("option max output: %d is more than %d characters", o.MaxOutput, maxMaxOutput)
	case o.OnTimeout != TimeoutKill && o.OnTimeout != TimeoutInterrupt:
		return o, fmt.Errorf("option on timeout: %q is neither kill nor interrupt", o.OnTimeout)
	case o.Tier != TierJail && o.Tier != TierProcess:
		return o, fmt.Errorf("option tier: %q is neither jail nor process", o.Tier)
	case o.Tier == TierProcess && o.Mode == policy.Enforce:
		return o, fmt.Errorf("option tier: process has nothing that enforces; use tier jail, or mode report or off")
	case o.Net != "" && o.Net != policy.NetNone && o.Net != policy.NetHost:
		return o, fmt.Errorf("option net: %q is neither none nor host", o.Net)
	case o.Tier == TierProcess && o.Net == policy.NetNone:
		return o, fmt.Errorf("option net: tier process cannot take the network away; use tier jail")
	}
	return o, nil
}

// maxMaxOutput keeps what the launcher holds for one stream within bounds.
const maxMaxOutput = 4 << 20
