package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// allows compiles the rules that allow. What does not exist cannot be shown or
// opened for writing, so such a rule is dropped.
func (c *compiler) allows() {
	for i, r := range c.doc.FS.Rules {
		if r.Effect != Allow {
			continue
		}
		id := r.id(i)
		paths := expand(r.Path, c.facts)
		if len(paths) == 0 {
			c.note(r.Line, id, "dropped: its variable has no value here")
		}
		for _, p := range paths {
			found := c.found(p)
			switch {
			case found.Err != "":
				c.note(r.Line, id, fmt.Sprintf("dropped: %s cannot be looked at: %s", p, found.Err))
				continue
			case !found.Exists:
				c.note(r.Line, id, fmt.Sprintf("dropped: %s does not exist", p))
				continue
			case found.Path == "/":
				c.fail(r.Line, "a rule that allows /", "say so in fs.defaults, with its reason")
				return
			case isOwn(found.Path) && found.Path != "/tmp",
				inOwn(found.Path) && !Within("/tmp", found.Path) && !Within("/run", found.Path) && !Within("/dev/shm", found.Path):
				c.note(r.Line, id, fmt.Sprintf("dropped: %s is the jail's own, and not of the host", found.Path))
				continue
			}
			if part := r.Access & AccessWrite; part != 0 && part != AccessWrite && inOwn(found.Path) {
				c.fail(r.Line, fmt.Sprintf("rule %s allows a part of the changes in %s, all of which the session has to itself", id, found.Path),
					"allow write there, or use a place outside of "+strings.Join(own[:2], " and "))
				return
			}
			c.policy.Allow = append(c.policy.Allow, Rule{ID: id, Path: found.Path, Access: r.Access, Reason: r.Reason, Line: r.Line})
		}
	}
}

// topLinks takes those of the root directory that lead to what is listed, or to what
// holds it: programs are called by names in /bin where /usr alone is on the list.
func (c *compiler) topLinks() {
	for _, l := range c.facts.Top {
		listed := slices.ContainsFunc(slices.Concat(c.policy.Allow, c.policy.Needs), func(r Rule) bool {
			return !inOwn(r.Path) && (Within(r.Path, l.Leads) || Within(l.Leads, r.Path))
		})
		if listed && l.Leads != "/" && !slices.Contains(c.policy.Links, l.HostLink) {
			c.policy.Links = append(c.policy.Links, l.HostLink)
		}
	}
}

// links looks at the symbolic links on the way to what is allowed. One that lies
// where a session may write could have been put there by an earlier session, to
// have something else opened for the next one.
func (c *compiler) links() {
	for i, r := range c.doc.FS.Rules {
		if r.Effect != Allow {
			continue
		}
		for _, p := range expand(r.Path, c.facts) {
			found := c.found(p)
			if !found.Exists || found.Err != "" {
				continue
			}
			for _, l := range found.Links {
				if root, ok := c.writable(l.Path); ok {
					c.fail(r.Line, fmt.Sprintf("rule %s: the symbolic link %s lies beneath %s, where a session can put links", r.id(i), l.Path, root),
						"name the link's target, or take the rule out: what lies beneath a writable place is allowed with it")
					return
				}
				if !slices.Contains(c.policy.Links, l) {
					c.policy.Links = append(c.policy.Links, l)
				}
			}
		}
	}
}

// writable returns the allowed place strictly above p, where a session can make
// names of its own choice.
func (c *compiler) writable(p string) (string, bool) {
	best := ""
	for _, r := range c.policy.Allow {
		if r.Access&AccessWrite != 0 && !isOwn(r.Path) && r.Path != p && Within(r.Path, p) && (best == "" || Within(r.Path, best)) {
			best = r.Path
		}
	}
	return best, best != ""
}

// stateRule hides the launcher's own directories.
const stateRule = "ground.state"

// extensionRule hides the directories of code that the launcher runs with its own
// rights.
const extensionRule = "ground.extensions"

// denies compiles the rules that deny, and adds the jail's own.
func (c *compiler) denies() {
	for i, r := range c.doc.FS.Rules {
		if r.Effect != Deny {
			continue
		}
		paths := expand(r.Path, c.facts)
		if len(paths) == 0 {
			c.note(r.Line, r.id(i), "dropped: its variable has no value here")
		}
		for _, p := range paths {
			c.deny(r, r.id(i), p)
		}
	}
	for _, s := range c.facts.State {
		c.deny(FSRule{Path: s + "/", Access: AccessRead, Effect: Deny, Mode: Enforce, Reason: "the launcher's own state"}, stateRule, s)
	}
	for _, e := range c.facts.Extensions {
		c.deny(FSRule{Path: e + "/", Access: AccessRead, Effect: Deny, Mode: Enforce, Reason: "the operator's extensions, which run outside of the jail"}, extensionRule, e)
	}
	c.policy.Deny = append(c.policy.Deny, unexecutable()...)
	// What is bound is a mount point, in every mode.
	bound := func(place, reason string) {
		place = path.Clean(place)
		c.policy.Deny = append(c.policy.Deny, Rule{ID: "ground.place", Path: place, Pins: []string{place}, Enforced: true, Reason: reason})
	}
	if s := c.facts.SessionDir; s != "" {
		bound(s, "the session directory keeps its name")
	}
	for _, r := range c.policy.Allow {
		if _, held := c.writable(r.Path); !held && r.Access&AccessWrite != 0 && r.Path != c.facts.SessionDir && !isOwn(r.Path) {
			bound(r.Path, "an allowed place keeps its name")
		}
	}
	c.settle()
}

// settle takes back what a rule asked for where an outer one refuses all of it:
// beneath a cover there is nothing to lay another on.
func (c *compiler) settle() {
	for i := range c.policy.Deny {
		r := &c.policy.Deny[i]
		for j := range c.policy.Deny {
			o := &c.policy.Deny[j]
			if !o.Enforced || !strictlyBeneath(o.Path, r.Path) {
				continue
			}
			if o.Access.Has(AccessRead) || r.Absent && r.Access&^AccessWrite&^AccessRead == 0 && o.Access&AccessWrite != 0 {
				r.Stub, r.Inside = "", false
			}
		}
	}
}

func (c *compiler) deny(r FSRule, id, p string) {
	found := c.found(p)
	p = path.Clean(p)
	rule := Rule{ID: id, Path: found.Path, Access: r.Access, Reason: r.Reason, Line: r.Line, Enforced: c.enforced(r.Mode), Promoted: r.Mode == Enforce, Absent: !found.Exists}
	if found.Path == "" {
		rule.Path = p
	}
	session := c.facts.SessionDir
	root, guarded := c.writable(rule.Path)
	if c.mode == Shadow && guarded && !c.facts.Unjailed && r.Access&AccessWrite != 0 {
		// What lies beneath an allowed place is the host's own file: no layer could
		// take the change, and what no layer takes is refused.
		rule.Enforced = true
	}
	switch {
	case rule.Path == "/":
		c.fail(r.Line, "a rule that denies /", "say so in fs.defaults, with its reason")
		return
	case isOwn(rule.Path) && !(rule.Path == "/tmp" && r.Access == AccessExec):
		c.fail(r.Line, fmt.Sprintf("a rule that denies %s, which is the jail's own", rule.Path), "leave it out: nothing of the host is there")
		return
	case !isOwn(rule.Path) && inOwn(rule.Path) && !guarded && !c.allowed(rule.Path):
		c.note(r.Line, id, fmt.Sprintf("dropped: %s lies in a place of the jail's own, where nothing of the host is", rule.Path))
		return
	case r.Access.Has(AccessRead) && session != "" && Within(rule.Path, session):
		c.fail(r.Line, fmt.Sprintf("rule %s hides %s, which holds the session directory %s", id, rule.Path, session), "use another session directory, or a policy without the rule")
		return
	case r.Access.Has(AccessExec) && rule.Enforced && slices.ContainsFunc(c.facts.Needs, func(n Rule) bool {
		return n.Access.Has(AccessExec) && Within(rule.Path, n.Path)
	}):
		c.fail(r.Line, fmt.Sprintf("rule %s denies executing the interpreter itself", id), "name another path, or use another interpreter")
		return
	}
	if rule.Enforced && !c.guard(&rule, found, root, guarded, strings.HasSuffix(r.Path, "/")) {
		return
	}
	if guarded {
		rule.Pins = between(root, rule.Path)
	} else if !rule.Enforced {
		rule.Pins = c.pinned(r, rule.Path, found)
	}
	c.policy.Deny = append(c.policy.Deny, rule)
	if p != rule.Path && found.Exists {
		// The link itself, for who asks about it. Covering its target leaves it.
		literal := rule
		literal.Path, literal.Enforced, literal.Inside, literal.Stub, literal.Pins = p, false, false, "", nil
		c.policy.Deny = append(c.policy.Deny, literal)
	}
}

// guard fills in how Linux refuses what an enforced rule denies; false where it
// cannot and the compilation has failed.
func (c *compiler) guard(rule *Rule, found Found, root string, guarded, directory bool) bool {
	for _, l := range found.Links {
		if _, ok := c.writable(l.Path); ok {
			c.fail(rule.Line, fmt.Sprintf("rule %s: the symbolic link %s lies where the session may write: it could be exchanged for another", rule.ID, l.Path),
				"deny its target instead, or remove the link")
			return false
		}
	}
	if guarded && found.Err != "" {
		c.fail(rule.Line, fmt.Sprintf("rule %s: %s cannot be looked at: %s", rule.ID, rule.Path, found.Err), "give the launcher the right to, or remove it")
		return false
	}
	holds := needsPlace(rule.Access)
	if rule.ID == stateRule || rule.ID == extensionRule {
		// Whoever moves a directory above it away makes another in its place, which the
		// launcher would then take for its own.
		holds = found.Exists
	}
	if !guarded && found.Err == "" && c.treeWritable() && holds {
		// The whole tree, or all of it that is shown, can be changed in this mode, and
		// this rule is to hold all the same.
		if root, guarded = "/", true; c.policy.ReadDefault.Enforced {
			root, guarded = c.visible(rule.Path)
		}
		if guarded {
			rule.Pins = between(root, rule.Path)
		}
	}
	rule.Inside = guarded
	if !rule.Absent {
		return true
	}
	switch {
	case c.mode == Shadow && guarded && root == "/":
		// What is made there stays in the layer, whose diff tells it as a conflict.
		rule.Enforced, rule.Inside, rule.Pins = false, false, nil
	case !guarded && c.treeWritable():
		// Nothing is there to hide, and nothing of the host's is made for it.
		rule.Enforced = false
	case !guarded:
	case directory || rule.Access&(AccessRead|AccessWrite) == 0:
		rule.Stub = StubDirectory
	default:
		rule.Stub = StubFile
	}
	return true
}

// needsPlace says whether a rule that denies this is about what lies at its path, so that
// the directories above must keep their names. A cover moves along with what it hides.
func needsPlace(a Access) bool {
	return a&(AccessWrite|AccessExec) != 0 && !a.Has(AccessRead)
}

// pinned lists the directories that enforce would keep in their places for a rule that
// this mode only reports, so that taking their names is told of here as well.
func (c *compiler) pinned(r FSRule, p string, found Found) []string {
	d := c.doc.FS.Defaults
	kept := func(s *Default, otherwise Effect) bool {
		if s == nil {
			return otherwise == Deny
		}
		return s.Effect == Deny && s.Mode != Report
	}
	if r.Mode == Report || found.Err != "" || !needsPlace(r.Access) || kept(d.Write, Deny) {
		return nil
	}
	root := "/"
	if kept(d.Read, Allow) {
		var shown bool
		if root, shown = c.visible(p); !shown {
			return nil
		}
	}
	return between(root, p)
}

// visible returns the outermost place of a listed tree strictly above p.
func (c *compiler) visible(p string) (string, bool) {
	best := ""
	for _, rules := range [][]Rule{c.policy.Allow, c.policy.Needs} {
		for _, r := range rules {
			if !isOwn(r.Path) && r.Path != p && Within(r.Path, p) && (best == "" || Within(r.Path, best)) {
				best = r.Path
			}
		}
	}
	return best, best != ""
}

// allowed reports whether p itself is an allowed place.
func (c *compiler) allowed(p string) bool {
	return slices.ContainsFunc(c.policy.Allow, func(r Rule) bool { return Within(r.Path, p) && r.Path != "/tmp" })
}

// between lists the directories strictly between root and p, the upper first.
func between(root, p string) []string {
	var out []string
	for dir := path.Dir(p); dir != root && dir != "/" && Within(root, dir); dir = path.Dir(dir) {
		out = append(out, dir)
	}
	slices.Reverse(out)
	return out
}
