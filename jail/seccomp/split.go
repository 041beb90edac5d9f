package seccomp

import (
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// defaultErrno is what SCMP_ACT_ERRNO gives without an errno of its own.
const defaultErrno = 1 // EPERM

// call is what a profile says about one system call.
type call struct {
	name       string
	allow      bool // an entry allows it whatever its arguments are
	allowIf    [][]specs.LinuxSeccompArg
	refuse     *uint                // the errno of an entry that refuses it whole
	refuseWhen []specs.LinuxSyscall // entries that refuse it for some arguments
}

// collect gathers the entries of a profile by call, in the order in which the
// calls are first named.
func collect(profile *specs.LinuxSeccomp) ([]*call, error) {
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
		if c.allow && c.refuse != nil {
			return nil, fmt.Errorf("%s: one entry allows it and another refuses it, both without conditions", c.name)
		}
	}
	return calls, nil
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

// split turns one profile into the programs that the package comment lists, in
// the order in which they must be installed.
func split(profile *specs.LinuxSeccomp) ([]*specs.LinuxSeccomp, error) {
	calls, err := collect(profile)
	if err != nil {
		return nil, err
	}
	var parts []*specs.LinuxSeccomp
	for _, errno := range fallbackErrnos(calls) {
		parts = append(parts, fallbackPart(calls, errno))
	}
	table := &specs.LinuxSeccomp{DefaultAction: profile.DefaultAction, DefaultErrnoRet: profile.DefaultErrnoRet}
	denials := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow}
	for _, c := range calls {
		switch {
		case c.allow, len(c.allowIf) > 0 && c.refuse != nil:
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
		denials.Syscalls = append(denials.Syscalls, c.refuseWhen...)
	}
	parts = append(parts, table)
	if len(denials.Syscalls) > 0 {
		parts = append(parts, denials)
	}
	for _, part := range parts {
		part.Architectures = profile.Architectures
	}
	return parts, nil
}

// fallbackErrnos lists the errnos that stand behind a conditional allow, each
// once, in order of appearance.
func fallbackErrnos(calls []*call) []uint {
	var errnos []uint
	seen := map[uint]bool{}
	for _, c := range calls {
		if c.hasFallback() && !seen[*c.refuse] {
			seen[*c.refuse] = true
			errnos = append(errnos, *c.refuse)
		}
	}
	return errnos
}

func (c *call) hasFallback() bool { return !c.allow && len(c.allowIf) > 0 && c.refuse != nil }

// fallbackPart lets every call through but those that are allowed on condition
// and refused with this errno otherwise. A call that the profile does not name
// meets the default here, and the table, which is newer, says the last word.
func fallbackPart(calls []*call, errno uint) *specs.LinuxSeccomp {
	part := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &errno}
	for _, c := range calls {
		if !c.hasFallback() || *c.refuse != errno {
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
