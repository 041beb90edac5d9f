package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Compile turns a document into the policy of one session in one mode. It is
// pure: what it must know of the host is in the facts. The notes name rules that
// were dropped or cannot do what they say here; an error is an [*Error] and
// means that the session would not be what the document promises.
func Compile(doc Document, f Facts) (Policy, []Note, error) {
	f.Needs, f.Sealed = canonical(f.Needs), canonical(f.Sealed)
	c := &compiler{doc: doc, facts: f, mode: f.Mode.OrDefault()}
	c.policy = Policy{Name: doc.Name, Mode: c.mode, Unjailed: f.Unjailed, Links: slices.Clone(f.Links), Private: private(), Devices: devices(),
		Sealed: append(sealed(), f.Sealed...), Needs: f.Needs, Allow: []Rule{}, Deny: []Rule{}}
	d := doc.FS.Defaults
	c.policy.ReadDefault = c.standard(d.Read, Allow, "reading is open except for secrets")
	c.policy.WriteDefault = c.standard(d.Write, Deny, "changes are allowed in the session directory and private places only")
	c.policy.ExecDefault = c.standard(d.Exec, Allow, "programs that can be read can be executed")
	c.allows()
	c.links()
	c.topLinks()
	c.denies()
	c.network()
	c.rest()
	if c.err != nil {
		return Policy{}, c.notes, c.err
	}
	return c.policy, c.notes, nil
}

// canonical is a copy of rules with their paths cleaned: decisions compare them as they
// are.
func canonical(rules []Rule) []Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Path = path.Clean(rules[i].Path)
	}
	return rules
}

type compiler struct {
	doc    Document
	facts  Facts
	mode   Mode
	policy Policy
	notes  []Note
	err    error
}

func (c *compiler) fail(line int, what, do string) {
	if c.err == nil {
		c.err = &Error{File: c.doc.File, Line: line, What: what, Do: do}
	}
}

func (c *compiler) note(line int, rule, text string) {
	c.notes = append(c.notes, Note{Line: line, Rule: rule, Text: text})
}

// enforced says what becomes of a denial with this mode of its own.
func (c *compiler) enforced(own Mode) bool {
	if c.facts.Unjailed {
		return false
	}
	if own != "" {
		return own == Enforce
	}
	return c.mode.Enforced()
}

func (c *compiler) standard(d *Default, effect Effect, reason string) Standard {
	if d == nil {
		d = &Default{Effect: effect, Reason: reason}
	}
	return Standard{Effect: d.Effect, Reason: d.Reason, Enforced: d.Effect == Deny && c.enforced(d.Mode), Promoted: d.Effect == Deny && d.Mode == Enforce}
}

// expand puts the variables in. A variable without a value gives no path.
func expand(p string, f Facts) []string {
	p = strings.TrimSuffix(p, "/")
	if p == "" {
		return []string{"/"}
	}
	values := map[string][]string{"${session}": {f.SessionDir}, "${tmp}": {"/tmp"}, "${home}": {f.Home}, "${state}": f.State}
	for _, name := range variables {
		rest, ok := strings.CutPrefix(p, name)
		if !ok {
			continue
		}
		var out []string
		for _, v := range values[name] {
			if v != "" && v != "/" {
				out = append(out, strings.TrimSuffix(v, "/")+rest)
			}
		}
		return out
	}
	return []string{p}
}

// Paths lists the paths that the document names, with variables put in: what
// Compile wants found out about the host.
func (d Document) Paths(f Facts) []string {
	out := slices.Concat(f.State, f.Extensions)
	for _, r := range d.FS.Rules {
		for _, p := range expand(r.Path, f) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// found is what the host has at a path.
func (c *compiler) found(p string) Found {
	found, ok := c.facts.Paths[p]
	if !ok {
		found = Found{Exists: true, Dir: true, Path: p}
	}
	if found.Path != "" {
		found.Path = path.Clean(found.Path)
	}
	return found
}

func (r FSRule) id(i int) string {
	if r.ID != "" {
		return r.ID
	}
	return fmt.Sprintf("fs.%d", i+1)
}

// treeWritable reports whether changes outside of all rules are left to the
// user's rights.
func (c *compiler) treeWritable() bool { return !c.policy.WriteDefault.Enforced }

func (c *compiler) network() {
	n := Network{Mode: c.doc.Net.Mode, Reason: c.doc.Net.Reason, Allow: slices.Clone(c.doc.Net.Allow), Inbound: c.doc.Net.Inbound}
	if c.facts.Net != "" && c.facts.Net != n.Mode {
		if c.facts.Net == NetAllow {
			c.fail(c.doc.Net.Line, "net: an allow list was asked for and the document has none", "list hosts under net.allow")
		}
		n = Network{Mode: c.facts.Net}
	}
	if n.Mode == "" {
		n.Mode = NetNone
	}
	n.Enforced = n.Mode != NetHost && !c.facts.Unjailed && (c.mode.Enforced() || c.facts.Net == NetNone)
	for i := range n.Allow {
		if n.Allow[i].ID == "" {
			n.Allow[i].ID = fmt.Sprintf("net.%d", i+1)
		}
	}
	c.policy.Network = n
}

func (c *compiler) rest() {
	t := c.doc.Tools
	if t.Default == "" {
		t.Default = Deny
	}
	t.Rules = slices.Clone(t.Rules)
	for i := range t.Rules {
		if t.Rules[i].ID == "" {
			t.Rules[i].ID = fmt.Sprintf("tools.%d", i+1)
		}
	}
	c.policy.Tools = t
	if t.Rego != nil {
		c.policy.Rego = t.Rego.Digests
	}
	for _, entries := range []map[string]LimitEntry{c.doc.Process, c.doc.Limits} {
		for name, e := range entries {
			if to := c.policy.Limits.Field(name); to != nil {
				*to = e.Value
			}
		}
	}
	c.policy.Limits = c.policy.Limits.Merge(c.facts.Limits)
	for _, p := range c.doc.Env.Pass {
		c.policy.Env.Pass = append(c.policy.Env.Pass, p.Name)
	}
	for name, v := range c.doc.Env.Set {
		c.policy.Env.Set = append(c.policy.Env.Set, name+"="+v.Value)
	}
	slices.Sort(c.policy.Env.Set)
	c.policy.Env = c.policy.Env.Merge(c.facts.Env)
}

// Lists reports whether the document lists what may be read or executed, or keeps
// something from being executed: it must then be known what the interpreter needs.
func (d Document) Lists() bool {
	for _, s := range []*Default{d.FS.Defaults.Read, d.FS.Defaults.Exec} {
		if s != nil && s.Effect == Deny {
			return true
		}
	}
	return slices.ContainsFunc(d.FS.Rules, func(r FSRule) bool { return r.Effect == Deny && r.Access.Has(AccessExec) })
}
