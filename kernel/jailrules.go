package kernel

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"cellblock/jail"
	"cellblock/policy"
)

// pathRules turns the policy's rules about paths into what the jail is made of:
// binds for what is allowed, covers and guards for what is denied, grants for
// what is allowed in part.
func (s *Session) pathRules(spec *jail.Spec, l launch) error {
	p := s.policy
	spec.Listed, spec.ExecListed = p.ReadDefault.Enforced, p.ExecDefault.Enforced
	shown := map[string]bool{}
	bind := func(r policy.Rule, write bool) error {
		if shown[r.Path] || isPrivate(r.Path) || s.stocked != "" && r.Path == s.dir {
			return nil
		}
		shown[r.Path] = true
		b, err := s.bindOf(r, write)
		if err == nil {
			spec.Binds = append(spec.Binds, b)
		}
		return err
	}
	for _, r := range p.Allow {
		if s.shadowed() && !s.wholly(r) {
			continue // what is allowed in part goes to the layer with the rest
		}
		if r.Access&policy.AccessWrite != 0 && !p.Hidden(r.Path) && outermost(p.Allow, r) {
			if err := bind(r, true); err != nil {
				return err
			}
		}
	}
	// Where cells start is always a bind of its own: its files have an owner of
	// their own, and it is there also where it may not be written.
	if err := bind(s.whereCellsStart()); err != nil {
		return err
	}
	if spec.Listed {
		listed := slices.Concat(p.Allow, p.Needs)
		slices.SortStableFunc(listed, func(a, b policy.Rule) int { return strings.Count(a.Path, "/") - strings.Count(b.Path, "/") })
		for _, r := range listed {
			held := slices.ContainsFunc(spec.Binds, func(b jail.Bind) bool { return policy.Within(b.Target, r.Path) })
			if held || p.Hidden(r.Path) {
				continue
			}
			// What is not refused otherwise is left to the user's rights, as in the
			// whole tree.
			if err := bind(r, !p.WriteDefault.Enforced); err != nil {
				return err
			}
		}
		for _, link := range p.Links {
			spec.Links = append(spec.Links, jail.Link{Path: link.Path, Target: link.Target, Reason: "as on the host"})
		}
	}
	s.grants(spec)
	s.refusals(spec, l)
	return nil
}

// whereCellsStart is a rule for the session directory, and whether it can be written.
func (s *Session) whereCellsStart() (policy.Rule, bool) {
	return policy.Rule{Path: s.dir, Reason: "the session directory"},
		s.policy.Decide(policy.Op{Kind: policy.Chmod, Path: s.dir}).Allowed() || !s.policy.WriteDefault.Enforced
}

// bindOf shows what a rule allows.
func (s *Session) bindOf(r policy.Rule, write bool) (jail.Bind, error) {
	var owner syscall.Stat_t
	if err := syscall.Stat(r.Path, &owner); err != nil {
		return jail.Bind{}, fmt.Errorf("rule %s: %s: %w", r.ID, r.Path, err)
	}
	b := jail.Bind{Source: r.Path, Target: r.Path, Write: write, OwnerUID: int(owner.Uid), OwnerGID: int(owner.Gid), Reason: r.Reason}
	// A bind lies over whatever holds it, and with it over its guards.
	for _, d := range s.policy.Deny {
		if d.Enforced && d.Path != r.Path && policy.Within(d.Path, r.Path) {
			b.Write = b.Write && d.Access&policy.AccessWrite == 0
			b.NoExec = b.NoExec || d.Access.Has(policy.AccessExec)
		}
	}
	return b, nil
}

// outermost reports whether no other allowed place with changes holds the rule's.
func outermost(rules []policy.Rule, r policy.Rule) bool {
	return !slices.ContainsFunc(rules, func(o policy.Rule) bool {
		return o.Access&policy.AccessWrite != 0 && o.Path != r.Path && !isPrivate(o.Path) && policy.Within(o.Path, r.Path)
	})
}

// isPrivate reports whether a path is one of the jail's own private places.
func isPrivate(path string) bool { return path == "/tmp" || path == "/run" || path == "/dev/shm" }

// grants names what Landlock is to allow. A bind that is allowed whole needs
// none, and neither does the tree when it is writable.
func (s *Session) grants(spec *jail.Spec) {
	p := s.policy
	for _, r := range p.Allow {
		g := jail.Grant{Path: r.Path, Reason: r.Reason}
		var sum policy.Access
		for _, same := range p.Allow {
			if same.Path == r.Path {
				sum |= same.Access
			}
		}
		if part := sum & policy.AccessWrite; spec.Tree == jail.TreeReadOnly && part != 0 && (part != policy.AccessWrite || !outermost(p.Allow, r)) && !isPrivate(r.Path) {
			g.Modify, g.Create, g.Remove = part.Has(policy.AccessModify), part.Has(policy.AccessCreate), part.Has(policy.AccessRemove)
		}
		g.Exec = spec.ExecListed && sum.Has(policy.AccessExec)
		if g.Modify || g.Create || g.Remove || g.Exec {
			if !slices.ContainsFunc(spec.Grants, func(o jail.Grant) bool { return o.Path == g.Path }) {
				spec.Grants = append(spec.Grants, g)
			}
		}
	}
	if spec.ExecListed {
		for _, r := range p.Needs {
			if r.Access.Has(policy.AccessExec) {
				spec.Grants = append(spec.Grants, jail.Grant{Path: r.Path, Exec: true, Reason: r.Reason})
			}
		}
	}
}

// refusals covers what is hidden and guards what is read-only or not executable,
// and the names of the directories on the way.
func (s *Session) refusals(spec *jail.Spec, l launch) {
	pinned := map[string]bool{}
	for _, b := range spec.Binds {
		pinned[b.Target] = true // a mount point already
	}
	for _, r := range s.policy.Deny {
		if !r.Enforced || isGround(r) || slices.Contains(l.needless, r.Path) {
			continue
		}
		for _, dir := range r.Pins {
			if !pinned[dir] {
				spec.Guards = append(spec.Guards, jail.Guard{Path: dir, Inside: true, Reason: "holds " + r.Path + ", and must keep its name"})
				pinned[dir] = true
			}
		}
		write, exec := r.Access&policy.AccessWrite != 0, r.Access.Has(policy.AccessExec)
		switch {
		case r.Access.Has(policy.AccessRead), r.Stub != "" && write:
			spec.Hide = append(spec.Hide, jail.Hide{Path: r.Path, Inside: r.Inside, Reason: r.Reason})
		default:
			at := slices.IndexFunc(spec.Guards, func(g jail.Guard) bool { return g.Path == r.Path })
			if at < 0 {
				at = len(spec.Guards)
				spec.Guards = append(spec.Guards, jail.Guard{Path: r.Path, Reason: r.Reason})
				pinned[r.Path] = true
			}
			g := &spec.Guards[at]
			g.ReadOnly, g.NoExec, g.Inside = g.ReadOnly || write, g.NoExec || exec, g.Inside || r.Inside
		}
	}
}

// isGround reports whether a rule is about what the jail's own mounts refuse.
func isGround(r policy.Rule) bool { return r.ID == "ground.noexec" || r.ID == "ground.place" }
