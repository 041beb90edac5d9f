package integration

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"cellblock/integration/need"
	"cellblock/jail"
)

var needs = map[string]func() string{}

func register(name string, probe func() string) string {
	needs[name] = sync.OnceValue(probe)
	return name
}

// The names that JAIL_TEST_REQUIRE understands here.
var (
	needRoot       = register("root", probeRoot)
	needUser       = register("user", probeUser)
	needUserns     = register("userns", probeUserns)
	needLandlock   = register("landlock", probeLandlock)
	needOverlay    = register("overlay", probeOverlay)
	needNotify     = register("seccomp-notify", probeNotify)
	needSources    = register("sources", probeSources)
	needGit        = register("git", onPath("git"))
	needNumpy      = register("numpy", pythonImports("numpy"))
	needMatplotlib = register("matplotlib", pythonImports("matplotlib"))
	needPandas     = register("pandas", pythonImports("pandas"))
	needTestsuite  = register("testsuite", testsuiteMissing)
	needUsrmerge   = register("usrmerge", probeUsrmerge)
)

// require skips the test with the probe's reason when something is absent, and
// fails it when JAIL_TEST_REQUIRE names that thing.
func require(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		probe, known := needs[name]
		if !known {
			t.Fatalf("require %q: no such probe", name)
		}
		why := probe()
		if why == "" {
			continue
		}
		need.Absent(t, name, why)
	}
}

func probeRoot() string {
	if os.Geteuid() != 0 {
		return "the tests run as an ordinary user"
	}
	return ""
}

func probeUser() string {
	if os.Geteuid() == 0 {
		return "the tests run as root"
	}
	return ""
}

// probeSources looks for the tree that these tests were built from, which whoever only
// runs them may lack.
func probeSources() string {
	if _, err := os.Stat("../go.mod"); err != nil {
		return err.Error()
	}
	return ""
}

// probeUsrmerge looks for a system of merged directories: /bin is a link into /usr.
func probeUsrmerge() string {
	if target, err := os.Readlink("/bin"); err != nil || target != "usr/bin" {
		return fmt.Sprintf("this host has no link /bin to usr/bin: %q, %v", target, err)
	}
	return ""
}

func probeUserns() string {
	// A child in a new user namespace, made in the way a rootless start makes it.
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = newUserNamespace()
	if err := cmd.Run(); err != nil {
		return "no process can be started in a new user namespace: " + err.Error()
	}
	return ""
}

func probeOverlay() string {
	if found := jail.ProbeAll().Get(jail.Overlay); !found.Yes() {
		return found.Why
	}
	return ""
}

func probeNotify() string {
	if found := jail.Probe().Get(jail.SeccompNotify); !found.Yes() {
		return found.Why
	}
	return ""
}

func probeLandlock() string {
	if abi := jail.Probe().LandlockABI; abi < 1 {
		return "landlock_create_ruleset gives no ABI"
	}
	return ""
}

func onPath(program string) func() string {
	return func() string {
		if _, err := exec.LookPath(program); err != nil {
			return err.Error()
		}
		return ""
	}
}

func pythonImports(module string) func() string {
	return func() string {
		out, err := exec.Command(pythonBin(), "-c", "import "+module).CombinedOutput()
		if err != nil {
			return pythonBin() + ": " + strings.TrimSpace(string(out))
		}
		return ""
	}
}

// TestRequireKnowsEveryName keeps a misspelt JAIL_TEST_REQUIRE from asking for
// nothing: this run's own, and those that CI sets.
func TestRequireKnowsEveryName(t *testing.T) {
	require(t, needSources)
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	lists := []string{os.Getenv(need.Variable)}
	for _, m := range regexp.MustCompile(need.Variable+`=([a-z0-9,-]+)`).FindAllStringSubmatch(string(ci), -1) {
		lists = append(lists, m[1])
	}
	if len(lists) != 3 {
		t.Fatalf(".ci/run sets %s %d times; one for each of its two users was looked for", need.Variable, len(lists)-1)
	}
	for _, list := range lists {
		for word := range strings.SplitSeq(list, ",") {
			name := strings.TrimSpace(word)
			if name == "" || name == "all" {
				continue
			}
			if _, known := needs[name]; !known && !knownElsewhere[name] {
				t.Errorf("%s=%s names %q, which no probe answers to", need.Variable, list, name)
			}
		}
	}
}

// Names that the packages below integration have probes for; and files, of which each
// attack on files tries its own part outside of any jail.
var knownElsewhere = map[string]bool{"files": true, "cgroup": true, "seccomp": true, "cgroup1": true, "cgroup2": true, "idmap": true, "python": true}

func pythonRuns(expression string) func() string {
	return func() string {
		out, err := exec.Command(pythonBin(), "-c", expression).CombinedOutput()
		if err != nil {
			return pythonBin() + ": " + strings.TrimSpace(string(out))
		}
		return ""
	}
}
