package seccomp

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// defaultErrno is what SCMP_ACT_ERRNO gives without an errno of its own.
const defaultErrno = 1 // EPERM

// call is what a profile says about one system call.
type call struct {
	name       string
	allow      bool                      // an entry allows it whatever its arguments are
	allowIf    [][]specs.LinuxSeccompArg // the conditions of entries that allow it
	refuse     *uint                     // the errno of an entry that refuses it whole
	refuseWhen []specs.LinuxSyscall      // entries that refuse it for some arguments
}

// collect gathers the entries of a profile by call, in the order in which the
// calls are first named. A call that one entry allows and another refuses, both
// whatever its arguments are, is refused.
func collect(profile *specs.LinuxSeccomp) []*call {
	byName := map[string]*call{}
	var calls []*call
	for _, entry := range profile.Syscalls {
		for _, name := range entry.Names {
			c := byName[name]
			if c == nil {
				c = &call{name: name}
				byName[name] = c
				calls = append(calls, c)
			}
			c.add(entry)
		}
	}
	for _, c := range calls {
		// Podman's own profile says both of setns: the refusal is meant.
		if c.allow && c.refuse != nil {
			c.allow, c.allowIf = false, nil
		}
	}
	return calls
}

func (c *call) add(entry specs.LinuxSyscall) {
	conditional := len(entry.Args) > 0
	switch {
	case entry.Action == specs.ActAllow && conditional:
		c.allowIf = append(c.allowIf, entry.Args)
	case entry.Action == specs.ActAllow:
		c.allow = true
	case conditional:
		c.refuseWhen = append(c.refuseWhen, specs.LinuxSyscall{
			Names: []string{c.name}, Action: specs.ActErrno, ErrnoRet: errnoOf(entry.ErrnoRet), Args: entry.Args,
		})
	default:
		c.refuse = errnoOf(entry.ErrnoRet)
	}
}

func errnoOf(errno *uint) *uint {
	if errno == nil {
		fallback := uint(defaultErrno)
		return &fallback
	}
	return errno
}

// gate is one fallback program: the calls whose conditions it checks, and what
// it answers when none of them holds.
type gate struct {
	errno uint
	alone string // the one call that it is for, "" for all others of this errno
}

// split turns one profile into the programs that the package comment lists, in
// the order in which they must be installed. The conditions of an isolated call
// come into programs of their own.
func split(profile *specs.LinuxSeccomp, calls []*call, isolated map[string]bool) []*specs.LinuxSeccomp {
	table := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: profile.DefaultErrnoRet}
	denials := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow}
	var gates []gate
	of := map[string]gate{}
	var parts []*specs.LinuxSeccomp
	refusals := []*specs.LinuxSeccomp{denials}
	for _, c := range calls {
		switch {
		case c.allow:
			table.Syscalls = append(table.Syscalls, allowed(c.name, nil))
		case len(c.allowIf) > 0 && (c.refuse != nil || isolated[c.name]):
			g := gate{errno: *profile.DefaultErrnoRet}
			if c.refuse != nil {
				g.errno = *c.refuse
			}
			if isolated[c.name] {
				g.alone = c.name
			}
			if !slices.Contains(gates, g) {
				gates = append(gates, g)
			}
			of[c.name] = g
			table.Syscalls = append(table.Syscalls, allowed(c.name, nil))
		case len(c.allowIf) > 0:
			for _, args := range c.allowIf {
				table.Syscalls = append(table.Syscalls, allowed(c.name, args))
			}
		// libseccomp takes no rule that says what the default says already.
		case c.refuse != nil && *c.refuse != *profile.DefaultErrnoRet:
			table.Syscalls = append(table.Syscalls, specs.LinuxSyscall{
				Names: []string{c.name}, Action: specs.ActErrno, ErrnoRet: c.refuse,
			})
		}
		if isolated[c.name] && len(c.refuseWhen) > 0 {
			refusals = append(refusals, &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: c.refuseWhen})
			continue
		}
		denials.Syscalls = append(denials.Syscalls, c.refuseWhen...)
	}
	for _, g := range gates {
		parts = append(parts, g.part(calls, of))
	}
	for _, part := range refusals {
		if len(part.Syscalls) > 0 {
			parts = append(parts, part)
		}
	}
	// Last, since it may refuse the call that installs a program.
	parts = append(parts, table)
	for _, part := range parts {
		part.Architectures = profile.Architectures
	}
	return parts
}

// part lets every call through but those of this gate whose conditions do not
// hold. A call that the profile does not name meets the gate's errno too, and
// the table, which is newer, says the last word.
func (g gate) part(calls []*call, of map[string]gate) *specs.LinuxSeccomp {
	part := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &g.errno}
	for _, c := range calls {
		if mine, ok := of[c.name]; !ok || mine != g {
			part.Syscalls = append(part.Syscalls, allowed(c.name, nil))
			continue
		}
		for _, args := range c.allowIf {
			part.Syscalls = append(part.Syscalls, allowed(c.name, args))
		}
	}
	return part
}

func allowed(name string, args []specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}
}
