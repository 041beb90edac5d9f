package suggest

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"cellblock/policy"
	"cellblock/policy/audit"
)

// Session is one recorded session.
type Session struct {
	Run        audit.Run
	Base       policy.Policy // the base, compiled for it
	Guards     []policy.Rule // what the built-in default hides from it
	Operations []Operation
}

// Operation is a recorded one. Flag says why the host executes or loads by itself
// what it makes; empty for no reason known.
type Operation struct {
	audit.Operation
	Flag string `json:"flag,omitempty"`
}

// Options say how far a suggestion goes.
type Options struct {
	// Generalise has several files of one directory become the directory.
	Generalise bool
}

// Suggestion is a document and what it rests on.
type Suggestion struct {
	Document policy.Document `json:"document"`
	Rules    []Rule          `json:"rules"` // the document's rules that the base has not, in its order
	Left     []Left          `json:"notSuggested"`
	Sessions int             `json:"sessions"`
	Base     string          `json:"base"`
}

// Rule is a suggested rule and the operations that ask for it.
type Rule struct {
	policy.FSRule
	Evidence []Operation `json:"evidence"`
}

// Left is an operation that stays denied, and why no rule is suggested for it.
type Left struct {
	Operation `json:"operation"`
	Why       string `json:"why"`
}

// Paths lists the places of the host that Make wants to know of.
func Paths(sessions []Session) []string {
	seen := map[string]bool{}
	for _, s := range sessions {
		for _, o := range s.Operations {
			op, ok := o.FileOp()
			for p := path.Clean(op.Path); ok && p != "/" && !seen[p]; p = path.Dir(p) {
				seen[p] = true
			}
		}
	}
	var out []string
	for p := range seen {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// Make makes a suggestion. Host says what there is at each of Paths.
func Make(base policy.Document, sessions []Session, host map[string]policy.Found, o Options) Suggestion {
	m := &maker{host: host, needs: map[string]*need{}}
	for i := range sessions {
		m.session(&sessions[i])
	}
	if o.Generalise {
		m.generalise()
	}
	m.settle()
	out := Suggestion{Document: base, Sessions: len(sessions), Base: base.Name, Rules: []Rule{}, Left: m.left}
	if out.Left == nil {
		out.Left = []Left{}
	}
	out.Document.Name = "suggested"
	out.Document.File = ""
	out.Document.Description = fmt.Sprintf("The policy %s, and what %s did beyond it.", base.Name, plural(len(sessions), "recorded session"))
	out.Document.FS.Rules = slices.Clone(base.FS.Rules)
	taken := map[string]bool{}
	for _, r := range base.FS.Rules {
		taken[r.ID] = true
	}
	number := 0
	for _, n := range m.sorted() {
		id := ""
		for id == "" || taken[id] {
			number++
			id = fmt.Sprintf("suggested.%d", number)
		}
		r := policy.FSRule{ID: id, Path: n.path, Access: n.access, Effect: policy.Allow, Reason: n.reason()}
		out.Document.FS.Rules = append(out.Document.FS.Rules, r)
		out.Rules = append(out.Rules, Rule{FSRule: r, Evidence: n.evidence})
	}
	return out
}

// Check asks the suggested document, compiled for each of the sessions in their order,
// about everything that they did. What it still denies and what is not left out yet is
// left out, with the rule that denies it.
func (s *Suggestion) Check(sessions []Session, compiled []policy.Policy) {
	left := map[[2]string]bool{}
	for _, l := range s.Left {
		left[[2]string{l.Op, l.Target}] = true
	}
	for i, session := range sessions {
		for _, o := range session.Operations {
			d, err := o.Decide(compiled[i])
			if err == nil && !d.Allowed() && !left[[2]string{o.Op, o.Target}] {
				s.Left = leave(s.Left, o, fmt.Sprintf("rule %s denies it all the same (%s)", d.Rule, d.Reason))
			}
		}
	}
}

// need is one rule to be.
type need struct {
	path     string // as a document names it
	place    string // on the host
	access   policy.Access
	metadata bool // it is needed for changes of metadata, for which any change will do
	file     bool
	session  *Session // the first that asked
	evidence []Operation
	known    map[[3]string]int // op, target, program → index of evidence
}

type maker struct {
	host  map[string]policy.Found
	needs map[string]*need
	left  []Left
}

func (m *maker) leave(o Operation, why string) { m.left = leave(m.left, o, why) }

func leave(left []Left, o Operation, why string) []Left {
	for i, l := range left {
		if l.Op == o.Op && l.Target == o.Target && l.Program == o.Program && l.Why == why {
			left[i].Count += o.Count
			return left
		}
	}
	return append(left, Left{o, why})
}

func (m *maker) session(s *Session) {
	made := map[string]bool{}
	for _, o := range s.Operations {
		if op, ok := o.FileOp(); ok && makes(op) {
			made[path.Clean(op.Path)] = true
		}
	}
	for _, o := range s.Operations {
		d, err := o.Decide(s.Base)
		switch {
		case err != nil:
			m.leave(o, err.Error())
			continue
		case d.Allowed():
			continue
		}
		op, ok := o.FileOp()
		if !ok {
			m.leave(o, unopened(o, d))
			continue
		}
		m.file(s, o, op, d, made)
	}
}

// makes reports whether something is at the path afterwards that was not before.
func makes(op policy.Op) bool {
	switch op.Kind {
	case policy.Create, policy.Mkdir, policy.Symlink, policy.Link, policy.RenameTo:
		return true
	}
	return op.Creates
}

// unopened says why no rule is suggested for what is no operation on files.
func unopened(o Operation, d policy.Decision) string {
	if o.Op == audit.OpHostCall {
		return fmt.Sprintf("%s; the launcher carries it out with your rights: write a rule for it under tools, with a schema of its arguments", d.Reason)
	}
	return fmt.Sprintf("%s; what leaves for another machine is yours to name: list hosts under net.allow", d.Reason)
}

// file finds the place for which a rule would allow an operation on a file.
func (m *maker) file(s *Session, o Operation, op policy.Op, d policy.Decision, made map[string]bool) {
	if !slices.Contains([]string{"default.read", "default.write", "default.exec"}, d.Rule) {
		m.leave(o, fmt.Sprintf("rule %s denies it (%s), and a denial wins over what is allowed", d.Rule, d.Reason))
		return
	}
	if !o.Plain() {
		m.leave(o, "its path has bytes that a document cannot name")
		return
	}
	at := m.place(op, made)
	if why := m.refuse(s, op.Path, at); why != "" {
		m.leave(o, why)
		return
	}
	parts, metadata := op.Needs()
	name := at
	if dir := s.Run.Directory; policy.Within(dir, at) {
		name = "${session}" + strings.TrimPrefix(at, dir)
	}
	n := m.needs[name]
	if n == nil {
		n = &need{path: name, place: at, session: s, file: !m.host[at].Dir}
		m.needs[name] = n
	}
	n.access |= parts
	n.metadata = n.metadata || metadata
	n.seen(o)
}

// seen adds evidence: the same done again, in another session too, is counted.
func (n *need) seen(o Operation) {
	key := [3]string{o.Op, o.Target, o.Program}
	if at, ok := n.known[key]; ok {
		n.evidence[at].Count += o.Count
		return
	}
	if n.known == nil {
		n.known = map[[3]string]int{}
	}
	n.known[key] = len(n.evidence)
	n.evidence = append(n.evidence, o)
}

// place is what a rule must name to allow op in a session that finds the host as this
// one found it: what the session made was not there then, and a rule for what is not
// there is dropped.
func (m *maker) place(op policy.Op, made map[string]bool) string {
	at := path.Clean(op.Path)
	if op.Names() {
		at = path.Dir(at)
	}
	for p := at; p != "/"; p = path.Dir(p) {
		if made[p] {
			at = path.Dir(p)
		}
	}
	for at != "/" && !m.there(at) {
		at = path.Dir(at)
	}
	return at
}

// there reports whether the host has something at a path, or nobody could look.
func (m *maker) there(p string) bool {
	found, known := m.host[p]
	return !known || found.Exists || found.Err != ""
}

// whole are directories in which the host as a whole lives: a rule for one of them
// is no answer to what one program did.
var whole = []string{"/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
	"/sbin", "/srv", "/sys", "/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/local", "/usr/local/bin", "/usr/sbin", "/usr/share", "/var", "/var/lib", "/var/log"}

// refuse says why no rule is suggested for a place; empty where one may be.
func (m *maker) refuse(s *Session, target, at string) string {
	home := s.Run.Home
	switch {
	case slices.Contains(whole, at), home != "" && policy.Within(at, home):
		return fmt.Sprintf("it would take a rule for the whole of %s: write it yourself if that is meant", at)
	case policy.Own(at):
		return at + " is the jail's own"
	case strings.ContainsAny(at, "*?[\n\t") || strings.Contains(at, "${"):
		return "its path has characters that a document cannot name"
	}
	for _, g := range s.Guards {
		if policy.Within(g.Path, target) {
			return fmt.Sprintf("the built-in policy default hides it (%s: %s)", g.ID, g.Reason)
		}
		if policy.Within(at, g.Path) && s.Base.Decide(policy.Op{Kind: policy.Read, Path: g.Path}).Allowed() {
			return fmt.Sprintf("a rule for %s would open %s, which the built-in policy default hides (%s)", at, g.Path, g.Reason)
		}
	}
	return ""
}

// generalise lets needs for several files of one directory become one for the directory.
func (m *maker) generalise() {
	beside := map[string][]*need{}
	for _, n := range m.needs {
		if n.file && strings.Contains(n.path, "/") {
			beside[path.Dir(n.path)] = append(beside[path.Dir(n.path)], n)
		}
	}
	for dir, files := range beside {
		first := files[0]
		place := path.Dir(first.place)
		if len(files) < 2 || m.refuse(first.session, place, place) != "" {
			continue
		}
		n := m.needs[dir]
		if n == nil {
			n = &need{path: dir, place: place, session: first.session}
			m.needs[dir] = n
		}
		for _, f := range files {
			n.access |= f.access
			n.metadata = n.metadata || f.metadata
			for _, o := range f.evidence {
				n.seen(o)
			}
			delete(m.needs, f.path)
		}
	}
}

// settle takes back what a rule above gives already. What is allowed adds up, from
// the outermost place inwards.
func (m *maker) settle() {
	for _, n := range m.sorted() {
		var above policy.Access
		for p := path.Dir(n.path); p != "." && p != "/"; p = path.Dir(p) {
			if o := m.needs[p]; o != nil {
				above |= o.access
			}
		}
		n.access &^= above
		if n.metadata && (n.access|above)&policy.AccessWrite == 0 {
			// Changes of metadata have no access of their own.
			n.access |= policy.AccessModify
			if !n.file {
				n.access = n.access&^policy.AccessModify | policy.AccessCreate
			}
		}
		if n.access != 0 {
			continue
		}
		for p := path.Dir(n.path); ; p = path.Dir(p) {
			if o := m.needs[p]; o != nil {
				for _, e := range n.evidence {
					o.seen(e)
				}
				break
			}
		}
		delete(m.needs, n.path)
	}
	for _, n := range m.needs {
		sort.SliceStable(n.evidence, func(i, j int) bool {
			a, b := n.evidence[i], n.evidence[j]
			if a.Target != b.Target {
				return a.Target < b.Target
			}
			return a.Op < b.Op
		})
	}
}

// sorted are the needs by their paths: what is above comes first.
func (m *maker) sorted() []*need {
	var out []*need
	for _, n := range m.needs {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *need) int { return strings.Compare(a.path, b.path) })
	return out
}
