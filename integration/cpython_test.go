package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cellblock/integration/need"
	"cellblock/jail"
)

var regrtest = flag.Bool("regrtest", false, "run all of CPython's regression tests that TestCPython knows, and print their table")

// regressionTests are the modules of CPython's own test package that are run.
// The quick ones are part of every run of this package.
var regressionTests = []struct {
	name  string
	quick bool
}{
	{"test_json", true}, {"test_os", true}, {"test_subprocess", false}, {"test_threading", false}, {"test_tempfile", true},
	{"test_shutil", true}, {"test_pathlib", true}, {"test_asyncio", false}, {"test_multiprocessing_fork", false},
	{"test_multiprocessing_spawn", false}, {"test_socket", false}, {"test_signal", false}, {"test_sqlite3", true}, {"test_mmap", true},
}

// exceptions are tests that pass outside and not inside, on purpose, as patterns
// of their ids with the reason.
var exceptions = []struct{ pattern, reason string }{
	{"test.test_os.ChownFileTests.test_chown_without_permission",
		"only the session's own id is mapped in its user namespace, so chown to another is EINVAL, not EPERM"},
	{"test.test_subprocess.POSIXProcessTestCase.test_user",
		"only the session's own id is mapped in its user namespace, so setuid to another is EINVAL, not EPERM"},
	{"test.test_subprocess.POSIXProcessTestCase.test_group",
		"only the session's own group is mapped in its user namespace, so setgid to another is EINVAL, not EPERM"},
	{"test.test_socket.*UDPLITE*",
		"the seccomp profile lets through the transports that it lists, and UDP-Lite is none of them"},
}

// TestCPython runs CPython's regression tests in the jail and outside, as the
// same user, and wants the same passes. What passes outside only is run inside
// once more, alone, since some of these tests measure time.
func TestCPython(t *testing.T) {
	require(t, needTestsuite)
	byPython := map[string][]string{}
	for _, m := range regressionTests {
		if !m.quick && !*regrtest {
			continue
		}
		bin := pythonWith("test." + m.name)
		if bin == "" {
			t.Logf("%-28s no interpreter here ships it", m.name)
			if need.Required("testsuite") && m.name != "test_sqlite3" {
				t.Errorf("%s is absent, and JAIL_TEST_REQUIRE asks for the test suite", m.name)
			}
			continue
		}
		byPython[bin] = append(byPython[bin], m.name)
	}
	fmt.Fprintf(os.Stdout, "%-28s %8s %8s %8s %8s\n", "module", "outside", "inside", "excepted", "lost")
	for bin, modules := range byPython {
		outside := runOutside(t, bin, modules)
		inside := runInside(t, bin, modules)
		for _, module := range modules {
			if lost := missing(outside[module], inside[module]); len(lost) > 0 {
				for id := range runInside(t, bin, []string{module})[module] {
					if inside[module] == nil {
						inside[module] = map[string]bool{}
					}
					inside[module][id] = true
				}
			}
			lost := missing(outside[module], inside[module])
			excepted := 0
			lost = slices.DeleteFunc(lost, func(id string) bool {
				for _, e := range exceptions {
					if ok, _ := path.Match(e.pattern, id); ok {
						excepted++
						return true
					}
				}
				return false
			})
			fmt.Fprintf(os.Stdout, "%-28s %8d %8d %8d %8d\n", module, len(outside[module]), len(inside[module]), excepted, len(lost))
			if len(outside[module]) == 0 {
				t.Errorf("%s: nothing passes outside the jail, so it shows nothing", module)
			}
			for _, id := range lost {
				t.Errorf("%s: passes outside, not in the jail", id)
			}
		}
	}
	for _, e := range exceptions {
		fmt.Fprintf(os.Stdout, "excepted: %s: %s\n", e.pattern, e.reason)
	}
}

// passes are the ids of passed tests by module.
type passes map[string]map[string]bool

func missing(outside, inside map[string]bool) []string {
	var lost []string
	for id := range outside {
		if !inside[id] {
			lost = append(lost, id)
		}
	}
	slices.Sort(lost)
	return lost
}

// runTests is a Python function that both sides use: it runs the modules one
// after the other and returns the ids that passed.
const runTests = `
import json, os, subprocess, sys
import xml.etree.ElementTree as tree
def run_tests(python, modules, ignored=()):
    passed = {}
    for module in modules:
        report = os.path.abspath("report.xml")
        if os.path.exists(report): os.unlink(report)
        subprocess.run([python, "-m", "test", "--timeout", "300", "--junit-xml", report, *[a for pattern in ignored for a in ("--ignore", pattern)], module],
                       stdin=subprocess.DEVNULL, stdout=open("log-" + module, "w"), stderr=subprocess.STDOUT)
        if not os.path.exists(report):
            print(module + ": no report; its log ends in", open("log-" + module).read()[-2000:], file=sys.stderr)
            continue
        passed[module] = sorted({case.get("name") for case in tree.parse(report).iter("testcase")
            if case.get("result") == "completed" and case.find("failure") is None and case.find("error") is None and case.find("skipped") is None})
    return passed
`

// runOutside runs modules as the user that a session would run as.
func runOutside(t *testing.T, bin string, modules []string) passes {
	t.Helper()
	dir := newDirIn(t, "/var/tmp")
	list, err := json.Marshal(modules)
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, jail.DefaultID, jail.DefaultID); err != nil {
			t.Fatal(err)
		}
	}
	cmd := asSession(bin, "-c", runTests+fmt.Sprintf("\nprint(json.dumps(run_tests(%q, json.loads(%q))))", bin, list))
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("outside: %v\n%s", err, out)
	}
	return decodePasses(t, out)
}

// asSession is a command that runs outside as the user that a session has inside.
func asSession(args ...string) *exec.Cmd {
	if os.Geteuid() == 0 {
		id := strconv.Itoa(jail.DefaultID)
		args = append([]string{"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"}, args...)
	}
	return exec.Command(args[0], args[1:]...)
}

// runInside runs modules in a child of a cell.
func runInside(t *testing.T, bin string, modules []string) passes {
	t.Helper()
	list, err := json.Marshal(modules)
	if err != nil {
		t.Fatal(err)
	}
	// Whole families that are excepted are not run: threads of theirs that fail make
	// the runner itself fail at random.
	excepted := []string{}
	for _, e := range exceptions {
		if strings.Contains(e.pattern, "*") {
			excepted = append(excepted, e.pattern)
		}
	}
	families, err := json.Marshal(excepted)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, python(bin), at(newDirIn(t, "/var/tmp")), memory(6<<30), tasks(2048), cellLimit(30*time.Minute))
	result := s.kernelCall(runTests + fmt.Sprintf("\nopen('passed.json', 'w').write(json.dumps(run_tests(sys.executable, json.loads(%q), json.loads(%q)))); None", list, families))
	if result.IsError {
		t.Fatalf("inside: %s", result)
	}
	if result.Details.Stderr != "" {
		t.Log("inside:", result.Details.Stderr)
	}
	defer s.kernel.Close()
	return decodePasses(t, []byte(s.read("passed.json")))
}

func decodePasses(t *testing.T, data []byte) passes {
	t.Helper()
	var lists map[string][]string
	if err := json.Unmarshal(data, &lists); err != nil {
		t.Fatalf("%v in %.500s", err, data)
	}
	all := passes{}
	for module, ids := range lists {
		all[module] = map[string]bool{}
		for _, id := range ids {
			all[module][id] = true
		}
	}
	return all
}

func testsuiteMissing() string {
	if pythonWith("test.test_json") != "" {
		return ""
	}
	return "no interpreter here ships CPython's own tests (Debian: libpython3.11-testsuite, after the version)"
}

// pythonWith finds an interpreter that ships a module of the test package: the
// one under test, else the one on PATH. "" when there is none.
func pythonWith(module string) string {
	for _, bin := range []string{pythonBin(), "python3"} {
		out, err := exec.Command(bin, "-c", "import importlib.util, sys; print(sys.executable if importlib.util.find_spec('"+module+"') else '')").Output()
		found := strings.TrimSpace(string(out))
		if err != nil || found == "" {
			continue
		}
		// One in root's home could only be tried as root, who passes other tests.
		if asSession(found, "-c", "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import "+module+"']))").Run() == nil {
			return found
		}
	}
	return ""
}
