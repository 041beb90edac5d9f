package trial

import (
	_ "embed"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"

	"cellblock/kernel"
	"cellblock/policy"
)

// acts is the program that does operations inside.
//
//go:embed acts.py
var acts string

// act is one operation, as the program inside is told of it.
type act struct {
	Op      string   `json:"op"`
	Paths   []string `json:"paths,omitempty"`
	Address string   `json:"address,omitempty"`
	Port    int      `json:"port,omitempty"`
	Creates bool     `json:"creates,omitempty"`
	// Undo says that what is made is to be removed again.
	Undo bool `json:"undo,omitempty"`

	ops []policy.Op    // that the policy is asked about, all of which it must allow
	net []policy.NetOp // or these
}

// places are the paths that a case names, with the variables as roots of their own.
func places(c policy.Case) []string {
	if len(c.Op) == 0 {
		return nil
	}
	switch c.Op[0] {
	case "connect", "bind", "tool":
		return nil
	}
	var out []string
	for _, p := range c.Op[1:] {
		out = append(out, (&room{dir: "/room"}).expand(p))
	}
	return out
}

// changes reports whether a case's operation may leave something changed for another
// one. What is there is opened, cut to the length that it has and given the mode, the
// owner and the times that it has; only names that are made or taken make a difference.
func changes(c policy.Case, files []policy.CaseSetup) bool {
	if len(c.Op) == 0 {
		return false
	}
	switch c.Op[0] {
	case "create", "mkdir", "remove", "rmdir", "rename", "link", "symlink":
		return true
	case "write":
		return !slices.ContainsFunc(files, func(f policy.CaseSetup) bool { return f.Path == c.Op[1] })
	}
	return false
}

// alike maps kinds that Python's own reports do not tell apart to one of them.
func alike(k policy.OpKind) policy.OpKind {
	switch k {
	case policy.RenameFrom, policy.RenameTo:
		return policy.Rename
	case policy.Create:
		return policy.Write
	}
	return k
}

// newAct looks at the host for what a case means here and now.
func newAct(c policy.Case, r *room) act {
	a := act{Op: c.Op[0]}
	switch a.Op {
	case "connect":
		target, _ := netip.ParseAddrPort(c.Op[1]) // as was checked when it was read
		a.Address, a.Port = target.Addr().String(), int(target.Port())
		a.net = []policy.NetOp{{Kind: policy.Connect, Addr: target.Addr(), Port: a.Port}}
		return a
	case "bind":
		a.Port, _ = strconv.Atoi(c.Op[1])
		a.net = []policy.NetOp{{Kind: policy.Bind, Port: a.Port}}
		return a
	}
	for _, p := range c.Op[1:] {
		p = r.expand(p)
		a.Paths = append(a.Paths, p)
		a.Undo = a.Undo || !r.own(kernel.Canonical(p))
	}
	switch a.Op {
	case "rename":
		to := r.target(a.Paths[1], false)
		a.ops = []policy.Op{{Kind: policy.RenameFrom, Path: r.target(a.Paths[0], false).Path}, {Kind: policy.RenameTo, Path: to.Path, Replaces: to.Exists}}
	case "link":
		a.ops = []policy.Op{{Kind: policy.Link, Path: r.target(a.Paths[1], false).Path}}
	case "write":
		at := r.target(a.Paths[0], true)
		a.Creates = !at.Exists
		a.ops = []policy.Op{{Kind: policy.Write, Path: at.Path, Creates: a.Creates}}
	case "create", "mkdir", "remove", "rmdir", "symlink":
		a.ops = []policy.Op{{Kind: policy.OpKind(a.Op), Path: r.target(a.Paths[0], false).Path}}
	default:
		a.ops = []policy.Op{{Kind: policy.OpKind(a.Op), Path: r.target(a.Paths[0], true).Path}}
	}
	return a
}

// target is what is at a path; a symbolic link at its end is followed or is meant itself.
func (*room) target(p string, follow bool) policy.Found {
	if follow {
		return kernel.Lookup(p)
	}
	parent := kernel.Canonical(filepath.Dir(p))
	found := kernel.Lookup(filepath.Join(parent, filepath.Base(p)))
	found.Path = filepath.Join(parent, filepath.Base(p))
	return found
}

// decide is what the policy says to all of it: the first denial, or the first
// permission.
func (a act) decide(p policy.Policy) policy.Decision {
	var first policy.Decision
	take := func(i int, d policy.Decision) {
		// Of several denials one that Linux carries out says how it ends.
		if i == 0 || !d.Allowed() && (first.Allowed() || d.Enforced && !first.Enforced) {
			first = d
		}
	}
	for i, op := range a.ops {
		take(i, p.Decide(op))
	}
	for i, op := range a.net {
		take(i, p.DecideNet(op))
	}
	return first
}

// lost says what of the host a case would change for good; empty for nothing.
func (a act) lost(d policy.Decision, mode policy.Mode, r *room) string {
	if d.Enforced || mode == policy.Shadow && !d.Allowed() || !slices.Contains([]string{"remove", "rmdir", "rename"}, a.Op) {
		return ""
	}
	for _, op := range a.ops {
		if !r.own(op.Path) && !r.isMade(op.Path) && kernel.Lookup(op.Path).Exists {
			return op.Path
		}
	}
	return ""
}

// isMade reports whether the set-up made a path, or a directory above it.
func (r *room) isMade(p string) bool {
	for ; p != "/"; p = filepath.Dir(p) {
		if r.made[p] {
			return true
		}
	}
	return false
}

// seen reports whether a session's report tells of the act.
func (a act) seen(told []kernel.Violation) bool {
	return slices.ContainsFunc(told, func(v kernel.Violation) bool {
		for _, op := range a.ops {
			if v.Path == op.Path && alike(policy.ParseKind(v.Op)) == alike(op.Kind) {
				return true
			}
		}
		for _, op := range a.net {
			if v.Op == string(op.Kind) && v.Path == netip.AddrPortFrom(op.Addr, uint16(op.Port)).String() {
				return true
			}
		}
		return false
	})
}
