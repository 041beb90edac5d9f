package integration

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// rule says what a package of this module may import of this module, and why
// not more. A trailing /... names a package and all below it.
type importRule struct {
	pkg    string
	may    []string
	reason string
	stdlib bool // no third-party package either, but golang.org/x/sys
}

// importRules is the table of the architecture, a row a package. A package is
// judged by the longest row that matches.
var importRules = []importRule{
	{pkg: "cellblock/cmd/cellblock", may: []string{"cellblock/kernel/...", "cellblock/policy/...", "cellblock/jail", "cellblock/jail/plan", "cellblock/profiles"},
		reason: "the command knows people; what it does goes through the kernel, or prints a plan"},
	{pkg: "cellblock/cmd/cellblock-stage", may: []string{"cellblock/jail/stage", "cellblock/jail/plan"},
		reason: "the stage pays for each import at every start of a session"},
	{pkg: "cellblock/cmd/cellblock-rego", may: []string{"cellblock/policy/rego"},
		reason: "it answers questions about policies and knows nothing of sessions"},
	{pkg: "cellblock/cmd/cellblock-serve", may: []string{"cellblock/kernel", "cellblock/kernel/front/http/api", "cellblock/kernel/front/http/server", "cellblock/kernel/front/mcp"},
		reason: "it puts the fronts together and knows nothing of people"},
	{pkg: "cellblock/kernel/delegate", may: []string{"cellblock/policy"}, stdlib: true,
		reason: "it speaks to the engine's process, so that the launcher does not pay for the engine"},
	{pkg: "cellblock/policy/rego", may: []string{"cellblock/policy"},
		reason: "the engine decides on host calls, and knows nothing else"},
	{pkg: "cellblock/kernel", may: []string{"cellblock/policy", "cellblock/policy/audit", "cellblock/kernel/delegate", "cellblock/jail", "cellblock/jail/plan", "cellblock/jail/seccomp", "cellblock/jail/observe", "cellblock/jail/spawner", "cellblock/pyruntime", "cellblock/profiles", "cellblock/kernel/wire", "cellblock/kernel/shadow", "cellblock/kernel/definition", "cellblock/kernel/artefact", "cellblock/kernel/proxy", "cellblock/kernel/host", "cellblock/kernel/extension"},
		reason: "the kernel sits on policy and jail, and below every front"},
	{pkg: "cellblock/kernel/bench", may: []string{"cellblock/kernel", "cellblock/policy", "cellblock/jail/seccomp", "cellblock/profiles"},
		reason: "it opens sessions as everybody does; other sandboxes get the filter that a session has"},
	{pkg: "cellblock/kernel/front/...", may: []string{"cellblock/kernel", "cellblock/kernel/host", "cellblock/policy/..."},
		reason: "a front speaks to sessions; it never reaches past the kernel into the jail"},
	{pkg: "cellblock/kernel/front/http/api", may: []string{"cellblock/kernel", "cellblock/kernel/extension", "cellblock/policy", "cellblock/policy/audit"}, stdlib: true,
		reason: "what both sides say stays small enough for the command to link"},
	{pkg: "cellblock/kernel/front/http/client", may: []string{"cellblock/kernel", "cellblock/kernel/host", "cellblock/kernel/front/http/api"}, stdlib: true,
		reason: "a client knows what is said, and nothing of who serves"},
	{pkg: "cellblock/kernel/front/http/server", may: []string{"cellblock/kernel", "cellblock/kernel/host", "cellblock/policy", "cellblock/kernel/front/http/api"},
		reason: "a front speaks to sessions; it never reaches past the kernel into the jail"},
	{pkg: "cellblock/kernel/host/sqlite", may: []string{"cellblock/kernel/host"},
		reason: "a store is a file; a process that keeps none does not link it"},
	{pkg: "cellblock/kernel/host", may: []string{"cellblock/policy", "cellblock/policy/schema"},
		reason: "who may call what is decided without knowing any session or process"},
	{pkg: "cellblock/kernel/extension", may: []string{"cellblock/kernel/host", "cellblock/kernel/wire", "cellblock/jail/cgroup", "cellblock/jail/spawner", "cellblock/pyruntime"}, stdlib: true,
		reason: "it runs the operator's code beside the sandbox: it knows processes and calls, and neither session, policy nor jail"},
	{pkg: "cellblock/kernel/proxy", may: []string{"cellblock/policy"},
		reason: "what a session sends is read here: it asks a policy, and knows neither session nor jail"},
	{pkg: "cellblock/kernel/artefact", stdlib: true,
		reason: "it looks at files that nobody trusts: what reads them stays small enough to read"},
	{pkg: "cellblock/kernel/definition", stdlib: true,
		reason: "it keeps text and runs none of it: what reads the files stays small enough to read"},
	{pkg: "cellblock/kernel/shadow", stdlib: true,
		reason: "a layer is files that nobody trusts: what reads them stays small enough to read"},
	{pkg: "cellblock/kernel/trial", may: []string{"cellblock/kernel", "cellblock/policy"},
		reason: "a trial opens sessions as everybody does: what it finds is what they get"},
	{pkg: "cellblock/kernel/wire", stdlib: true,
		reason: "the wire decodes bytes of a worker nobody trusts: it stays small enough to read"},
	{pkg: "cellblock/policy/...", may: []string{"cellblock/policy/..."},
		reason: "a decision is pure: it knows no session, no jail, no operating system"},
	{pkg: "cellblock/policy/audit", may: []string{"cellblock/policy"}, stdlib: true,
		reason: "the record must be readable as trusted code: it knows policy's words and the standard library"},
	{pkg: "cellblock/policy/suggest", may: []string{"cellblock/policy", "cellblock/policy/audit"}, stdlib: true,
		reason: "what it reads was written by code nobody trusts: it stays small enough to read"},
	{pkg: "cellblock/jail/...", may: []string{"cellblock/jail/...", "cellblock/profiles"},
		reason: "the jail is mechanism; it knows neither policy nor kernel"},
	{pkg: "cellblock/jail", may: []string{"cellblock/jail/...", "cellblock/profiles"},
		reason: "the jail is mechanism; it knows neither policy nor kernel"},
	{pkg: "cellblock/jail/plan", stdlib: true,
		reason: "launcher and stage share these types, and the stage is to stay lean"},
	{pkg: "cellblock/jail/stage", may: []string{"cellblock/jail/plan"}, stdlib: true,
		reason: "what the child side links it pays for at every start, and has to be read as trusted code"},
	{pkg: "cellblock/pyruntime/...", may: []string{"cellblock/pyruntime/..."}, stdlib: true,
		reason: "the worker's Python is embedded data and the few functions that lay it out"},
	{pkg: "cellblock/profiles", stdlib: true,
		reason: "profiles are data"},
	{pkg: "cellblock/integration/...", may: []string{"cellblock/..."}, reason: "tests may see everything"},
}

// TestImportDirection keeps the way of a cell one-directional.
func TestImportDirection(t *testing.T) {
	require(t, needGo)
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "cellblock/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen := 0
	for {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		rule, ok := ruleFor(pkg.ImportPath)
		if !ok {
			t.Errorf("%s has no row in the import table: add one, with its reason", pkg.ImportPath)
			continue
		}
		for _, imported := range pkg.Imports {
			own := strings.HasPrefix(imported, "cellblock/")
			foreign := !own && strings.Contains(strings.SplitN(imported, "/", 2)[0], ".")
			switch {
			case own && !allowed(rule.may, imported):
				t.Errorf("%s imports %s; it may import %v: %s", pkg.ImportPath, imported, rule.may, rule.reason)
			case foreign && rule.stdlib && !strings.HasPrefix(imported, "golang.org/x/sys/"):
				t.Errorf("%s imports %s; it may import the standard library only: %s", pkg.ImportPath, imported, rule.reason)
			}
		}
	}
	if seen < 10 {
		t.Errorf("go list found %d packages of this module only", seen)
	}
}

func ruleFor(pkg string) (importRule, bool) {
	var best importRule
	for _, r := range importRules {
		if allowed([]string{r.pkg}, pkg) && len(r.pkg) >= len(best.pkg) {
			best = r
		}
	}
	// A row for exactly this package wins over one for a whole tree.
	for _, r := range importRules {
		if r.pkg == pkg {
			best = r
		}
	}
	return best, best.pkg != ""
}

func allowed(patterns []string, pkg string) bool {
	for _, p := range patterns {
		tree, whole := strings.CutSuffix(p, "/...")
		if pkg == p || whole && (pkg == tree || strings.HasPrefix(pkg, tree+"/")) {
			return true
		}
	}
	return false
}

// TestOneFileSpeaksPolicyAndJail: in the kernel only jailspec.go turns one into
// the other.
func TestOneFileSpeaksPolicyAndJail(t *testing.T) {
	require(t, needGo)
	out, err := exec.Command("go", "list", "-json=GoFiles,Dir", "cellblock/kernel").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkg struct {
		Dir     string
		GoFiles []string
	}
	if err := json.Unmarshal(out, &pkg); err != nil {
		t.Fatal(err)
	}
	for _, file := range pkg.GoFiles {
		text := readFile(t, pkg.Dir+"/"+file)
		if strings.Contains(text, "jail.Spec{") && file != "jailspec.go" {
			t.Errorf("kernel/%s builds a jail.Spec; only jailspec.go may, so that a policy becomes a jail in one place", file)
		}
	}
}

// needGo asks for the Go command, which a user who only runs the built tests
// may lack.
var needGo = register("go", func() string {
	if out, err := exec.Command("go", "list", "cellblock/integration").CombinedOutput(); err != nil {
		return "go list: " + strings.TrimSpace(string(out))
	}
	return ""
})

// TestOneProgramPaysForRego: the engine's start costs a process tens of milliseconds,
// so that only the program that answers Rego links it.
func TestOneProgramPaysForRego(t *testing.T) {
	require(t, needGo)
	for _, c := range []struct {
		pkg  string
		pays bool
	}{{"cellblock/cmd/cellblock", false}, {"cellblock/cmd/cellblock-stage", false}, {"cellblock/kernel", false}, {"cellblock/policy", false}, {"cellblock/cmd/cellblock-rego", true}} {
		out, err := exec.Command("go", "list", "-deps", c.pkg).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if pays := strings.Contains(string(out), "github.com/open-policy-agent/opa/"); pays != c.pays {
			t.Errorf("%s links the engine: %v", c.pkg, pays)
		}
	}
}

// TestOneProgramPaysForTheServer: what counts and serves costs a process milliseconds
// before main, so that a command that runs one cell does not link it.
func TestOneProgramPaysForTheServer(t *testing.T) {
	require(t, needGo)
	for pkg, pays := range map[string]bool{"cellblock/cmd/cellblock": false, "cellblock/kernel": false, "cellblock/kernel/front/http/client": false, "cellblock/cmd/cellblock-serve": true} {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for _, part := range []string{"github.com/prometheus/client_golang/prometheus\n", "cellblock/kernel/front/http/server\n"} {
			if strings.Contains(string(out), part) != pays {
				t.Errorf("%s links %s: want %v", pkg, strings.TrimSpace(part), pays)
			}
		}
	}
}
