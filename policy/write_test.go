package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cellblock/policy"
)

// bare is a document without the lines on which its parts stand.
func bare(doc policy.Document) policy.Document {
	clear := reflect.ValueOf(&doc).Elem()
	var walk func(reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if name := v.Type().Field(i).Name; name == "Line" || name == "File" {
					v.Field(i).SetZero()
				} else {
					walk(v.Field(i))
				}
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				value := reflect.New(v.Type().Elem()).Elem()
				value.Set(v.MapIndex(key))
				walk(value)
				v.SetMapIndex(key, value)
			}
		}
	}
	walk(clear)
	return doc
}

const everyPart = `version: 1
name: "every part: of \"it\""
description: "a # and a \u2028 line"
fs:
  defaults:
    read: {effect: deny, mode: report, reason: "yes"}
    exec: {effect: allow, reason: "null"}
  rules:
    - {path: "${session}/x y/", access: [read, exec], effect: allow, reason: "it's: - {fine}"}
    - {id: two, path: /, access: [create, remove], effect: deny, mode: enforce, reason: r}
net:
  mode: allow
  allow:
    - {host: "*.example.com", port: [80, 443], reason: r}
    - {id: any, host: 192.0.2.0/24, port: any, reason: r}
  inbound:
    - {name: web, port: 8080, reason: r}
process: {tasks: 12}
tools:
  default: allow
  rules:
    - {tool: a.b, roles: [extension], purposes: [eval], schema: {type: object, properties: {n: {type: integer, minimum: 2}}}, limits: {calls: 3, argument-bytes: 9}, effect: allow, reason: r}
    - {id: no, tool: c.*, effect: deny, reason: r}
  rego: {module: "package x\n\nallow := true\n", query: data.x.allow, reason: r}
limits: {memory: 1000000, wall: 90s, tmp: {value: 64MiB, reason: r}}
env:
  pass: [TZ, {name: "OMP_*", reason: r}]
  set: {A: "1", B: {value: "", reason: "no value"}}
`

// TestADocumentIsWrittenAsItIsRead: what YAML writes is the same document.
func TestADocumentIsWrittenAsItIsRead(t *testing.T) {
	texts := map[string]string{"every part": strings.Replace(everyPart, "path: /,", "path: /srv,", 1)}
	texts["every part"] = strings.Replace(texts["every part"], "access: [create, remove], effect: deny, mode: enforce", "access: [create, remove], effect: allow", 1)
	files, err := filepath.Glob("../profiles/policies/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatal(err, files)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[f] = string(text)
	}
	for name, text := range texts {
		doc, err := policy.Parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		written := doc.YAML(map[string][]string{"": {"top"}, "two": {"a\nname: forged"}, "session": {"b\u2028c: d"}})
		again, err := policy.Parse(name, written)
		if err != nil {
			t.Fatalf("%v\n%s", err, written)
		}
		if !reflect.DeepEqual(bare(doc), bare(again)) {
			t.Errorf("%s: the same document is not what was written:\n%s", name, written)
		}
		if !strings.HasPrefix(string(written), "# top\n") {
			t.Errorf("no comment at the top:\n%s", written)
		}
	}
}

// FuzzYAML: texts of any origin go into a suggested policy's reasons and paths.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{"plain", "a: b", "# c", "\u2028", "\u0080\u0085\u0088\u009f\u00a0", "\ufffe\uffff\U0010ffff", "\x7f", "\ufeff", "\"\\", "${x}", "é\U0001f600", "\xff", "- a\tb", "a\nb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		doc := policy.Document{Version: 1, Name: "n", FS: policy.FSPart{Rules: []policy.FSRule{
			{ID: "a", Path: "/x", Access: policy.AccessRead, Effect: policy.Allow, Reason: text}}}}
		again, err := policy.Parse("f", doc.YAML(map[string][]string{"": {text}, "a": {text}}))
		if err != nil {
			var refused *policy.Error
			// Reasons may not be empty or hold control characters; that, and no other
			// document, is what may come of it.
			if !errors.As(err, &refused) || !strings.Contains(refused.What, "reason") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if len(again.FS.Rules) != 1 || again.FS.Rules[0].Reason != string([]rune(text)) {
			t.Fatalf("%q came back as %+v", text, again.FS.Rules)
		}
	})
}
