package policy

import (
	"fmt"
	"path"
	"strings"
)

func (d *decoder) fs(n *node, to *FSPart) {
	d.mapping(n, "fs",
		field{"defaults", false, func(n *node) {
			d.mapping(n, "fs.defaults",
				field{"read", false, d.standard("fs.defaults.read", &to.Defaults.Read)},
				field{"write", false, d.standard("fs.defaults.write", &to.Defaults.Write)},
				field{"exec", false, d.standard("fs.defaults.exec", &to.Defaults.Exec)})
		}},
		field{"rules", false, d.each("fs.rules", func(n *node) {
			r := d.fsRule(n, len(to.Rules)+1)
			to.Rules = append(to.Rules, r)
		})})
	if read, write := to.Defaults.Read, to.Defaults.Write; read != nil && read.Effect == Deny && write != nil && write.Effect == Allow {
		d.fail(write.Line, "fs.defaults allow writing what may not be read", "deny writing by default as well, and allow it path by path")
	}
}

func (d *decoder) standard(what string, to **Default) func(*node) {
	return func(n *node) {
		v := &Default{Line: n.line}
		d.mapping(n, what,
			field{"effect", true, word(d, what+".effect", &v.Effect, Allow, Deny)},
			field{"mode", false, word(d, what+".mode", &v.Mode, Enforce, Report)},
			field{"reason", true, d.text(what+".reason", &v.Reason)})
		if v.Effect == Allow && v.Mode != "" {
			d.fail(n.line, what+": an allow has no mode", "leave mode out: there is nothing to enforce")
		}
		*to = v
	}
}

func (d *decoder) fsRule(n *node, number int) FSRule {
	r := FSRule{Line: n.line}
	d.mapping(n, "a rule of fs",
		field{"id", false, d.text("id", &r.ID)},
		field{"path", true, func(n *node) {
			d.text("path", &r.Path)(n)
			if d.err == nil {
				d.path(n.line, r.Path)
			}
		}},
		field{"access", true, func(n *node) {
			if n.kind == textNode {
				n = &node{kind: listNode, line: n.line, list: []*node{n}}
			}
			d.each("access", func(n *node) {
				a, err := ParseAccess(n.text)
				if n.kind != textNode || err != nil {
					d.fail(n.line, "access is "+n.show(), "choose from read, write, exec, modify, create, remove")
				}
				r.Access |= a
			})(n)
			if r.Access == 0 {
				d.fail(n.line, "access is an empty list", "choose from read, write, exec, modify, create, remove")
			}
		}},
		field{"effect", true, word(d, "effect", &r.Effect, Allow, Deny)},
		field{"mode", false, word(d, "mode", &r.Mode, Enforce, Report)},
		field{"reason", true, d.text("reason", &r.Reason)})
	if d.err != nil {
		return r
	}
	r.ID = d.id(n, r.ID, fmt.Sprintf("fs.%d", number))
	part := r.Access & AccessWrite
	switch {
	case r.Effect == Deny && part != 0 && part != AccessWrite:
		d.fail(n.line, "deny of "+part.String()+" alone: Linux has no means to refuse it and allow other changes at the same place",
			"deny write, and allow the parts that stay where they are needed")
	case r.Effect == Allow && r.Mode != "":
		d.fail(n.line, "an allow has no mode: it is the default's denial that is enforced or reported", "leave mode out, or set it in fs.defaults")
	}
	return r
}

// Variables of paths.
var variables = []string{"${session}", "${tmp}", "${home}", "${state}"}

// path checks what can be checked without values: it begins with / or with a
// variable, is clean, and has no pattern.
func (d *decoder) path(line int, p string) {
	rest := p
	for _, v := range variables {
		if after, ok := strings.CutPrefix(p, v); ok {
			rest = after
			if rest == "" {
				return
			}
		}
	}
	switch {
	case strings.Contains(rest, "${"):
		d.fail(line, fmt.Sprintf("path %q has an unknown variable, or one that is not at its beginning", p), "use "+strings.Join(variables, ", ")+" at the beginning")
	case !strings.HasPrefix(rest, "/"):
		d.fail(line, fmt.Sprintf("path %q is not absolute", p), "begin it with / or with one of "+strings.Join(variables, ", "))
	case strings.ContainsAny(rest, "*?[\n\t"):
		d.fail(line, fmt.Sprintf("path %q has a pattern: a rule covers its path and all beneath, and Linux has nothing for patterns", p), "name the directory")
	case rest != "/" && path.Clean(rest) != strings.TrimSuffix(rest, "/"):
		d.fail(line, fmt.Sprintf("path %q is not clean", p), "write "+strings.TrimSuffix(p, rest)+path.Clean(rest))
	}
}
