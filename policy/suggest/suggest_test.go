package suggest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"cellblock/policy"
	"cellblock/policy/audit"
)

const baseText = `version: 1
name: base
fs:
  rules:
    - {id: session, path: "${session}/free", access: [write], effect: allow, reason: r}
    - {id: keys, path: /d/keys, access: [read], effect: deny, mode: enforce, reason: "the keys"}
`

func parse(t testing.TB, text string) policy.Document {
	t.Helper()
	doc, err := policy.Parse("base.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// compiled is a document for a session of a host that has what is listed, and nothing
// else.
func compiled(t testing.TB, doc policy.Document, host map[string]policy.Found) policy.Policy {
	t.Helper()
	facts := policy.Facts{Mode: policy.Enforce, SessionDir: "/s", Home: "/home/u", Paths: map[string]policy.Found{}}
	for _, p := range doc.Paths(facts) {
		found, ok := host[p]
		if !ok {
			found = policy.Found{Path: p, Exists: policy.Within("/s", p), Dir: true}
		}
		facts.Paths[p] = found
	}
	p, _, err := policy.Compile(doc, facts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func hostOf(places ...string) map[string]policy.Found {
	host := map[string]policy.Found{}
	for _, p := range places {
		name, dir := strings.CutSuffix(p, "/")
		for at := path.Dir(name); at != "/"; at = path.Dir(at) {
			host[at] = policy.Found{Path: at, Exists: true, Dir: true}
		}
		host[name] = policy.Found{Path: name, Exists: true, Dir: dir}
	}
	return host
}

func op(kind policy.OpKind, target string, set ...func(*audit.Operation)) Operation {
	o := audit.Operation{Op: string(kind), Target: target, Source: audit.SourceOS, Decision: audit.WouldDeny, Count: 1, Program: "/usr/bin/tool"}
	for _, f := range set {
		f(&o)
	}
	return Operation{Operation: o}
}

func creates(o *audit.Operation) { o.Creates = true }

// made is what a suggestion comes to: "path access" a rule, and the targets left out.
func made(t *testing.T, host map[string]policy.Found, o Options, ops ...Operation) (rules, left []string) {
	t.Helper()
	base := parse(t, baseText)
	sessions := []Session{{Run: audit.Run{Directory: "/s", Home: "/home/u"}, Base: compiled(t, base, host), Operations: ops}}
	for _, p := range Paths(sessions) {
		if _, ok := host[p]; !ok {
			host[p] = policy.Found{Path: p}
		}
	}
	s := Make(base, sessions, host, o)
	s.Check(sessions, []policy.Policy{compiled(t, s.Document, host)})
	for _, r := range s.Rules {
		rules = append(rules, r.Path+" "+r.Access.String())
	}
	for _, l := range s.Left {
		left = append(left, l.Target)
	}
	again := parse(t, string(s.Document.YAML(s.Comments())))
	if len(again.FS.Rules) != len(s.Document.FS.Rules) {
		t.Errorf("what is written has %d rules of %d", len(again.FS.Rules), len(s.Document.FS.Rules))
	}
	return rules, left
}

func TestWhereARuleGoes(t *testing.T) {
	there := func() map[string]policy.Found {
		return hostOf("/d/a/", "/d/a/one", "/d/a/two", "/d/b/", "/d/keys/", "/d/made/", "/d/made/x", "/s/free/", "/s/locked/")
	}
	for _, c := range []struct {
		name        string
		ops         []Operation
		how         Options
		rules, left string
	}{
		{name: "a file is changed", ops: []Operation{op(policy.Write, "/d/a/one")}, rules: "/d/a/one modify"},
		{name: "a file is made: its directory", ops: []Operation{op(policy.Write, "/d/a/new", creates)}, rules: "/d/a modify+create"},
		{name: "a file is removed: its directory", ops: []Operation{op(policy.Remove, "/d/a/one")}, rules: "/d/a remove"},
		{name: "what the session made was not there", ops: []Operation{op(policy.Mkdir, "/d/made"), op(policy.Write, "/d/made/x", creates), op(policy.Chmod, "/d/made/x")}, rules: "/d modify+create", left: ""},
		{name: "what is gone since", ops: []Operation{op(policy.Write, "/d/gone/deep/x", creates)}, rules: "/d modify+create"},
		{name: "metadata of a file, of a directory", ops: []Operation{op(policy.Chmod, "/d/a/one"), op(policy.Utime, "/d/b")}, rules: "/d/a/one modify|/d/b create"},
		{name: "a file below a directory that gives it", ops: []Operation{op(policy.Write, "/d/a/one"), op(policy.Write, "/d/a/new", creates)}, rules: "/d/a modify+create"},
		{name: "a part below another", ops: []Operation{op(policy.Mkdir, "/d/a/n"), op(policy.Write, "/d/a/one")}, rules: "/d/a create|/d/a/one modify"},
		{name: "several files", ops: []Operation{op(policy.Write, "/d/a/one"), op(policy.Write, "/d/a/two")}, rules: "/d/a/one modify|/d/a/two modify"},
		{name: "several files, generalised", how: Options{Generalise: true}, ops: []Operation{op(policy.Write, "/d/a/one"), op(policy.Write, "/d/a/two")}, rules: "/d/a modify"},
		{name: "one file, generalised", how: Options{Generalise: true}, ops: []Operation{op(policy.Write, "/d/a/one")}, rules: "/d/a/one modify"},
		{name: "in the session directory", ops: []Operation{op(policy.Mkdir, "/s/locked/x"), op(policy.Write, "/s/free/x")}, rules: "${session}/locked create"},
		{name: "hidden, above what is hidden", ops: []Operation{op(policy.Write, "/d/keys/x", creates), op(policy.Mkdir, "/d/n")}, rules: "/d create", left: "/d/keys/x"},
		{name: "the host as a whole", ops: []Operation{op(policy.Mkdir, "/x"), op(policy.Mkdir, "/etc/x"), op(policy.Mkdir, "/home/u/x"), op(policy.Mkdir, "/home/x")}, left: "/x|/etc/x|/home/u/x|/home/x"},
		{name: "bytes that no document names", ops: []Operation{op(policy.Write, `/d/a/\xff`)}, left: `/d/a/\xff`},
		{name: "a pattern in a name", ops: []Operation{op(policy.Write, `/d/a/new*`)}, rules: "/d/a modify"},
	} {
		rules, left := made(t, there(), c.how, c.ops...)
		if strings.Join(rules, "|") != c.rules || strings.Join(left, "|") != c.left {
			t.Errorf("%s: %v, left %v; want %s, left %s", c.name, rules, left, c.rules, c.left)
		}
	}
}

// TestASuggestionIsEnoughAndNotTooMuch: for random records, all that is not left out is
// allowed, and no rule's access could be missing.
func TestASuggestionIsEnoughAndNotTooMuch(t *testing.T) {
	base := parse(t, baseText)
	kinds := []policy.OpKind{policy.Write, policy.Create, policy.Truncate, policy.Mkdir, policy.Remove, policy.Rmdir, policy.Link, policy.Symlink,
		policy.Chmod, policy.Utime, policy.RenameFrom, policy.RenameTo}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		name := func() string {
			p := "/d"
			for range 1 + random.IntN(3) {
				p += "/" + string("abc"[random.IntN(3)])
			}
			return p
		}
		var places []string
		for range random.IntN(8) {
			places = append(places, name()+[]string{"", "/"}[random.IntN(2)])
		}
		host := hostOf(append(places, "/d/")...)
		var ops []Operation
		for range 1 + random.IntN(8) {
			o := op(kinds[random.IntN(len(kinds))], name())
			o.Creates = o.Op == string(policy.Write) && random.IntN(2) == 0
			o.Replaces = o.Op == string(policy.RenameTo) && random.IntN(2) == 0
			ops = append(ops, o)
		}
		sessions := []Session{{Run: audit.Run{Directory: "/s", Home: "/home/u"}, Base: compiled(t, base, host), Operations: ops}}
		for _, p := range Paths(sessions) {
			if _, ok := host[p]; !ok {
				host[p] = policy.Found{Path: p}
			}
		}
		s := Make(base, sessions, host, Options{Generalise: seed%2 == 1})
		before := len(s.Left)
		p := compiled(t, s.Document, host)
		s.Check(sessions, []policy.Policy{p})
		if len(s.Left) != before {
			t.Fatalf("seed %d: %v does not allow %v", seed, s.Document.FS.Rules, s.Left[before:])
		}
		shuffled := slices.Clone(ops)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		sessions[0].Operations = shuffled
		other := Make(base, sessions, host, Options{Generalise: seed%2 == 1})
		if !bytes.Equal(other.Document.YAML(nil), s.Document.YAML(nil)) {
			t.Fatalf("seed %d: another order of the same operations gives another policy", seed)
		}
		if seed%2 == 1 {
			continue // more than is needed was asked for
		}
		for i, r := range s.Document.FS.Rules[len(base.FS.Rules):] {
			for _, part := range []policy.Access{policy.AccessModify, policy.AccessCreate, policy.AccessRemove} {
				if !r.Access.Has(part) {
					continue
				}
				less := s.Document
				less.FS.Rules = slices.Clone(less.FS.Rules)
				at := len(base.FS.Rules) + i
				if less.FS.Rules[at].Access &^= part; less.FS.Rules[at].Access == 0 {
					less.FS.Rules = slices.Delete(less.FS.Rules, at, at+1)
				}
				p := compiled(t, less, host)
				if !slices.ContainsFunc(ops, func(o Operation) bool {
					d, err := o.Decide(p)
					return err == nil && !d.Allowed()
				}) {
					t.Fatalf("seed %d: %s is not needed of %s\n%s", seed, part, r.Path, fmt.Sprint(ops))
				}
			}
		}
	}
}

// TestEvidenceIsSafeToRead: names of files are a session's own choice, and stand in
// comments of a document and in a terminal.
func TestEvidenceIsSafeToRead(t *testing.T) {
	base := parse(t, baseText)
	host := hostOf("/d/a/")
	evil := op(policy.Write, "/d/a/x\n    - {path: y, access: (write), effect: allow, reason: r}\x1b[31m\u202e", creates)
	evil.Program = "/tmp/\"}, reason: x\n"
	sessions := []Session{{Run: audit.Run{Directory: "/s"}, Base: compiled(t, base, host), Operations: []Operation{evil}}}
	s := Make(base, sessions, host, Options{})
	text := string(s.Document.YAML(s.Comments()))
	if doc := parse(t, text); len(doc.FS.Rules) != len(base.FS.Rules)+1 || doc.FS.Rules[2].Path != "/d/a" {
		t.Errorf("%s", text)
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("%q", text)
	}
}
