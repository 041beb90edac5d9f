package host

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cellblock/policy/schema"
)

// entry is a tool in the door's table.
type entry struct {
	Tool
	owner  string
	schema *schema.Schema // nil takes any arguments
}

var toolName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// Reserved are the names that are the launcher's own, with all beneath them.
var reserved = []string{"input", "host", "workspace", "evidence", "maintenance"}

// BuiltIn is the owner of the methods that every session has.
const BuiltIn = "built-in"

// keywords are the words that Python takes for no name.
var keywords = strings.Fields("False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield")

// Set replaces the tools of one owner, such as the host or the extensions, all or
// none. Calls that are being carried out go on. The error names the tool, and says
// what is wrong with it.
func (d *Door) Set(owner string, tools []Tool) error {
	fresh := map[string]*entry{}
	for _, t := range tools {
		e, err := newEntry(owner, t)
		if err != nil {
			return fmt.Errorf("tool %q: %w", t.Name, err)
		}
		if fresh[t.Name] != nil {
			return fmt.Errorf("tool %q: there are two of this name", t.Name)
		}
		fresh[t.Name] = e
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next := maps.Clone(d.tools)
	maps.DeleteFunc(next, func(_ string, e *entry) bool { return e.owner == owner })
	for name, e := range fresh {
		if other := next[name]; other != nil {
			return fmt.Errorf("tool %q: there is one of this name, of %s", name, other.owner)
		}
		next[name] = e
	}
	for name := range next {
		for at := strings.LastIndexByte(name, '.'); at > 0; at = strings.LastIndexByte(name[:at], '.') {
			if space := name[:at]; next[space] != nil {
				return fmt.Errorf("tool %q: %q is a tool, and no namespace", name, space)
			}
		}
	}
	d.tools = next
	return nil
}

// Tools lists the table by name, but for those of the given owners.
func (d *Door) Tools(without ...string) []Tool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Tool
	for _, name := range slices.Sorted(maps.Keys(d.tools)) {
		if e := d.tools[name]; !slices.Contains(without, e.owner) {
			out = append(out, e.Tool)
		}
	}
	return out
}

func newEntry(owner string, t Tool) (*entry, error) {
	if !toolName.MatchString(t.Name) || len(t.Name) > 255 {
		return nil, fmt.Errorf("a name is made of identifiers joined by dots, at most 255 characters")
	}
	parts := strings.Split(t.Name, ".")
	if owner != BuiltIn && slices.Contains(reserved, parts[0]) {
		return nil, fmt.Errorf("names in %s are the launcher's own", parts[0])
	}
	for _, part := range parts {
		if slices.Contains(keywords, part) || strings.HasPrefix(part, "__") {
			return nil, fmt.Errorf("%q cannot be written in Python", part)
		}
	}
	for _, r := range t.Roles {
		if r != RoleSandbox && r != RoleExtension {
			return nil, fmt.Errorf("there is no role %q", r)
		}
	}
	for _, p := range t.Purposes {
		if !p.Known() {
			return nil, fmt.Errorf("there is no purpose %q", p)
		}
	}
	e := &entry{Tool: t, owner: owner}
	if len(t.Schema) == 0 {
		return e, nil
	}
	var err error
	if owner == BuiltIn {
		e.schema, err = builtInSchema(string(t.Schema))
	} else {
		e.schema, err = compileSchema(t.Schema)
	}
	return e, err
}

func compileSchema(text json.RawMessage) (*schema.Schema, error) {
	s, err := schema.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if t := s.Type(); t != "" && t != "object" {
		return nil, fmt.Errorf("schema: arguments are an object, and it wants type %s", t)
	}
	return s, nil
}

// builtInSchemas are compiled once: every session has them, and compiling them was a third
// of opening one.
var builtInSchemas sync.Map // text -> *schema.Schema

func builtInSchema(text string) (*schema.Schema, error) {
	if known, ok := builtInSchemas.Load(text); ok {
		return known.(*schema.Schema), nil
	}
	made, err := compileSchema(json.RawMessage(text))
	if err == nil {
		builtInSchemas.Store(text, made)
	}
	return made, err
}

// readArguments reads the arguments of a call, or says why they are none.
func readArguments(text json.RawMessage) (value schema.Value, why string) {
	value, err := schema.Read(text)
	switch {
	case err != nil:
		return value, err.Error()
	case !value.IsObject():
		return value, "they are no object"
	}
	return value, ""
}

// mismatch says what keeps the arguments from being the tool's; empty for nothing.
func (e *entry) mismatch(arguments schema.Value) string {
	if e.schema == nil {
		return ""
	}
	if err := e.schema.Check(arguments); err != nil {
		return err.Error()
	}
	return ""
}
