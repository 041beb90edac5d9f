package policy

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everything is a document that uses every key.
const everything = `version: 1
name: everything
description: every key there is
fs:
  defaults:
    read: {effect: allow, reason: r}
    write: {effect: deny, mode: enforce, reason: r}
    exec: {effect: deny, mode: report, reason: r}
  rules:
    - {path: "${session}", access: write, effect: allow, reason: r}
    - {id: inbox, path: /srv/inbox, access: [create, modify], effect: allow, reason: r}
    - {id: keys, path: "${home}/.ssh/", access: [read, write, exec], effect: deny, mode: enforce, reason: r}
net:
  mode: allow
  reason: r
  allow:
    - {host: PyPI.org., port: 443, reason: r}
    - {id: all, host: "*.example.com", port: [80, 443], reason: r}
    - {host: 10.1.0.0/16, port: any, reason: r}
    - {host: "::1", port: 8080, reason: r}
  inbound:
    - {name: web, port: 8000, reason: r}
process: {tasks: 64}
tools:
  default: deny
  rules:
    - tool: files.read
      roles: [sandbox]
      purposes: [interactive, eval]
      schema: {type: object, properties: {path: {type: string, maxLength: 0x10}}, required: [path]}
      limits: {calls: 10, argument-bytes: 1000}
      effect: allow
      reason: r
    - {id: none, tool: "files.*", effect: deny, reason: r}
  rego: {module: "package x", query: data.x.allow, reason: r}
limits:
  memory: 2GiB
  open-files: {value: 64, reason: r}
  file-size: 1048576
  cpu: 30
  tmp: 1MiB
  shadow: 1GiB
  output: 64MiB
  wall: 10m
env:
  pass: [TZ, {name: "OMP_*", reason: r}]
  set: {A: "1", B: {value: "", reason: r}}
`

func parse(t testing.TB, text string) Document {
	t.Helper()
	doc, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestEveryKeyIsRead(t *testing.T) {
	doc := parse(t, everything)
	if doc.FS.Rules[1].Access != AccessCreate|AccessModify || doc.FS.Rules[1].Line != 11 {
		t.Errorf("second rule: %+v", doc.FS.Rules[1])
	}
	for got, want := range map[string]string{
		doc.Net.Allow[0].Host: "pypi.org",
		doc.Net.Allow[2].Host: "10.1.0.0/16",
		doc.Net.Allow[3].Host: "::1",
		doc.Tools.Rego.Query:  "data.x.allow",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if doc.Limits["wall"].Value != 600 || doc.Limits["memory"].Value != 2<<30 || doc.Limits["file-size"].Value != 1<<20 || doc.Process["tasks"].Value != 64 {
		t.Errorf("limits: %+v %+v", doc.Limits, doc.Process)
	}
	if doc.Env.Pass[1].Name != "OMP_*" || doc.Env.Set["A"].Value != "1" {
		t.Errorf("env: %+v", doc.Env)
	}
}

// TestADocumentIsOneAgainAsJSON: what marshalling writes, Parse reads to the same
// value, so that programs can write documents.
func TestADocumentIsOneAgainAsJSON(t *testing.T) {
	doc := parse(t, everything)
	text, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("test.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(shape(t, doc), shape(t, again)); diff != "" {
		t.Errorf("reading it again changes it:\n%s", diff)
	}
}

// shape is a document without lines.
func shape(t testing.TB, d Document) string {
	t.Helper()
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestBadDocuments: each document in testdata/bad begins with a comment that is
// its golden error. JSON has no comments; there it is the value of a first line
// in a file beside it.
func TestBadDocuments(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.*")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d bad documents, %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".error") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		golden := strings.TrimSuffix(file, filepath.Ext(file)) + ".error"
		_, err = Parse(filepath.Base(file), text)
		if err == nil {
			t.Errorf("%s is taken", file)
			continue
		}
		if *update {
			if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, errRead := os.ReadFile(golden)
		if errRead != nil {
			t.Fatal(errRead)
		}
		if err.Error()+"\n" != string(want) {
			t.Errorf("%s\n gives %s\n want  %s", file, err, want)
		}
	}
}

func TestBuiltInPolicies(t *testing.T) {
	files, err := filepath.Glob("../profiles/policies/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d policies, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := Parse(file, text)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSuffix(filepath.Base(file), ".yaml"); doc.Name != want {
			t.Errorf("%s calls itself %q", file, doc.Name)
		}
		for name, l := range doc.Limits {
			if l.Reason == "" {
				t.Errorf("%s: limit %s has no reason", file, name)
			}
		}
		for _, v := range doc.Env.Pass {
			if v.Reason == "" {
				t.Errorf("%s: variable %s has no reason", file, v.Name)
			}
		}
		for _, mode := range []Mode{Off, Report, Enforce} {
			p, _, err := Compile(doc, Facts{Mode: mode, SessionDir: "/srv/s1", Home: "/home/ann", State: []string{"/home/ann/.local/state/cellblock"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"/home/ann/.ssh/id", "/etc/shadow", "/home/ann/.aws/credentials", "/home/ann/.local/state/cellblock/x"} {
				if d := p.Decide(Op{Kind: Read, Path: secret}); d.Allowed() || !d.Enforced {
					t.Errorf("%s, mode %s: reading %s: %+v", file, mode, secret, d)
				}
			}
			if d := p.Decide(Op{Kind: Create, Path: "/srv/s1/x"}); !d.Allowed() {
				t.Errorf("%s, mode %s: the session directory: %+v", file, mode, d)
			}
			if d := p.Decide(Op{Kind: Write, Path: "/etc/hosts"}); d.Allowed() || d.Enforced != (mode == Enforce) {
				t.Errorf("%s, mode %s: /etc/hosts: %+v", file, mode, d)
			}
		}
	}
}

// FuzzParse: no text makes the decoder panic, and what it takes once it takes
// again when written out.
func FuzzParse(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("version: 1\nname: x\nfs: {}\n"))
	f.Add([]byte(`{"version": 1, "name": "x", "fs": {"rules": [{"path": "/a", "access": "write", "effect": "deny", "reason": "r"}]}}`))
	f.Add([]byte("a: &x [*x]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := Parse("f", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "policy f:") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		again, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Parse("f", again)
		if err != nil {
			t.Fatalf("what was taken is refused when written out: %v\n%s", err, again)
		}
		if a, b := shape(t, doc), shape(t, second); a != b {
			t.Errorf("reading again changes\n%s\nto\n%s", a, b)
		}
		written := doc.YAML(nil)
		third, err := Parse("f", written)
		if err != nil {
			t.Fatalf("what was taken is refused when written as YAML: %v\n%s", err, written)
		}
		if a, b := shape(t, doc), shape(t, third); a != b {
			t.Errorf("writing as YAML changes\n%s\nto\n%s", a, b)
		}
		for _, mode := range []Mode{Report, Enforce} {
			p, _, err := Compile(doc, Facts{Mode: mode, SessionDir: "/srv/s1", Home: "/home/ann"})
			if err == nil {
				p.Decide(Op{Kind: Write, Path: "/srv/s1/x"})
				p.Digest()
			}
		}
	})
}
