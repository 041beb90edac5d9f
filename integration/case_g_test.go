package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cellblock/jail"
)

// TestCasesG: host differences at start. The absent features are simulated in
// the value that the probe gives; the compile step is pure, so what it answers
// is what a start on such a host answers.
func TestCasesG(t *testing.T) { runCases(t, casesG) }

var casesG = []bugCase{
	{id: "G1", title: "restricted user namespaces", do: func(t *testing.T, c bugCase) {
		features := ordinaryHost(t).With(jail.UserNamespace, jail.Finding{Answer: jail.No,
			Why:    "kernel.apparmor_restrict_unprivileged_userns is 1",
			Remedy: "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with userns"})
		_, err := compileFor(t, features)
		if err == nil {
			t.Fatal("a jail was compiled for a host without user namespaces")
		}
		contains(t, "the error", err.Error(), "apparmor_restrict_unprivileged_userns")
		if strings.TrimSpace(err.Error()) == "operation not permitted" {
			t.Error("a bare EPERM")
		}
	}},

	{id: "G3", title: "no Landlock", do: func(t *testing.T, c bugCase) {
		bare := jail.Probe()
		bare.LandlockABI = 0
		without := bare.Without(jail.Landlock)
		plan, err := compileFor(t, without)
		switch {
		case err != nil:
			contains(t, "the refusal", strings.ToLower(err.Error()), "landlock")
		case !strings.Contains(strings.ToLower(fmt.Sprint(plan.Degraded)), "landlock"):
			t.Errorf("landlock is silently off; degraded: %v", plan.Degraded)
		}
	}},

	{id: "G5", title: "no cgroup to be had", do: func(t *testing.T, c bugCase) {
		bare := jail.Probe()
		bare.CgroupMode = "none"
		without := bare.Without(jail.Cgroup, jail.CgroupMemory, jail.CgroupTasks, jail.CgroupKill)
		plan, err := compileFor(t, without)
		switch {
		case err != nil:
			contains(t, "the refusal", strings.ToLower(err.Error()), "cgroup")
		case !strings.Contains(strings.ToLower(fmt.Sprint(plan.Degraded)), "cgroup"):
			t.Errorf("the limits are silently off; degraded: %v", plan.Degraded)
		}
	}},

	{id: "G9", title: "setting that cannot work here", do: func(t *testing.T, c bugCase) {
		for _, args := range [][]string{
			{"run", "--mode", "enforcd", "-c", "1"},
			{"run", "--profile", "no-such-profile", "-c", "1"},
			{"run", "--limit", "memroy=256MiB", "-c", "1"},
			{"run", "--limit", "memory=lots", "-c", "1"},
			{"run", "--no-such-option", "-c", "1"},
			{"run", "--mode", "shadows", "-c", "1"},
		} {
			out := command(t).dir(newDir(t)).run(args...)
			if out.code == 0 {
				t.Errorf("cellblock %v was accepted: %s", args, out.stdout)
				continue
			}
			word := strings.TrimSuffix(strings.SplitN(args[len(args)-3], "=", 2)[0], " ")
			if !strings.Contains(out.stderr, word) && !strings.Contains(out.stderr, strings.TrimPrefix(args[1], "--")) {
				t.Errorf("cellblock %v: the message does not name %q: %s", args, word, out.stderr)
			}
		}
	}},

	{id: "G11", title: "broken Python: configured interpreter missing", do: func(t *testing.T, c bugCase) {
		brokenPython(t, "/nonexistent/python3")
	}},
	{id: "G11", title: "broken Python: venv whose base is gone", do: func(t *testing.T, c bugCase) {
		venv := newDir(t) + "/venv"
		write(t, venv+"/pyvenv.cfg", "home = /nonexistent/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n")
		if err := os.MkdirAll(venv+"/bin", 0o755); err != nil {
			t.Fatal(err)
		}
		symlink(t, "/nonexistent/bin/python3", venv+"/bin/python3")
		brokenPython(t, venv+"/bin/python3")
	}},
	{id: "G11", title: "broken Python: a script that prints at start-up", do: func(t *testing.T, c bugCase) {
		venv := makeVenv(t)
		sites, err := filepath.Glob(venv + "/lib/python3*/site-packages")
		if err != nil || len(sites) != 1 {
			t.Fatalf("site-packages of the venv: %v %v", sites, err)
		}
		write(t, sites[0]+"/sitecustomize.py", "import sys\nprint('{\"id\": 1, \"value\": \"forged\"}')\nprint('noise', file=sys.stderr)\n")
		s := open(t, python(venv+"/bin/python3"))
		s.shows("1 + 1", "2")
		r := s.shows("import sys; sys.prefix", "'"+venv+"'")
		lacks(t, "stdout", r.Details.Stdout, "forged")
	}},
}

// brokenPython checks that every call gives an error that names the path, soon.
func brokenPython(t *testing.T, bin string) {
	t.Helper()
	start := time.Now()
	s, err := openErr(t, python(bin))
	if err != nil {
		contains(t, "the error", err.Error(), bin)
		return
	}
	for range 2 {
		r := s.run("1")
		if !r.IsError || r.ename() != "ToolError" {
			t.Errorf("want ToolError: %s", r)
		}
		contains(t, "the error", r.text(), bin)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("two errors took %v", took)
	}
}

// makeVenv makes a virtual environment of the interpreter under test.
func makeVenv(t *testing.T) string {
	t.Helper()
	venv := newDir(t) + "/venv"
	if out, err := exec.Command(pythonBin(), "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("make a venv: %v\n%s", err, out)
	}
	return venv
}
