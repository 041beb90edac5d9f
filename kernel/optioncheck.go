package kernel

import (
	"fmt"
	"slices"
	"strings"

	"cellblock/policy"
)

// OptionError says which of the Options cannot be carried out on any host.
type OptionError struct {
	Option string // in words, such as "cell timeout"
	Why    string // what is wrong with the value, and what to give instead
}

func (e *OptionError) Error() string { return "option " + e.Option + ": " + e.Why }

const (
	// maxMaxOutput keeps what the launcher holds for one stream within bounds.
	maxMaxOutput = 4 << 20

	// What the stage and a bare interpreter need; less ends every start.
	minMemory    = 8 << 20
	minTasks     = 6
	minOpenFiles = 20
)

// check finds what no host could carry out.
func (o Options) check() error {
	wrong := func(option, why string, args ...any) error {
		return &OptionError{option, fmt.Sprintf(why, args...)}
	}
	switch l := o.Limits; {
	case o.CellTimeout < 0:
		return wrong("cell timeout", "%v is negative", o.CellTimeout)
	case o.StartTimeout < 0:
		return wrong("start timeout", "%v is negative", o.StartTimeout)
	case o.MaxOutput < 0:
		return wrong("max output", "%d is negative", o.MaxOutput)
	case o.MaxOutput > maxMaxOutput:
		return wrong("max output", "%d is more than %d characters", o.MaxOutput, maxMaxOutput)
	case o.OnTimeout != TimeoutKill && o.OnTimeout != TimeoutInterrupt:
		return wrong("on timeout", "%q is neither kill nor interrupt", o.OnTimeout)
	case o.Tier != TierJail && o.Tier != TierProcess:
		return wrong("tier", "%q is neither jail nor process", o.Tier)
	case o.Tier == TierProcess && o.Mode == policy.Enforce:
		return wrong("tier", "process has nothing that enforces; use tier jail, or mode report or off")
	case o.Tier == TierProcess && o.Mode == policy.Shadow:
		return wrong("tier", "process has no layer that could take changes; use tier jail, or mode report or off")
	case o.Shadow != "" && !slices.ContainsFunc(o.State, func(dir string) bool { return policy.Within(dir, o.Shadow) }):
		return wrong("shadow", "%q is in none of the launcher's own directories (State), where sessions could change it", o.Shadow)
	case o.ExtensionLogs != "" && !slices.ContainsFunc(o.State, func(dir string) bool { return policy.Within(dir, o.ExtensionLogs) }):
		return wrong("extension logs", "%q is in none of the launcher's own directories (State), where sessions could read it", o.ExtensionLogs)
	case o.Trust != "" && !slices.ContainsFunc(o.State, func(dir string) bool { return policy.Within(dir, o.Trust) }):
		return wrong("trust", "%q is in none of the launcher's own directories (State), where sessions could change it", o.Trust)
	case o.Runtime != "" && !slices.ContainsFunc(o.State, func(dir string) bool { return policy.Within(dir, o.Runtime) }):
		return wrong("runtime", "%q is in none of the launcher's own directories (State), where sessions could change it", o.Runtime)
	case o.Definitions != "" && !slices.ContainsFunc(o.State, func(dir string) bool { return policy.Within(dir, o.Definitions) }):
		return wrong("keep definitions", "%q is in none of the launcher's own directories (State), where sessions could change it", o.Definitions)
	case o.Net != "" && o.Net != policy.NetNone && o.Net != policy.NetHost:
		return wrong("net", "%q is neither none nor host", o.Net)
	case o.Tier == TierProcess && o.Net == policy.NetNone:
		return wrong("net", "tier process cannot take the network away; use tier jail")
	case l.MemoryBytes != 0 && l.MemoryBytes < minMemory:
		return wrong("limit", "memory: %s is too little to start an interpreter in; give %s or more", bytesText(l.MemoryBytes), bytesText(minMemory))
	case l.Tasks != 0 && l.Tasks < minTasks:
		return wrong("limit", "tasks: %d are too few to start an interpreter with; give %d or more", l.Tasks, minTasks)
	case l.OpenFiles != 0 && l.OpenFiles < minOpenFiles:
		return wrong("limit", "open-files: %d are too few to start an interpreter with; give %d or more", l.OpenFiles, minOpenFiles)
	}
	for _, v := range o.Env {
		if name, _, _ := strings.Cut(v, "="); name == "" || strings.ContainsRune(v, 0) {
			return wrong("env", "%q is neither NAME nor NAME=VALUE", v)
		}
	}
	return nil
}
