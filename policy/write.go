package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// YAML writes a document that Parse reads to the same one, in a form that is made to
// be read: a rule a line. Comments are lines that stand above the rule of their id;
// those of the id "" stand at the top.
func (d Document) YAML(comments map[string][]string) []byte {
	w := &writer{comments: comments}
	w.above("", "")
	w.line("version: %d", d.Version)
	w.line("name: %s", quote(d.Name))
	if d.Description != "" {
		w.line("description: %s", quote(d.Description))
	}
	w.files(d.FS)
	w.network(d.Net)
	if len(d.Process) > 0 {
		w.limits("process", d.Process)
	}
	w.tools(d.Tools)
	if len(d.Limits) > 0 {
		w.limits("limits", d.Limits)
	}
	w.env(d.Env)
	return w.out.Bytes()
}

type writer struct {
	out      bytes.Buffer
	comments map[string][]string
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(&w.out, format+"\n", args...) }

// above writes the comments of an id. What they quote may be of any origin, and a
// line feed would end a comment.
func (w *writer) above(indent, id string) {
	for _, c := range w.comments[id] {
		w.line("%s", strings.TrimRight(indent+"# "+strings.Map(func(r rune) rune {
			if asItIs(r) && r != 0x2028 && r != 0x2029 {
				return r
			}
			return '\ufffd'
		}, c), " "))
	}
}

// asItIs says whether a character may stand in a YAML document and ends no line there; see
// c-printable of YAML 1.2.2, section 5.1. A byte order mark may not stand within.
func asItIs(r rune) bool {
	return r >= ' ' && r <= '~' || r >= 0xa0 && r <= 0xfffd && r != 0xfeff || r >= 0x10000
}

// quote is a text between double quotes, which YAML reads as JSON does.
func quote(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always encodes
	var escaped strings.Builder
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		if asItIs(r) {
			escaped.WriteRune(r)
		} else {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		}
	}
	return escaped.String()
}

// flow is a mapping in one line; pairs without a value are left out.
func flow(pairs ...[2]string) string {
	var parts []string
	for _, p := range pairs {
		if p[1] != "" {
			parts = append(parts, p[0]+": "+p[1])
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// text is a pair whose value is text; without a value where it is empty.
func text(key, value string) [2]string {
	if value == "" {
		return [2]string{key, ""}
	}
	return [2]string{key, quote(value)}
}

func (w *writer) files(fs FSPart) {
	var defaults []string
	for _, s := range []struct {
		name string
		d    *Default
	}{{"read", fs.Defaults.Read}, {"write", fs.Defaults.Write}, {"exec", fs.Defaults.Exec}} {
		if s.d != nil {
			defaults = append(defaults, s.name+": "+flow([2]string{"effect", string(s.d.Effect)}, [2]string{"mode", string(s.d.Mode)}, text("reason", s.d.Reason)))
		}
	}
	if len(defaults)+len(fs.Rules) == 0 {
		w.line("\nfs: {}")
		return
	}
	w.line("\nfs:")
	if len(defaults) > 0 {
		w.line("  defaults:")
		for _, d := range defaults {
			w.line("    %s", d)
		}
	}
	if len(fs.Rules) > 0 {
		w.line("  rules:")
	}
	for i, r := range fs.Rules {
		w.above("    ", r.id(i))
		w.line("    - %s", flow([2]string{"id", r.ID}, text("path", r.Path), [2]string{"access", "[" + strings.Join(r.Access.Words(), ", ") + "]"},
			[2]string{"effect", string(r.Effect)}, [2]string{"mode", string(r.Mode)}, text("reason", r.Reason)))
	}
}

func (w *writer) network(n NetPart) {
	if n.Mode == "" {
		return
	}
	w.line("\nnet:\n  mode: %s", n.Mode)
	if n.Reason != "" {
		w.line("  reason: %s", quote(n.Reason))
	}
	if len(n.Allow) > 0 {
		w.line("  allow:")
	}
	for i, r := range n.Allow {
		ports, _ := r.Ports.MarshalJSON() // numbers always marshal
		id := r.ID
		if id == "" {
			id = fmt.Sprintf("net.%d", i+1)
		}
		w.above("    ", id)
		w.line("    - %s", flow([2]string{"id", r.ID}, text("host", r.Host), [2]string{"port", string(ports)}, text("reason", r.Reason)))
	}
	if len(n.Inbound) > 0 {
		w.line("  inbound:")
	}
	for _, r := range n.Inbound {
		w.line("    - %s", flow(text("name", r.Name), [2]string{"port", fmt.Sprint(r.Port)}, text("reason", r.Reason)))
	}
}

func (w *writer) tools(t ToolsPart) {
	if t.Default == "" && len(t.Rules) == 0 && t.Rego == nil {
		return
	}
	w.line("\ntools:")
	w.line("  default: %s", orText(string(t.Default), string(Deny)))
	if len(t.Rules) > 0 {
		w.line("  rules:")
	}
	words := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	number := func(n int64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	for i, r := range t.Rules {
		id := r.ID
		if id == "" {
			id = fmt.Sprintf("tools.%d", i+1)
		}
		limits := ""
		if r.Limits != (ToolLimits{}) {
			limits = flow([2]string{"calls", number(r.Limits.Calls)}, [2]string{"argument-bytes", number(r.Limits.ArgumentBytes)})
		}
		w.above("    ", id)
		w.line("    - %s", flow([2]string{"id", r.ID}, text("tool", r.Tool), [2]string{"roles", words(r.Roles)}, [2]string{"purposes", words(r.Purposes)},
			[2]string{"schema", string(r.Schema)}, [2]string{"limits", limits}, [2]string{"effect", string(r.Effect)}, text("reason", r.Reason)))
	}
	if t.Rego == nil {
		return
	}
	var files []string
	for _, f := range t.Rego.Files {
		files = append(files, quote(f))
	}
	w.line("  rego: %s", flow(text("module", t.Rego.Module), [2]string{"files", words(files)}, text("query", t.Rego.Query), text("reason", t.Rego.Reason)))
}

func (w *writer) limits(part string, entries map[string]LimitEntry) {
	w.line("\n%s:", part)
	for _, name := range LimitNames() {
		if e, ok := entries[name]; ok {
			w.line("  %s: %s", name, flow([2]string{"value", limitText(name, e.Value)}, text("reason", e.Reason)))
		}
	}
}

func (w *writer) env(e EnvPart) {
	if len(e.Pass)+len(e.Set) == 0 {
		return
	}
	w.line("\nenv:")
	if len(e.Pass) > 0 {
		w.line("  pass:")
	}
	for _, p := range e.Pass {
		w.line("    - %s", flow(text("name", p.Name), text("reason", p.Reason)))
	}
	if len(e.Set) == 0 {
		return
	}
	w.line("  set:")
	var names []string
	for name := range e.Set {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		pairs := [][2]string{{"value", quote(e.Set[name].Value)}, text("reason", e.Set[name].Reason)}
		w.line("    %s: %s", name, flow(pairs...))
	}
}
