package policy

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Level says how much a finding matters.
type Level string

// The levels.
const (
	LevelError   Level = "error"   // no session can be opened with the document
	LevelWarning Level = "warning" // a rule that does not do what it seems to
	LevelNote    Level = "note"    // worth knowing
)

// Finding is something about a document that its author may want to change.
type Finding struct {
	Line  int    `json:"line"`
	Level Level  `json:"level"`
	Rule  string `json:"rule,omitempty"`
	Text  string `json:"text"`
}

// Lint looks for rules that do nothing, contradict each other or cannot be kept.
// It is pure; what concerns the host is in the facts, and what concerns the
// abilities of its Linux is not looked at.
func Lint(doc Document, f Facts) []Finding {
	l := &linter{doc: doc, facts: f}
	f.Mode = Enforce
	_, notes, err := Compile(doc, f)
	for _, n := range notes {
		level := LevelNote
		if strings.HasSuffix(n.Text, "does not exist") {
			level = LevelWarning
		}
		l.add(n.Line, level, n.Rule, n.Text)
	}
	var broken *Error
	if errors.As(err, &broken) {
		l.add(broken.Line, LevelError, "", broken.What+": "+broken.Do)
	}
	l.paths()
	l.secrets()
	l.net()
	l.tools()
	l.rest()
	sort.SliceStable(l.found, func(i, j int) bool { return l.found[i].Line < l.found[j].Line })
	return l.found
}

type linter struct {
	doc   Document
	facts Facts
	found []Finding
}

func (l *linter) add(line int, level Level, rule, text string) {
	l.found = append(l.found, Finding{Line: max(line, 1), Level: level, Rule: rule, Text: text})
}

// reach is the rule's path with variables in, or as it stands where they have no
// value here.
func (l *linter) reach(r FSRule) string {
	if paths := expand(r.Path, l.facts); len(paths) > 0 {
		return paths[0]
	}
	return strings.TrimSuffix(r.Path, "/")
}

// denies is what a rule that denies takes away.
func (r FSRule) denies() Access {
	if r.Access.Has(AccessRead) {
		return AccessRead | AccessWrite | AccessExec
	}
	return r.Access
}

func (l *linter) paths() {
	rules := l.doc.FS.Rules
	effect := func(d *Default, otherwise Effect) Effect {
		if d != nil {
			return d.Effect
		}
		return otherwise
	}
	d := l.doc.FS.Defaults
	var open Access
	for access, e := range map[Access]Effect{AccessRead: effect(d.Read, Allow), AccessWrite: effect(d.Write, Deny), AccessExec: effect(d.Exec, Allow)} {
		if e == Allow {
			open |= access
		}
	}
	for i, r := range rules {
		at := l.reach(r)
		if r.Effect == Allow && open.Has(r.Access) {
			l.add(r.Line, LevelWarning, r.id(i), fmt.Sprintf("does nothing: %s is allowed by default", r.Access))
			continue
		}
		for j, o := range rules {
			if i == j || !beneath(l.reach(o), at) {
				continue
			}
			same := l.reach(o) == at
			switch {
			case r.Effect == Allow && o.Effect == Deny && o.denies().Has(r.Access) && o.Mode != Report:
				l.add(r.Line, LevelWarning, r.id(i), fmt.Sprintf("unreachable: rule %s on line %d denies all of it, and a denial wins at any depth", o.id(j), o.Line))
			case r.Effect == o.Effect && r.Effect == Allow && o.Access.Has(r.Access) && (!same || j < i || o.Access != r.Access):
				l.add(r.Line, LevelWarning, r.id(i), fmt.Sprintf("unreachable: rule %s on line %d allows it already", o.id(j), o.Line))
			case r.Effect == o.Effect && r.Effect == Deny && o.denies().Has(r.denies()) && (o.Mode == r.Mode || o.Mode == Enforce) && (!same || j < i || o.Access != r.Access):
				l.add(r.Line, LevelWarning, r.id(i), fmt.Sprintf("unreachable: rule %s on line %d denies it already", o.id(j), o.Line))
			default:
				continue
			}
			break
		}
	}
}

// beneath is Within for paths that may begin with a variable.
func beneath(root, p string) bool {
	return root == p || strings.HasPrefix(p, strings.TrimSuffix(root, "/")+"/")
}

// secrets warns of a document under which a session can read keys.
func (l *linter) secrets() {
	if d := l.doc.FS.Defaults.Read; d != nil && d.Effect == Deny {
		return
	}
	var bare []string
	for _, name := range []string{"/.ssh", "/.gnupg", "/.aws"} {
		p := "${home}" + name
		if l.facts.Home != "" {
			p = l.facts.Home + name
		}
		if !slices.ContainsFunc(l.doc.FS.Rules, func(r FSRule) bool {
			return r.Effect == Deny && r.Access.Has(AccessRead) && beneath(l.reach(r), p)
		}) {
			bare = append(bare, "${home}"+name)
		}
	}
	if len(bare) > 0 {
		l.add(1, LevelWarning, "", "reading is open and nothing hides "+strings.Join(bare, ", ")+": take the secrets over from the policy default")
	}
}

func (l *linter) net() {
	for i, r := range l.doc.Net.Allow {
		id := r.ID
		if id == "" {
			id = fmt.Sprintf("net.%d", i+1)
		}
		if network, ok := r.network(); ok {
			for _, g := range guarded {
				if network.Contains(g.block.Addr()) && network.Bits() < g.block.Bits() {
					l.add(r.Line, LevelNote, id, fmt.Sprintf("does not open %s within it, which is %s: list that by itself where it is meant", g.block, g.reason))
					break
				}
			}
		}
		for _, o := range l.doc.Net.Allow[:i] {
			if o.Host == r.Host && (len(o.Ports) == 0 || len(r.Ports) > 0 && !slices.ContainsFunc(r.Ports, func(p int) bool { return !o.Ports.Has(p) })) {
				l.add(r.Line, LevelWarning, id, fmt.Sprintf("unreachable: line %d lists it already", o.Line))
				break
			}
		}
	}
}

func (l *linter) tools() {
	rules := l.doc.Tools.Rules
	for i, r := range rules {
		id := r.ID
		if id == "" {
			id = fmt.Sprintf("tools.%d", i+1)
		}
		for j, o := range rules {
			name, all := strings.CutSuffix(o.Tool, "*")
			covers := o.Tool == r.Tool || all && strings.HasPrefix(r.Tool, name)
			if i == j || !covers || len(o.Roles)+len(o.Purposes)+len(o.Schema) > 0 {
				continue
			}
			switch {
			case r.Effect != Deny && o.Effect == Deny:
				l.add(r.Line, LevelWarning, id, fmt.Sprintf("unreachable: line %d denies it", o.Line))
			case r.Effect == Allow && o.Effect == Confirm:
				l.add(r.Line, LevelWarning, id, fmt.Sprintf("unreachable: line %d wants it confirmed", o.Line))
			case r.Effect == o.Effect && o.Limits == (ToolLimits{}) && (o.Tool != r.Tool || j < i):
				l.add(r.Line, LevelWarning, id, fmt.Sprintf("unreachable: line %d says it already", o.Line))
			default:
				continue
			}
			break
		}
	}
}

func (l *linter) rest() {
	if s, ok := l.doc.Limits["shadow"]; ok {
		l.add(s.Line, LevelNote, "", "limit shadow: counts in mode shadow alone")
	}
	for _, p := range l.doc.Env.Pass {
		if name, all := strings.CutSuffix(p.Name, "*"); all && risky(name) {
			l.add(p.Line, LevelWarning, "", fmt.Sprintf("variable %s: those that make programs load foreign code pass when they are named in full only", p.Name))
		}
	}
}
