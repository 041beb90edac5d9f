package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/extension"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// Config is what an operator has decided: how the server is reached, by whom, and what
// every session is at most. It is handed to the serving program as one JSON document on
// its standard input, so that nothing of it stands in a list of arguments.
type Config struct {
	Version string `json:"version"` // of the command, shown to MCP clients

	Socket    string `json:"socket,omitempty"` // absolute path of the Unix socket; empty for none
	UIDs      []int  `json:"uids,omitempty"`   // may connect to it, beside root and the server's own user
	Listen    string `json:"listen,omitempty"` // loopback address and port; empty for none
	TokenFile string `json:"tokenFile,omitempty"`

	// Activated takes the sockets that systemd has opened (LISTEN_FDS) in place of
	// Socket and Listen.
	Activated bool `json:"activated,omitempty"`

	Roots   []Root  `json:"roots"`
	Session Options `json:"session"`
	Bounds  Bounds  `json:"bounds"`
	Stock   Stock   `json:"stock"`
}

// Stock says how many workers are kept ready, so that sessions start at once.
type Stock struct {
	Workers int   `json:"workers"` // at most, for one kind of session beneath one root; 0 for none
	Memory  int64 `json:"memory"`  // of all idle workers, in bytes
	// Way is how they are made, "exec" or "fork": see kernel.StockWay.
	Way string `json:"way"`
}

// DefaultStock is no stock, and the memory of one whose operator asks for workers alone.
func DefaultStock() Stock { return Stock{Memory: 512 << 20, Way: "exec"} }

// Check says what can be no stock.
func (s Stock) Check() error {
	switch {
	case s.Way != "" && s.Way != "exec" && s.Way != "fork":
		return fmt.Errorf("way %q: want exec or fork", s.Way)
	case s.Workers < 0:
		return fmt.Errorf("%d workers: give 0 for none, or more", s.Workers)
	case s.Workers > 0 && s.Memory < 16<<20:
		return fmt.Errorf("%d bytes of memory hold no worker: give 16 MiB or more", s.Memory)
	}
	return nil
}

// Root is a directory at or beneath which sessions may be.
type Root struct {
	Caller string `json:"caller,omitempty"` // uid:N or token:NAME; empty for every caller
	Path   string `json:"path"`             // absolute
}

// ParseRoot reads a root as it stands in a flag: DIR, uid:N=DIR or token:NAME=DIR.
func ParseRoot(text string) (Root, error) {
	caller, path, split := strings.Cut(text, "=")
	if !split || !strings.HasPrefix(caller, "uid:") && !strings.HasPrefix(caller, "token:") {
		caller, path = "", text
	}
	if uid, of := strings.CutPrefix(caller, "uid:"); of {
		if _, err := strconv.ParseUint(uid, 10, 32); err != nil {
			return Root{}, fmt.Errorf("%q: %.40q is no user's number", text, uid)
		}
	}
	if path == "" {
		return Root{}, fmt.Errorf("%q names no directory; give DIR, uid:N=DIR or token:NAME=DIR", text)
	}
	return Root{caller, path}, nil
}

// Bounds keep one caller from using up what all share. Each is at least 1.
type Bounds struct {
	Sessions       int           `json:"sessions"`
	CallerSessions int           `json:"callerSessions"`
	Cells          int           `json:"cells"` // calls that run or wait
	CallerCells    int           `json:"callerCells"`
	Queue          int           `json:"queue"`       // calls that wait for one session; 0 for none
	Connections    int           `json:"connections"` // of each listener
	Idle           time.Duration `json:"idle"`        // until an unused session is ended
	Drain          time.Duration `json:"drain"`       // that running cells have to end in, at the server's end
}

// MinIdle is the shortest time after which an unused session may end.
const MinIdle = time.Second

// DefaultBounds are those of a server whose operator has set none.
func DefaultBounds() Bounds {
	return Bounds{Sessions: 256, CallerSessions: 64, Cells: 64, CallerCells: 32, Queue: 8, Connections: 512,
		Idle: 30 * time.Minute, Drain: 30 * time.Second}
}

// Check says which bound is none.
func (b Bounds) Check() error {
	for _, c := range []struct {
		name  string
		value int
	}{{"sessions", b.Sessions}, {"sessions of a caller", b.CallerSessions}, {"cells", b.Cells}, {"cells of a caller", b.CallerCells}, {"connections", b.Connections}} {
		if c.value < 1 {
			return fmt.Errorf("%s: %d is no bound; give 1 or more", c.name, c.value)
		}
	}
	switch {
	case b.Queue < 0:
		return fmt.Errorf("queue: %d is negative", b.Queue)
	case b.Idle < MinIdle:
		return fmt.Errorf("idle: %v is too short for a session to be used; give %v or more", b.Idle, MinIdle)
	case b.Drain < 0:
		return fmt.Errorf("drain: %v is negative", b.Drain)
	}
	return nil
}

// maxSocket is what a Unix socket's address has room for, in bytes: unix(7).
const maxSocket = 107

// CheckSocket says when a path is too long for a Unix socket.
func CheckSocket(path string) error {
	if len(path) > maxSocket {
		return fmt.Errorf("socket %s: a path of a Unix socket has at most %d bytes, and this one %d", path, maxSocket, len(path))
	}
	return nil
}

// Options are those of kernel.Options that an operator sets for all sessions.
type Options struct {
	Python       string              `json:"python,omitempty"`
	CellTimeout  time.Duration       `json:"cellTimeout"`
	StartTimeout time.Duration       `json:"startTimeout"`
	MaxOutput    int                 `json:"maxOutput"`
	OnTimeout    kernel.OnTimeout    `json:"onTimeout"`
	Mode         policy.Mode         `json:"mode"`
	Profile      string              `json:"profile"`
	Policy       *policy.Document    `json:"policy,omitempty"`
	PolicyFile   string              `json:"policyFile,omitempty"` // for messages
	Modules      []policy.RegoSource `json:"modules,omitempty"`    // of the policy
	Limits       policy.Limits       `json:"limits"`
	Net          policy.Net          `json:"net,omitempty"`
	Tier         kernel.Tier         `json:"tier"`
	Env          []string            `json:"env,omitempty"`
	TimeZone     string              `json:"timeZone,omitempty"`
	Artefacts    bool                `json:"artefacts,omitempty"`
	HostUID      int                 `json:"hostUid,omitempty"`
	HostGID      int                 `json:"hostGid,omitempty"`
	Rego         string              `json:"rego,omitempty"`
	State        []string            `json:"state,omitempty"`
	Runtime      string              `json:"runtime,omitempty"`
	Shadow       string              `json:"shadow,omitempty"`
	Audit        string              `json:"audit,omitempty"` // directory of the sessions' records; empty for none
	AuditSync    audit.Sync          `json:"auditSync"`

	// Extensions run with the server's rights. Those that lie in session directories,
	// which callers choose, are never loaded (kernel.Options.Trust is left empty).
	Extensions      []string         `json:"extensions"` // null: the operator's home has them; empty: none
	ExtensionPython string           `json:"extensionPython,omitempty"`
	ExtensionLimits extension.Limits `json:"extensionLimits"`
	ExtensionLogs   string           `json:"extensionLogs,omitempty"`
}

// FromKernel takes over what o says of every session; audit is the directory of records.
func FromKernel(o kernel.Options, audit string) Options {
	out := Options{Python: o.PythonBin, CellTimeout: o.CellTimeout, StartTimeout: o.StartTimeout, MaxOutput: o.MaxOutput,
		OnTimeout: o.OnTimeout, Mode: o.Mode, Profile: o.Profile, Policy: o.Policy, Limits: o.Limits, Net: o.Net, Tier: o.Tier,
		Env: o.Env, TimeZone: o.TimeZone, Artefacts: o.Artefacts, HostUID: o.HostUID, HostGID: o.HostGID, Rego: o.Rego, State: o.State,
		Runtime: o.Runtime, Shadow: o.Shadow, Audit: audit, AuditSync: o.AuditSync,
		Extensions: o.Extensions, ExtensionPython: o.ExtensionPython, ExtensionLimits: o.ExtensionLimits, ExtensionLogs: o.ExtensionLogs}
	if o.Policy != nil {
		out.PolicyFile = o.Policy.File
		if r := o.Policy.Tools.Rego; r != nil {
			out.Modules = r.Sources
		}
	}
	return out
}

// Kernel are the options that a session begins with, before a request tightens them.
func (o Options) Kernel() kernel.Options {
	k := kernel.Options{PythonBin: o.Python, CellTimeout: o.CellTimeout, StartTimeout: o.StartTimeout, MaxOutput: o.MaxOutput,
		OnTimeout: o.OnTimeout, Mode: o.Mode, Profile: o.Profile, Limits: o.Limits, Net: o.Net, Tier: o.Tier,
		Env: o.Env, TimeZone: o.TimeZone, Artefacts: o.Artefacts, HostUID: o.HostUID, HostGID: o.HostGID, Rego: o.Rego, State: o.State,
		Runtime: o.Runtime, Shadow: o.Shadow, AuditSync: o.AuditSync,
		Extensions: o.Extensions, ExtensionPython: o.ExtensionPython, ExtensionLimits: o.ExtensionLimits, ExtensionLogs: o.ExtensionLogs}
	if o.Policy != nil {
		doc := *o.Policy
		doc.File = o.PolicyFile
		if doc.Tools.Rego != nil && len(o.Modules) > 0 {
			doc.Tools.Rego = doc.Tools.Rego.WithSources(o.Modules)
		}
		k.Policy = &doc
	}
	return k
}
