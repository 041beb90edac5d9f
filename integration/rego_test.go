package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cellblock/kernel"
	"cellblock/kernel/delegate"
	"cellblock/policy"
	"cellblock/policy/audit"
	"cellblock/policy/rego"
)

// builtRego builds the program that evaluates Rego beside the command. Where
// CELLBLOCK_BIN names a built command, it lies there.
var builtRego = sync.OnceValues(func() (string, error) {
	bin, err := builtBinary()
	if err != nil {
		return "", err
	}
	program := filepath.Join(filepath.Dir(bin), "cellblock-rego")
	if os.Getenv("CELLBLOCK_BIN") != "" {
		return program, nil
	}
	if out, err := exec.Command("go", "build", "-tags", "seccomp", "-o", program, "../cmd/cellblock-rego").CombinedOutput(); err != nil {
		return "", errors.New("build cmd/cellblock-rego: " + err.Error() + "\n" + string(out))
	}
	return program, nil
})

func regoProgram(t testing.TB) string {
	t.Helper()
	program, err := builtRego()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// delegating is a policy whose host calls are all delegated to a module.
func delegating(module string) option {
	return func(o *kernel.Options) {
		r := policy.Rego{Query: "data.t.d", Reason: "by the module"}
		o.Policy = &policy.Document{Version: 1, Name: "delegating", FS: policy.FSPart{Rules: []policy.FSRule{
			{ID: "session", Path: "${session}", Access: policy.AccessWrite, Effect: policy.Allow, Reason: "r"}}},
			Tools: policy.ToolsPart{Default: policy.Allow, Rego: r.WithSources([]policy.RegoSource{{Name: "t.rego", Text: "package t\n\n" + module}})}}
	}
}

// TestACellsHostCallIsDecidedByRego: the call of a real worker reaches the module, and
// what is no decision of it is a denial.
func TestACellsHostCallIsDecidedByRego(t *testing.T) {
	program := regoProgram(t)
	for _, c := range []struct{ name, module, rule, reason string }{
		{"denied", `d := {"effect": "deny", "reasons": [sprintf("%s of %s is not for %s", [input.tool, input.role, input.purpose])]}`, "tools.rego", "mail.send of sandbox is not for interactive"},
		{"allowed", `d := {"effect": "allow"}`, "host.absent", "no tool of this name"},
		{"an obligation", `d := {"effect": "allow", "obligations": ["sign"]}`, "tools.rego", "the obligation sign"},
		{"undefined", `d := {"effect": "allow"} if input.tool == "no"`, "tools.rego", "undefined"},
		{"no decision", `d := true`, "tools.rego", "no object"},
		{"an error", `d := {"effect": "allow", "reasons": [json.unmarshal("{")]}`, "tools.rego", "json.unmarshal"},
		{"it never ends", `d := {"effect": "allow"} if count([1 | some a in numbers.range(1, 90000); some b in numbers.range(1, 90000); a * b == 7]) > 9`, "tools.rego", "time"},
		{"it takes all memory", `d := {"effect": "allow"} if count([x | some i in numbers.range(1, 2000000); x := [s | some j in numbers.range(1, 1000); s := sprintf("%d-%d", [i, j])]]) > 9`, "tools.rego", "query failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := filepath.Join(newDirIn(t, "/var/tmp"), "audit", "a.jsonl")
			s := open(t, delegating(c.module), func(o *kernel.Options) { o.Rego, o.Audit, o.Name = program, log, "rego" })
			// As a hostile cell does it, on the wire itself.
			s.ok(`import os, json, stat
wire = [n for n in range(3, 64) if os.path.exists(f"/proc/self/fd/{n}") and stat.S_ISSOCK(os.fstat(n).st_mode)]
os.write(wire[0], json.dumps({"id": 900001, "op": "host", "name": "mail.send", "arguments": {"to": "x"}, "scope": "rego/1"}).encode() + b"\n")
assert b"900001" in os.read(wire[0], 1 << 16)`)
			s.shows("6 * 7", "42") // the session goes on, whatever became of the module
			s.kernel.Close()
			found := false
			for _, record := range readLog(t, log) {
				if record.Op == audit.OpHostCall {
					found = true
					if record.Decision != audit.Denied || record.Rule != c.rule || !strings.Contains(record.Reason, c.reason) {
						t.Errorf("%+v, want rule %s, %q", record, c.rule, c.reason)
					}
				}
			}
			if !found {
				t.Error("the call is not in the record")
			}
		})
	}
}

// TestASessionWithoutItsModuleIsNotOpened: also in mode report.
func TestASessionWithoutItsModuleIsNotOpened(t *testing.T) {
	program := regoProgram(t)
	for name, o := range map[string][]option{
		"no program":            {delegating(`d := {"effect": "allow"}`)},
		"another program":       {delegating(`d := {"effect": "allow"}`), func(o *kernel.Options) { o.Rego = "/bin/true" }},
		"a module that is none": {delegating(`d := {`), func(o *kernel.Options) { o.Rego = program }},
		"another machine":       {delegating(`d := http.send({})`), func(o *kernel.Options) { o.Rego = program }},
		"modules not read":      {delegating(`d := 1`), func(o *kernel.Options) { o.Rego, o.Policy.Tools.Rego.Sources = program, nil }},
	} {
		if _, err := openErr(t, append(o, mode("report"))...); err == nil || !strings.Contains(err.Error(), "tools.rego") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRegoOnTheCommandLine: policy test, with the same results as the engine's own
// runner; policy explain; and what stands in the policy's digest.
func TestRegoOnTheCommandLine(t *testing.T) {
	regoProgram(t)
	const dir = "testdata/rego"
	got, out := policyTest(t, dir, "--mutate")
	if out.code != 0 {
		t.Fatalf("%+v", out)
	}
	var modules []rego.Module
	for _, name := range []string{"tools.rego", "tools_test.rego"} {
		modules = append(modules, rego.Module{Name: filepath.Join(dir, name), Text: readFile(t, filepath.Join(dir, name))})
	}
	outcomes, err := rego.Test(t.Context(), modules)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, o := range outcomes {
		want[o.Name] = o.Passed || o.Skipped
	}
	ran := 0
	for _, r := range got.Results {
		if r.Mode != "rego" {
			continue
		}
		ran++
		if passed, known := want[r.Name]; !known || passed != (r.Failure == "") || r.Line == 0 {
			t.Errorf("%+v", r)
		}
	}
	if ran != len(want) || ran != 3 {
		t.Errorf("%d tests ran of %v", ran, want)
	}
	// The only rule whose loss nobody notices is none.
	if len(got.Mutations) != 1 || len(got.Mutations[0].Unnoticed) != 0 {
		t.Errorf("%+v", got.Mutations)
	}
	explain := func(args ...string) outcome {
		return command(t).run(append([]string{"policy", "explain", "--session", newDir(t), "--python", pythonBin(), dir + "/tools.yaml", "tool"}, args...)...)
	}
	if o := explain("files.read", `{"path": "/srv/x"}`); o.code != 0 || !strings.Contains(o.stdout, "shared data is there to be read") {
		t.Errorf("%+v", o)
	}
	if o := explain("files.read", `{"path": "/etc/x"}`); o.code != 1 || !strings.Contains(o.stdout, "no rule of the module allows it") {
		t.Errorf("%+v", o)
	}

	copied := newDirIn(t, "/var/tmp")
	for _, name := range []string{"tools.yaml", "tools.rego", "tools_test.rego"} {
		write(t, filepath.Join(copied, name), readFile(t, filepath.Join(dir, name)))
	}
	digest := func() string {
		log := filepath.Join(newDirIn(t, "/var/tmp"), "audit", "a.jsonl")
		if o := command(t).run("run", "--session", newDir(t), "--python", pythonBin(), "--policy", copied+"/tools.yaml", "--audit", log, "-c", "1"); o.code != 0 {
			t.Fatalf("%+v", o)
		}
		return readLog(t, log)[0].Policy
	}
	first := digest()
	write(t, copied+"/tools.rego", strings.Replace(readFile(t, copied+"/tools.rego"), "/srv/", "/", 1))
	if digest() == first {
		t.Error("another module, and the same digest of the policy")
	}
	if o := command(t).run("policy", "check", "--session", newDir(t), "--python", pythonBin(), copied+"/tools.yaml"); strings.Contains(o.stdout, "rego") {
		t.Errorf("%+v", o)
	}
	got, out = policyTest(t, copied)
	if out.code != 1 || len(got.Results) != 3 {
		t.Errorf("a test that fails: %+v", out)
	}
	write(t, copied+"/tools.rego", "package tools\n\ndecision := http.send({})\n")
	if o := command(t).run("policy", "check", "--session", newDir(t), "--python", pythonBin(), copied+"/tools.yaml"); o.code != 2 || !strings.Contains(o.stdout, "tools.yaml:14: error: tools.rego") {
		t.Errorf("%+v", o)
	}
	if err := os.Remove(copied + "/tools.rego"); err != nil {
		t.Fatal(err)
	}
	if o := command(t).run("run", "--session", newDir(t), "--policy", copied+"/tools.yaml", "-c", "1"); o.code != 2 || !strings.Contains(o.stderr, "tools.yaml:14: ") {
		t.Errorf("a module that is not there: %+v", o)
	}
}

// TestADelegateComesBack: a module that ends its process costs that decision alone.
func TestADelegateComesBack(t *testing.T) {
	r := policy.Rego{Query: "data.t.d"}
	d, err := delegate.Start(regoProgram(t), *r.WithSources([]policy.RegoSource{{Name: "t.rego", Text: `package t
d := {"effect": "allow"} if input.tool == "good"
d := {"effect": "allow"} if {
	input.tool == "bad"
	count([x | some i in numbers.range(1, 3000000); x := [s | some j in numbers.range(1, 1000); s := sprintf("%d-%d", [i, j])]]) > 9
}`}}))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i, tool := range []string{"good", "bad", "good", "bad", "good"} {
		effect, _, _, err := d.Evaluate(policy.ToolOp{Tool: tool})
		if (tool == "good") != (err == nil && effect == policy.Allow) {
			t.Errorf("%d, %s: %v %v", i, tool, effect, err)
		}
	}
	if effect, _, _, err := d.Evaluate(policy.ToolOp{Tool: "good", Arguments: []byte(fmt.Sprintf("%q", strings.Repeat("x", 1<<20)))}); err == nil || effect == policy.Allow {
		t.Errorf("a call of a megabyte: %v", effect)
	}
	d.Close()
	if effect, _, _, err := d.Evaluate(policy.ToolOp{Tool: "good"}); err == nil || effect == policy.Allow {
		t.Error("a closed one allows")
	}
}
