package policy

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"cellblock/policy/schema"
)

var (
	toolPattern    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*(\.\*)?$`)
	envPattern     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	envPassPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\*?$`)
)

// Roles and purposes that a rule of tools may name.
var (
	Roles    = []string{"sandbox", "extension"}
	Purposes = []string{"interactive", "maintenance", "eval"}
)

func (d *decoder) tools(n *node, to *ToolsPart) {
	to.Line = n.line
	d.mapping(n, "tools",
		field{"default", false, word(d, "tools.default", &to.Default, Allow, Deny)},
		field{"rules", false, d.each("tools.rules", func(n *node) {
			to.Rules = append(to.Rules, d.toolRule(n, len(to.Rules)+1))
		})},
		field{"rego", false, func(n *node) { to.Rego = d.rego(n) }})
}

func (d *decoder) toolRule(n *node, number int) ToolRule {
	r := ToolRule{Line: n.line}
	words := func(what string, to *[]string, choices []string) func(*node) {
		return d.each(what, func(n *node) {
			var w string
			word(d, what, &w, choices...)(n)
			*to = append(*to, w)
		})
	}
	d.mapping(n, "a rule of tools",
		field{"id", false, d.text("id", &r.ID)},
		field{"tool", true, func(n *node) {
			d.text("tool", &r.Tool)(n)
			if d.err == nil && !toolPattern.MatchString(r.Tool) {
				d.fail(n.line, fmt.Sprintf("tool %q", r.Tool), "write a name such as ns.name, or ns.* for all beneath ns")
			}
		}},
		field{"roles", false, words("roles", &r.Roles, Roles)},
		field{"purposes", false, words("purposes", &r.Purposes, Purposes)},
		field{"schema", false, func(n *node) {
			if n.kind != mapNode {
				d.fail(n.line, "schema is "+n.show(), "write a JSON Schema as a mapping")
				return
			}
			text, err := json.Marshal(n.plain())
			if err == nil {
				_, err = schema.Strict(text)
			}
			if err != nil {
				d.fail(n.line, "schema: "+err.Error(), "write a JSON Schema of draft 2020-12 without references to other documents")
				return
			}
			r.Schema = text
		}},
		field{"limits", false, func(n *node) {
			d.mapping(n, "limits of a tool",
				field{"calls", false, d.number("calls", 1<<53, func(v int64) { r.Limits.Calls = v })},
				field{"argument-bytes", false, d.number("argument-bytes", 1<<53, func(v int64) { r.Limits.ArgumentBytes = v })})
		}},
		field{"effect", true, word(d, "effect", &r.Effect, Allow, Confirm, Deny)},
		field{"reason", true, d.text("reason", &r.Reason)})
	if d.err != nil {
		return r
	}
	r.ID = d.id(n, r.ID, fmt.Sprintf("tools.%d", number))
	if r.Effect == Deny && r.Limits != (ToolLimits{}) {
		d.fail(n.line, "a deny with limits", "put limits on an allow: what is denied has none")
	}
	return r
}

func (d *decoder) rego(n *node) *Rego {
	r := &Rego{Line: n.line}
	d.mapping(n, "tools.rego",
		field{"module", false, d.text("module", &r.Module)},
		field{"files", false, d.each("files", func(n *node) {
			var f string
			d.text("a file of rego", &f)(n)
			if d.err == nil && (path.Clean(f) != f || strings.HasPrefix(f, "../") || f == ".." || f == ".") {
				d.fail(n.line, fmt.Sprintf("file %q", f), "name a file beside the document or below it, or an absolute path")
			}
			r.Files = append(r.Files, f)
		})},
		field{"query", true, d.text("query", &r.Query)},
		field{"reason", true, d.text("reason", &r.Reason)})
	if d.err == nil && (r.Module == "") == (len(r.Files) == 0) {
		d.fail(n.line, "tools.rego has neither or both of module and files", "keep one of them")
	}
	if r.Module != "" {
		return r.WithSources([]RegoSource{{Name: "module", Text: r.Module}})
	}
	return r
}

// reasoned reads a value that stands alone, or as {value: …, reason: …}.
func (d *decoder) reasoned(n *node, what, key string, reason *string, read func(*node)) {
	if n.kind != mapNode {
		read(n)
		return
	}
	d.mapping(n, what, field{key, true, read}, field{"reason", false, d.text("reason", reason)})
}

func (d *decoder) limits(n *node, what string, names []string, to *map[string]LimitEntry) {
	var fields []field
	*to = map[string]LimitEntry{}
	for _, name := range names {
		fields = append(fields, field{name, false, func(n *node) {
			e := LimitEntry{Line: n.line}
			d.reasoned(n, "limit "+name, "value", &e.Reason, func(n *node) {
				if n.kind != textNode && n.kind != numberNode {
					d.fail(n.line, fmt.Sprintf("limit %s is %s", name, n.show()), "write a number with its unit")
					return
				}
				v, err := ParseLimit(name, n.text)
				if err != nil {
					d.fail(n.line, fmt.Sprintf("limit %s: %v", name, err), "leave it out for no limit")
				}
				e.Value = v
			})
			(*to)[name] = e
		}})
	}
	d.mapping(n, what, fields...)
	if len(*to) == 0 {
		*to = nil
	}
}

func (d *decoder) env(n *node, to *EnvPart) {
	d.mapping(n, "env",
		field{"pass", false, d.each("env.pass", func(n *node) {
			e := EnvPass{Line: n.line}
			d.reasoned(n, "a variable of env.pass", "name", &e.Reason, func(n *node) {
				d.text("name", &e.Name)(n)
				if d.err == nil && !envPassPattern.MatchString(e.Name) {
					d.fail(n.line, fmt.Sprintf("variable %q", e.Name), "write a name, or its beginning and a *")
				}
			})
			if slices.ContainsFunc(to.Pass, func(p EnvPass) bool { return p.Name == e.Name }) && d.err == nil {
				d.fail(n.line, fmt.Sprintf("variable %q stands twice", e.Name), "keep one of them")
			}
			to.Pass = append(to.Pass, e)
		})},
		field{"set", false, func(n *node) {
			if n.kind != mapNode {
				d.fail(n.line, "env.set is "+kindNames[n.kind], "write a mapping of names to values")
				return
			}
			to.Set = map[string]EnvValue{}
			for i, key := range n.keys {
				if !envPattern.MatchString(key.text) {
					d.fail(key.line, fmt.Sprintf("variable %q", key.text), "write a name of letters, digits and underscores")
				}
				e := EnvValue{Line: key.line}
				d.reasoned(n.list[i], "a variable of env.set", "value", &e.Reason, func(n *node) {
					switch {
					case n.kind != textNode:
						d.fail(n.line, fmt.Sprintf("variable %s is %s", key.text, kindNames[n.kind]), "write text, in quotes where it looks like something else")
					case strings.ContainsRune(n.text, 0):
						d.fail(n.line, fmt.Sprintf("variable %s holds a zero byte", key.text), "take it out")
					}
					e.Value = n.text
				})
				to.Set[key.text] = e
			}
			if len(to.Set) == 0 {
				to.Set = nil
			}
		}})
}
