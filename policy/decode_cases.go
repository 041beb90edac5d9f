package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ParseCases reads a file of cases, as strictly as Parse reads a document: errors are
// of type [*Error] and name the line.
func ParseCases(file string, text []byte) (CaseFile, error) {
	root, err := scan(file, text)
	if err != nil {
		return CaseFile{}, err
	}
	d := &decoder{file: file, ids: map[string]int{}}
	f := d.caseFile(root)
	if d.err != nil {
		return CaseFile{}, d.err
	}
	f.File = file
	return f, nil
}

func (d *decoder) caseFile(n *node) CaseFile {
	f := CaseFile{Modes: []Mode{Enforce}}
	var cases []*node
	d.mapping(n, "the file",
		field{"policy", true, func(n *node) {
			f.Line = n.line
			d.text("policy", &f.Policy)(n)
		}},
		field{"modes", false, func(n *node) {
			f.Modes = nil
			d.each("modes", func(n *node) {
				var m Mode
				word(d, "a mode", &m, Available()...)(n)
				if slices.Contains(f.Modes, m) {
					d.fail(n.line, fmt.Sprintf("mode %s stands twice", m), "keep one of them")
				}
				f.Modes = append(f.Modes, m)
			})(n)
			if len(f.Modes) == 0 {
				d.fail(n.line, "modes is an empty list", "name the modes in which the cases run")
			}
		}},
		field{"files", false, d.each("files", func(n *node) { f.Files = append(f.Files, d.caseSetup(n, f.Files)) })},
		field{"cases", true, d.each("cases", func(n *node) { cases = append(cases, n) })})
	// After the modes, wherever they stand.
	names := map[string]int{}
	for _, n := range cases {
		c := d.oneCase(n, f.Modes)
		if first, twice := names[c.Name]; twice {
			d.fail(n.line, fmt.Sprintf("case %q stands twice, first on line %d", c.Name, first), "give each case a name of its own")
		}
		names[c.Name] = n.line
		f.Cases = append(f.Cases, c)
	}
	if d.err == nil && len(f.Cases) == 0 {
		d.fail(n.line, "no cases", "list at least one under cases")
	}
	return f
}

func (d *decoder) caseSetup(n *node, before []CaseSetup) CaseSetup {
	s := CaseSetup{Line: n.line}
	d.mapping(n, "a file of files",
		field{"path", true, func(n *node) {
			d.text("path", &s.Path)(n)
			if d.err == nil {
				d.path(n.line, s.Path)
			}
		}},
		field{"text", false, func(n *node) {
			if n.kind != textNode {
				d.fail(n.line, "text is "+kindNames[n.kind], "write text, in quotes where it looks like something else")
			}
			s.Text = n.text
		}},
		field{"exec", false, func(n *node) {
			if n.kind != boolNode {
				d.fail(n.line, "exec is "+n.show(), "write true or false")
			}
			s.Exec = n.text == "true"
		}})
	if rest, dir := strings.CutSuffix(s.Path, "/"); dir {
		s.Path, s.Dir = rest, true
	}
	switch {
	case d.err != nil:
	case s.Dir && (s.Text != "" || s.Exec):
		d.fail(n.line, "a directory with a text", "leave out the / at the end of its path, or its text")
	case s.Path == "" || strings.HasPrefix(s.Path, "${state}"):
		d.fail(n.line, fmt.Sprintf("path %q", s.Path), "name a file or directory of the test's own")
	case strings.HasPrefix(s.Path, "${tmp}") || Within("/tmp", s.Path):
		d.fail(n.line, fmt.Sprintf("path %q lies in the session's private /tmp", s.Path), "make it in a cell, or use ${session} or ${home}")
	case slices.ContainsFunc(before, func(o CaseSetup) bool { return o.Path == s.Path }):
		d.fail(n.line, fmt.Sprintf("path %q stands twice", s.Path), "keep one of them")
	}
	return s
}

func (d *decoder) oneCase(n *node, modes []Mode) Case {
	c := Case{Line: n.line, Role: Roles[0], Purpose: Purposes[0]}
	of := map[string]bool{} // keys that are there
	expected := func(n *node) {
		c.Expect = map[Mode]Effect{}
		if n.kind != mapNode {
			var e Effect
			word(d, "expect", &e, Allow, Deny)(n)
			for _, m := range modes {
				c.Expect[m] = e
			}
			return
		}
		var fields []field
		for _, m := range Available() {
			fields = append(fields, field{string(m), false, func(n *node) {
				var e Effect
				word(d, "expect."+string(m), &e, Allow, Deny)(n)
				c.Expect[m] = e
			}})
		}
		d.mapping(n, "expect", fields...)
		if d.err == nil && len(c.Expect) == 0 {
			d.fail(n.line, "expect is an empty mapping", "write allow or deny, or one of them for each mode")
		}
	}
	note := func(key string, read func(*node)) func(*node) {
		return func(n *node) { of[key] = true; read(n) }
	}
	d.mapping(n, "a case",
		field{"name", false, d.text("name", &c.Name)},
		field{"op", false, note("op", func(n *node) { c.Op = d.caseOp(n) })},
		field{"cell", false, note("cell", d.text("cell", &c.Cell))},
		field{"expect", true, expected},
		field{"rule", false, d.text("rule", &c.Rule)},
		field{"errno", false, note("errno", func(n *node) {
			d.text("errno", &c.Errno)(n)
			if d.err == nil && !isErrno(c.Errno) {
				d.fail(n.line, fmt.Sprintf("errno %q", c.Errno), "write the name that errno(3) has for it, such as EACCES")
			}
		})},
		field{"role", false, note("role", word(d, "role", &c.Role, Roles...))},
		field{"purpose", false, note("purpose", word(d, "purpose", &c.Purpose, Purposes...))})
	if d.err != nil {
		return c
	}
	denies := false
	for _, e := range c.Expect {
		denies = denies || e == Deny
	}
	tool := len(c.Op) > 0 && c.Op[0] == "tool"
	switch {
	case of["op"] == of["cell"]:
		d.fail(n.line, "a case has neither or both of op and cell", "keep one of them")
	case of["errno"] && !denies:
		d.fail(n.line, "errno without an expected denial", "leave it out: what is allowed ends in no error")
	case c.Cell != "" && c.Rule != "" && !denies:
		d.fail(n.line, "rule of a cell that is allowed", "leave it out: many rules may allow what a cell does")
	case of["errno"] && tool:
		d.fail(n.line, "errno of a host call", "leave it out: the launcher refuses it, not Linux")
	case (of["role"] || of["purpose"]) && !tool:
		d.fail(n.line, "role and purpose belong to host calls", "leave them out")
	}
	if c.Name == "" {
		c.Name = strings.Join(c.Op, " ")
		if c.Cell != "" {
			c.Name = fmt.Sprintf("cell on line %d", n.line)
		}
	}
	return c
}

// caseOp reads an operation: a text whose words are parted by blanks, or a list, for
// names that hold some.
func (d *decoder) caseOp(n *node) []string {
	var words []string
	switch n.kind {
	case textNode:
		words = strings.Fields(n.text)
		if rest, tool := strings.CutPrefix(n.text, "tool "); tool {
			name, arguments, _ := strings.Cut(strings.TrimSpace(rest), " ")
			words = []string{"tool", name}
			if arguments = strings.TrimSpace(arguments); arguments != "" {
				words = append(words, arguments)
			}
		}
	case listNode:
		for _, part := range n.list {
			if part.kind != textNode && part.kind != numberNode {
				d.fail(part.line, "a word of op is "+part.show(), "write text")
			}
			words = append(words, part.text)
		}
	default:
		d.fail(n.line, "op is "+n.show(), "write the operation's word and its path, such as: write /etc/hosts")
	}
	if d.err != nil {
		return nil
	}
	at := -1
	if len(words) > 0 {
		at = slices.IndexFunc(CaseOps, func(o struct{ Word, Arguments string }) bool { return o.Word == words[0] })
	}
	if at < 0 {
		var known []string
		for _, o := range CaseOps {
			known = append(known, o.Word)
		}
		d.fail(n.line, fmt.Sprintf("op %q", strings.Join(words, " ")), "begin it with one of "+strings.Join(known, ", "))
		return nil
	}
	takes := CaseOps[at].Arguments
	given, most := len(words)-1, strings.Count(takes, " ")+1
	least := most
	if strings.Contains(takes, "[") {
		least--
	}
	if given < least || given > most {
		d.fail(n.line, fmt.Sprintf("op %q", strings.Join(words, " ")), "write "+words[0]+" "+takes)
		return nil
	}
	d.caseArguments(n.line, words)
	return words
}

func (d *decoder) caseArguments(line int, words []string) {
	switch words[0] {
	case "tool":
		if !toolPattern.MatchString(words[1]) || strings.HasSuffix(words[1], "*") {
			d.fail(line, fmt.Sprintf("tool %q", words[1]), "write a name such as ns.name")
		}
		if len(words) > 2 && !json.Valid([]byte(words[2])) {
			d.fail(line, "the arguments of the host call are not JSON", "write an object, such as {\"path\": \"/x\"}")
		}
	case "connect":
		if _, err := netip.ParseAddrPort(words[1]); err != nil {
			d.fail(line, fmt.Sprintf("target %q", words[1]), "write an address and a port, such as 192.0.2.1:443; a name is asked for in a cell")
		}
	case "bind":
		if port, err := strconv.Atoi(words[1]); err != nil || port < 1 || port > 65535 {
			d.fail(line, fmt.Sprintf("port %q", words[1]), "write a number from 1 to 65535")
		}
	default:
		for i, p := range words[1:] {
			clean := strings.TrimSuffix(p, "/")
			if strings.ContainsAny(p, "*?[") && strings.HasPrefix(p, "/") && path.Clean(p) == clean {
				continue // a file may be called so; a rule cannot name it
			}
			d.path(line, p)
			if clean != "" && !strings.HasPrefix(p, "${state}") {
				words[i+1] = clean
			}
		}
	}
}
