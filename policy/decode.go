package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Parse reads a document strictly. An unknown key, a wrong type, a key that
// stands twice and a value that cannot be are errors of type [*Error], which
// name the line; file is the name they give. Nothing but text is read.
func Parse(file string, text []byte) (Document, error) {
	root, err := scan(file, text)
	if err != nil {
		return Document{}, err
	}
	d := &decoder{file: file, ids: map[string]int{}}
	doc := d.document(root)
	if d.err != nil {
		return Document{}, d.err
	}
	doc.File = file
	return doc, nil
}

// decoder reads nodes. After the first error it reads on without effect, so that
// no step needs to look.
type decoder struct {
	file string
	err  error
	ids  map[string]int // rule id → line
}

func (d *decoder) fail(line int, what, do string) {
	if d.err == nil {
		d.err = &Error{File: d.file, Line: line, What: what, Do: do}
	}
}

// field reads one key's value.
type field struct {
	key      string
	required bool
	read     func(*node)
}

// mapping reads a mapping whose keys are all known.
func (d *decoder) mapping(n *node, what string, fields ...field) {
	if n.kind != mapNode {
		d.fail(n.line, fmt.Sprintf("%s is %s", what, kindNames[n.kind]), "write a mapping with the keys "+keyList(fields))
		return
	}
	for i, key := range n.keys {
		at := slices.IndexFunc(fields, func(f field) bool { return f.key == key.text })
		if at < 0 {
			d.fail(key.line, fmt.Sprintf("unknown key %q in %s", key.text, what), "choose from "+keyList(fields))
			return
		}
		fields[at].read(n.list[i])
	}
	for _, f := range fields {
		if f.required && !slices.ContainsFunc(n.keys, func(k *node) bool { return k.text == f.key }) {
			d.fail(n.line, fmt.Sprintf("%s has no %s", what, f.key), "add the key "+f.key)
			return
		}
	}
}

func keyList(fields []field) string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return strings.Join(keys, ", ")
}

// each reads the parts of a list.
func (d *decoder) each(what string, read func(*node)) func(*node) {
	return func(n *node) {
		if n.kind != listNode {
			d.fail(n.line, fmt.Sprintf("%s is %s", what, kindNames[n.kind]), "write a list")
			return
		}
		for _, part := range n.list {
			read(part)
		}
	}
}

// text reads a text without control characters.
func (d *decoder) text(what string, to *string) func(*node) {
	return func(n *node) {
		switch {
		case n.kind != textNode:
			d.fail(n.line, fmt.Sprintf("%s is %s", what, kindNames[n.kind]), "write text, in quotes where it looks like something else")
		case strings.TrimSpace(n.text) == "":
			d.fail(n.line, what+" is empty", "write it, or leave the key out where it may be")
		case strings.ContainsFunc(n.text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }):
			d.fail(n.line, what+" holds a control character", "take it out")
		default:
			*to = n.text
		}
	}
}

// word reads a text that is one of a closed set.
func word[T ~string](d *decoder, what string, to *T, choices ...T) func(*node) {
	return func(n *node) {
		if n.kind == textNode && slices.Contains(choices, T(n.text)) {
			*to = T(n.text)
			return
		}
		all := make([]string, len(choices))
		for i, c := range choices {
			all[i] = string(c)
		}
		d.fail(n.line, fmt.Sprintf("%s is %s", what, n.show()), "choose from "+strings.Join(all, ", "))
	}
}

// show is a node in a message.
func (n *node) show() string {
	if n.kind == listNode || n.kind == mapNode || n.kind == nullNode {
		return kindNames[n.kind]
	}
	if n.kind == textNode {
		return strconv.Quote(n.text)
	}
	return n.text
}

// number reads an integer from 1 to high.
func (d *decoder) number(what string, high int64, to func(int64)) func(*node) {
	return func(n *node) {
		v, err := strconv.ParseInt(n.text, 10, 64)
		if n.kind != numberNode || err != nil || v < 1 || v > high {
			d.fail(n.line, fmt.Sprintf("%s is %s", what, n.show()), fmt.Sprintf("write a whole number from 1 to %d", high))
			return
		}
		to(v)
	}
}

// id reads the name of a rule, or makes one up. Each is there once.
func (d *decoder) id(n *node, given, made string) string {
	id, line := given, n.line
	if id == "" {
		id = made
	} else if !isID(id) || strings.HasPrefix(id, "ground.") || strings.HasPrefix(id, "default.") {
		d.fail(line, fmt.Sprintf("id %q", id), "use up to 64 lower-case letters, digits, dots and dashes; not ground. or default. at the beginning, which are the jail's own")
	}
	if first, ok := d.ids[id]; ok {
		d.fail(line, fmt.Sprintf("id %q stands twice, first on line %d", id, first), "give each rule a name of its own")
	}
	d.ids[id] = line
	return given
}

func (d *decoder) document(n *node) Document {
	var doc Document
	version := int64(-1)
	d.mapping(n, "the document",
		field{"version", true, d.number("version", Version, func(v int64) { version = v })},
		field{"name", true, d.text("name", &doc.Name)},
		field{"description", false, d.text("description", &doc.Description)},
		field{"fs", true, func(n *node) { d.fs(n, &doc.FS) }},
		field{"net", false, func(n *node) { d.net(n, &doc.Net) }},
		field{"process", false, func(n *node) { d.limits(n, "process", []string{"tasks"}, &doc.Process) }},
		field{"tools", false, func(n *node) { d.tools(n, &doc.Tools) }},
		field{"limits", false, func(n *node) { d.limits(n, "limits", LimitNames(), &doc.Limits) }},
		field{"env", false, func(n *node) { d.env(n, &doc.Env) }},
	)
	doc.Version = int(version)
	if again, twice := doc.Limits["tasks"]; twice && doc.Process != nil {
		d.fail(again.Line, "limit tasks stands in process and in limits", "keep one of them")
	}
	return doc
}
