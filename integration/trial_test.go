package integration

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// trialReport is what policy test --json prints.
type trialReport struct {
	Results []struct {
		File, Name, Mode, Want, Got, Rule, Errno, Failure, Error string
		Line                                                     int
	}
	Coverage []struct {
		Policy string
		Rules  int
		Unused []string
	}
	Mutations []struct {
		Policy    string
		Dropped   int
		Unnoticed []string
	}
	Sessions int
}

// policyTest runs policy test on a directory.
func policyTest(t *testing.T, dir string, flags ...string) (trialReport, outcome) {
	t.Helper()
	out := command(t).run(slices.Concat([]string{"policy", "test", "--python", pythonBin(), "--json"}, flags, []string{dir})...)
	var got trialReport
	if out.stdout != "" {
		if err := json.Unmarshal([]byte(out.stdout), &got); err != nil {
			t.Fatalf("%v\n%+v", err, out)
		}
	}
	return got, out
}

// trialOf is a directory with a policy and a file of cases.
func trialOf(t *testing.T, rules, cases string) string {
	t.Helper()
	dir := newDirIn(t, "/var/tmp")
	write(t, dir+"/p.yaml", "version: 1\nname: p\nfs:\n  rules:\n"+rules)
	write(t, dir+"/p_test.yaml", "policy: p.yaml\n"+cases)
	return dir
}

// TestTheExampleSuite: what README shows passes, in every form, and each of its rules
// is one that a case would miss.
func TestTheExampleSuite(t *testing.T) {
	require(t, needLandlock)
	const dir = "testdata/trial"
	got, out := policyTest(t, dir, "--mutate")
	if out.code != 0 || len(got.Results) < 60 {
		t.Fatalf("%+v", out)
	}
	modes := map[string]int{}
	for _, r := range got.Results {
		modes[r.Mode]++
		if r.Failure+r.Error != "" || r.Got != r.Want || r.Line == 0 {
			t.Errorf("%+v", r)
		}
	}
	if len(modes) != 4 || got.Sessions < 4 || got.Sessions > len(got.Results)/3 {
		t.Errorf("%d sessions for %v", got.Sessions, modes)
	}
	if len(got.Coverage) != 1 || len(got.Coverage[0].Unused) != 0 || got.Coverage[0].Rules != 8 {
		t.Errorf("coverage: %+v", got.Coverage)
	}
	if len(got.Mutations) != 1 || got.Mutations[0].Dropped != 8 || len(got.Mutations[0].Unnoticed) != 0 {
		t.Errorf("mutations: %+v", got.Mutations)
	}
	file := filepath.Join(newDir(t), "junit.xml")
	tap := command(t).run("policy", "test", "--python", pythonBin(), "--tap", "--junit", file, "-j", "1", "--run", "keys are hidden|cell", dir)
	if tap.code != 0 || !strings.HasPrefix(tap.stdout, "TAP version 13\n1..6\nok 1 - ") || strings.Contains(tap.stdout, "not ok") {
		t.Errorf("%+v", tap)
	}
	var junit struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Cases []struct {
				Name string `xml:"name,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(readFile(t, file)), &junit); err != nil || junit.Tests != 6 || junit.Failures != 0 || len(junit.Suites) != 1 || len(junit.Suites[0].Cases) != 6 {
		t.Errorf("junit: %v %+v", err, junit)
	}
	if left, _ := filepath.Glob("/var/tmp/cellblock-trial-*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestACaseFailsForItsReason: every way in which a case can be wrong is found, and
// named; the others pass.
func TestACaseFailsForItsReason(t *testing.T) {
	require(t, needLandlock)
	dir := trialOf(t, `    - {id: session, path: "${session}", access: [write], effect: allow, reason: r}
    - {id: locked, path: "${session}/locked", access: [write], effect: deny, reason: r}
    - {id: never, path: "${home}/never", access: [read], effect: deny, reason: r}
`, `files:
  - {path: "${session}/locked/f", text: x}
  - {path: "${session}/f", text: x}
  - {path: "${home}/f", text: x}
cases:
  - {name: right, op: "write ${session}/f", expect: allow}
  - {name: denied, op: "write ${session}/locked/f", expect: allow}
  - {name: allowed, op: "write ${session}/f", expect: deny}
  - {name: rule, op: "write ${session}/locked/f", expect: deny, rule: session}
  - {name: errno, op: "write ${session}/locked/f", expect: deny, errno: EPERM}
  - {name: reported, op: "write ${home}/f", expect: {report: allow}}
  - {name: absent, op: "remove ${session}/none", expect: allow}
  - {name: raises, cell: "1/0", expect: allow}
  - {name: cell denied, cell: "open('locked/f', 'w')", expect: allow}
  - {name: cell allowed, cell: "open('f', 'w')", expect: deny}
  - {name: cell rule, cell: "open('locked/f', 'w')", expect: deny, rule: session}
  - {name: cell errno, cell: "open('locked/f', 'w')", expect: deny, errno: EPERM}
  - {name: dies, cell: "import os; os._exit(3)", expect: allow}
`)
	got, out := policyTest(t, dir)
	if out.code != 5 {
		t.Errorf("exit code %d with cases that cannot be run: %s", out.code, out.stderr)
	}
	want := map[string]string{"right": "", "denied": "want allow; refused with EROFS", "allowed": "want deny; done", "rule": "want rule session", "errno": "want EPERM",
		"reported": "want allow; done, and reported", "absent": "ENOENT, which is no refusal", "raises": "ZeroDivisionError", "cell denied": "want allow; denied: write",
		"cell allowed": "nothing that it did was denied", "cell rule": "want rule session; denied", "cell errno": "want EPERM", "dies": "did not come back"}
	for _, r := range got.Results {
		why := r.Failure + r.Error
		if part := want[r.Name]; (part == "") != (why == "") || !strings.Contains(why, part) {
			t.Errorf("%s: %q, want %q", r.Name, why, part)
		}
		delete(want, r.Name)
	}
	if len(want) != 0 {
		t.Errorf("no result of %v", want)
	}
	if got.Coverage[0].Unused == nil || !slices.Equal(got.Coverage[0].Unused, []string{"never"}) {
		t.Errorf("%+v", got.Coverage)
	}
	tap := command(t).run("policy", "test", "--python", pythonBin(), "--tap", "--run", "/(right|denied)$", dir)
	if tap.code != 1 || !strings.Contains(tap.stdout, "\nnot ok 2 - ") || !strings.Contains(tap.stdout, "severity: fail") {
		t.Errorf("%+v", tap)
	}
	_, out = policyTest(t, dir, "--run", "/right$", "--mutate")
	if out.code != 0 {
		t.Errorf("%+v", out)
	}
	text := command(t).run("policy", "test", "--python", pythonBin(), "--run", "/right$", "--mutate", dir)
	if !strings.Contains(text.stdout, "no case notices the loss of 2: locked, never") {
		t.Errorf("%+v", text)
	}
}

// TestCasesAreIndependent: each finds its files, whatever the others did, in every mode.
func TestCasesAreIndependent(t *testing.T) {
	require(t, needLandlock)
	var cases strings.Builder
	for i, op := range []string{"remove ${session}/f", "read ${session}/f", "write ${session}/f", "rename ${session}/f ${session}/g", "remove ${session}/f", "create ${session}/n",
		"mkdir ${session}/n", "symlink ${session}/n", "rmdir ${session}/d", "create ${session}/d/n", "exec ${session}/x", "remove ${session}/x"} {
		fmt.Fprintf(&cases, "  - {name: c%d, op: %q, expect: allow}\n", i, op)
	}
	dir := trialOf(t, `    - {id: session, path: "${session}", access: [write], effect: allow, reason: r}
`, `modes: ["off", report, shadow, enforce]
files:
  - {path: "${session}/f", text: x}
  - {path: "${session}/d/"}
  - {path: "${session}/x", exec: true}
cases:
`+cases.String())
	got, out := policyTest(t, dir)
	if out.code != 0 || len(got.Results) != 48 {
		t.Errorf("%+v", out)
	}
}

// TestATrialLeavesTheHostAsItIs: what a mode does not refuse is done, and the host's
// own files are there afterwards as they were.
func TestATrialLeavesTheHostAsItIs(t *testing.T) {
	place := newDirIn(t, "/var/tmp")
	if err := os.Chmod(place, 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, place+"/f", "mine")
	if err := os.Chmod(place+"/f", 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(place+"/d", 0o777); err != nil {
		t.Fatal(err)
	}
	cases := "modes: [report]\nfiles:\n  - {path: PLACE/own/}\n  - {path: PLACE/own/f, text: x}\ncases:\n"
	for _, op := range []string{"write PLACE/f", "truncate PLACE/f", "create PLACE/n", "write PLACE/w", "mkdir PLACE/m", "symlink PLACE/s", "link PLACE/f PLACE/l", "chmod PLACE/f"} {
		cases += fmt.Sprintf("  - {op: %q, expect: deny, rule: default.write}\n", op)
	}
	cases += "  - {name: lost, op: remove PLACE/f, expect: deny}\n  - {name: lost too, op: rename PLACE/d PLACE/e, expect: deny}\n  - {name: its own, op: remove PLACE/own/f, expect: deny}\n"
	dir := trialOf(t, "    - {id: session, path: \"${session}\", access: [write], effect: allow, reason: r}\n", strings.ReplaceAll(cases, "PLACE", place))
	got, out := policyTest(t, dir, "-j", "4")
	if out.code != 5 {
		t.Errorf("%+v", out)
	}
	for _, r := range got.Results {
		if lost := strings.HasPrefix(r.Name, "lost"); lost != strings.Contains(r.Error, "is the host's") || r.Failure != "" {
			// Only who owns a file may give it a mode, and link it.
			if os.Geteuid() == 0 || r.Errno != "EPERM" {
				t.Errorf("%s: %s%s", r.Name, r.Failure, r.Error)
			}
		}
	}
	left, err := os.ReadDir(place)
	if err != nil || len(left) != 2 || readFile(t, place+"/f") != "mine" {
		t.Errorf("%v %v", err, left)
	}
	write(t, dir+"/p_test.yaml", strings.ReplaceAll("policy: p.yaml\nfiles: [{path: PLACE/f, text: x}]\ncases: [{op: read PLACE/f, expect: allow}]\n", "PLACE", place))
	if got, out := policyTest(t, dir); out.code != 5 || !strings.Contains(got.Results[0].Error, "is there already") || readFile(t, place+"/f") != "mine" {
		t.Errorf("a set-up over a file of the host's: %+v", out)
	}
}

// TestAFileOfCasesThatCannotBeRead: exit code 2, with the line; and what keeps every
// case from being run is no failed case.
func TestAFileOfCasesThatCannotBeRead(t *testing.T) {
	dir := trialOf(t, "    - {id: session, path: \"${session}\", access: [write], effect: allow, reason: r}\n", "cases:\n  - {op: write /x, expect: maybe}\n")
	if _, out := policyTest(t, dir); out.code != 2 || !strings.Contains(out.stderr, "p_test.yaml:3: expect is \"maybe\"") {
		t.Errorf("%+v", out)
	}
	write(t, dir+"/p_test.yaml", "policy: none.yaml\ncases:\n  - {op: write /x, expect: deny}\n")
	if _, out := policyTest(t, dir); out.code != 2 || !strings.Contains(out.stderr, "p_test.yaml:1: ") {
		t.Errorf("%+v", out)
	}
	write(t, dir+"/p_test.yaml", "policy: p.yaml\ncases:\n  - {op: write /x, expect: deny, rule: typo}\n")
	if _, out := policyTest(t, dir); out.code != 2 || !strings.Contains(out.stderr, "p_test.yaml:3: ") {
		t.Errorf("%+v", out)
	}
	if _, out := policyTest(t, newDir(t)); out.code != 2 {
		t.Errorf("an empty directory: %+v", out)
	}
	write(t, dir+"/p_test.yaml", "policy: p.yaml\ncases:\n  - {op: \"read ${session}\", expect: allow}\n")
	if _, out := policyTest(t, dir, "--run", "nothing"); out.code != 2 {
		t.Errorf("no case selected: %+v", out)
	}
	got, out := policyTest(t, dir, "--python", "/nowhere/python3")
	if out.code != 5 || len(got.Results) != 1 || got.Results[0].Failure != "" || got.Results[0].Error == "" {
		t.Errorf("no interpreter: %+v", out)
	}
}
