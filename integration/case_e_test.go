package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/kernel"
)

// TestCasesE: file-system view and write policy.
func TestCasesE(t *testing.T) { runCases(t, casesE) }

var casesE = []bugCase{
	{id: "E1", title: "home and caches can be written", cells: []cell{{
		code: `
import pathlib, tempfile
probe = pathlib.Path.home() / ".cache" / "probe"
probe.parent.mkdir(parents=True, exist_ok=True)
probe.write_text("x")
with tempfile.TemporaryDirectory() as folder:
    made = pathlib.Path(folder).is_dir()
(probe.read_text(), made)`, value: "('x', True)", check: noAudit}}},
	{id: "E1", title: "home and caches can be written: matplotlib saves without a display", needs: []string{needMatplotlib}, cells: []cell{{
		code: `
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.savefig("p.png"); plt.close("all")
open("p.png", "rb").read(4)`, value: `b'\x89PNG'`, check: func(t *testing.T, s *session, r reply) {
			if r.Details.Stderr != "" {
				t.Errorf("matplotlib warns: %s", r.Details.Stderr)
			}
			noAudit(t, s, r)
		}}}},

	{id: "E2", title: "uid without an account", do: func(t *testing.T, c bugCase) {
		require(t, needRoot)
		s := open(t, runAs(61234))
		s.shows("import os; os.getuid()", "61234")
		s.shows(accountFacts, "(True, True, True, True)")
		s.ok(`open("f", "w").write("1")`)
		if owner(t, s.path("f")) != 0 {
			t.Errorf("the file belongs to uid %d on the host, want the directory's owner", owner(t, s.path("f")))
		}
	}},
	{id: "E2", title: "account facts under the default uid", cells: []cell{{code: accountFacts, value: "(True, True, True, True)"}}},

	{id: "E4", title: "basic devices", cells: []cell{{
		code: `
import subprocess
open("/dev/null", "w").write("x")
ran = subprocess.run("echo hi > /dev/null && echo ok", shell=True, stderr=subprocess.DEVNULL, stdout=subprocess.PIPE)
(open("/dev/zero", "rb").read(3), len(open("/dev/urandom", "rb").read(4)), ran.stdout)`,
		value: `(b'\x00\x00\x00', 4, b'ok\n')`, check: noAudit},
		{code: `
import os, pty
boss, worker = pty.openpty()
os.write(worker, b"tty\n")
(os.isatty(worker), b"tty" in os.read(boss, 100))`, value: "(True, True)", check: noAudit},
	}},

	{id: "E6", title: "write outside, enforced", cells: []cell{{
		code: writeOutside, check: func(t *testing.T, s *session, r reply) {
			for _, p := range outsidePaths {
				if !strings.Contains(r.Details.Stdout, p+" ") || strings.Contains(r.Details.Stdout, p+" written") {
					t.Errorf("%s was not refused: %s", p, r.Details.Stdout)
				}
				onceOutside(t, r, p, "denied")
			}
			if len(r.Details.Audit) != len(outsidePaths) {
				t.Errorf("%d records, want %d: %s", len(r.Details.Audit), len(outsidePaths), r)
			}
			if r.value() != "True" {
				t.Errorf("the read failed: %s", r)
			}
		}}}},
	{id: "E6", title: "write outside, reported", do: func(t *testing.T, c bugCase) {
		s := open(t, mode("report"))
		// One path the operator may write, outside the session directory.
		own := newDirIn(t, "/var/tmp")
		t.Cleanup(func() {
			for _, p := range outsidePaths {
				os.Remove(p)
			}
		})
		r := s.ok(strings.Replace(writeOutside, "for path in (", "for path in ("+quote(own+"/probe-x")+", ", 1))
		if os.Geteuid() != 0 {
			for _, p := range outsidePaths {
				lacks(t, "stdout of an ordinary user", r.Details.Stdout, p+" written")
			}
		}
		contains(t, "stdout", r.Details.Stdout, own+"/probe-x written")
		if _, err := os.Stat(own + "/probe-x"); err != nil {
			t.Errorf("what was written under report is not on the host: %v", err)
		}
		for _, p := range outsidePaths {
			onceOutside(t, r, p, "would be denied")
		}
		if len(r.auditWith("path", "/etc/hostname")) != 0 {
			t.Errorf("the read made a record: %s", r)
		}
	}},

	{id: "E9", title: "session folder given through a link", do: func(t *testing.T, c bugCase) {
		base := newDirIn(t, "/var/tmp") // in /tmp the link would be out of sight
		for _, dir := range []string{base + "/real/s1/inside"} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		symlink(t, base+"/real", base+"/link")
		symlink(t, "inside", base+"/real/s1/alias")
		s := open(t, at(base+"/link/s1"))
		r := s.shows(`
import os
open("f", "w").write("1")
os.makedirs(os.path.join(os.path.realpath("."), "deep"), exist_ok=True)
sorted(os.listdir("."))`, "['alias', 'deep', 'f', 'inside']")
		noAudit(t, s, r)
		noAudit(t, s, s.ok(`open("alias/g", "w").write("2")`))
		noAudit(t, s, s.ok(`open(`+quote(base+"/link/s1/h")+`, "w").write("3")`))
		s.dir = base + "/real/s1"
		if s.read("inside/g") != "2" || s.read("h") != "3" {
			t.Error("a write through a link did not reach the folder")
		}
	}},

	{id: "E12", title: "no droppings", needs: []string{needGit}, do: func(t *testing.T, c bugCase) {
		dir := newDir(t)
		git(t, dir, "init", "-q")
		git(t, dir, "-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "--allow-empty", "-m", "m")
		victim := startLauncher(t, dir, "1\n# %%\nopen('made.txt', 'w').write('1')\n# %%\nprint('third', flush=True)\nimport time; open('made.txt','a').write('2'); time.sleep(600)")
		eventually(t, "the third cell runs", hang, func() bool {
			data, _ := os.ReadFile(dir + "/made.txt")
			return string(data) == "12"
		})
		launchers := map[int]bool{victim.cmd.Process.Pid: true}
		if len(tempDirectories(t, launchers)) == 0 {
			t.Error("control: the launcher has no temp directory")
		}
		victim.kill()
		next := command(t).run("run", "--mode", "enforce", "--session", dir, "--python", pythonBin(), "-c", "1")
		if got := git(t, dir, "status", "--porcelain", "--ignored"); got != "?? made.txt" {
			t.Errorf("git status says %q, want only made.txt", got)
		}
		launchers[next.pid] = true
		for _, name := range tempDirectories(t, launchers) {
			t.Errorf("%s is left in %s", name, os.TempDir())
		}
	}},

	{id: "E15", title: "git in the session", needs: []string{needGit}, do: func(t *testing.T, c bugCase) {
		dir := newDir(t)
		if err := os.Mkdir(dir+"/host", 0o755); err != nil {
			t.Fatal(err)
		}
		git(t, dir+"/host", "init", "-q")
		s := open(t, at(dir))
		s.shows(`
import subprocess
def sh(line):
    return subprocess.run(line, shell=True, capture_output=True, text=True)
sh("git init -q r && cd r && git -c user.name=n -c user.email=e@x commit -q --allow-empty -m m")
(sh("cd r && git status --porcelain").returncode,
 sh("cd r && git worktree add -q ../w && cd ../w && git log --oneline | wc -l").stdout.strip())`, "(0, '1')")
		s.shows(`done = sh("cd host && git status --porcelain"); (done.returncode, done.stderr)`, "(0, '')")
	}},

	{id: "E17", title: "time zone", do: func(t *testing.T, c bugCase) {
		facts := `
import datetime, subprocess, time, zoneinfo
summer = datetime.datetime(2024, 7, 1)
(zoneinfo.ZoneInfo("Europe/Paris").utcoffset(summer).seconds, time.strftime("%z"), subprocess.getoutput("date +%z"))`
		open(t, timeZone("Asia/Tokyo")).shows(facts, "(7200, '+0900', '+0900')")
		open(t).shows(facts, "(7200, '+0000', '+0000')")
	}},

	{id: "E19", title: "session disk full", needs: []string{needRoot}, do: func(t *testing.T, c bugCase) {
		dir := newDir(t)
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
			t.Fatalf("mount a small tmpfs as session directory: %v", err)
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		other := open(t)
		s := open(t, at(dir))
		s.ok("kept = 1")
		r := s.raises(`
with open("fill.bin", "wb") as f:
    while True:
        f.write(b"x" * (1 << 20))`, "OSError")
		if v := r.Details.Error.Value; !strings.Contains(v, "Errno 28") && !strings.Contains(v, "Errno 122") {
			t.Errorf("evalue %q, want ENOSPC or EDQUOT", v)
		}
		s.shows("kept", "1")
		if r := s.run(`open("/etc/probe-x", "w")`); len(r.Details.Audit) == 0 {
			t.Errorf("no audit on a full disk: %s", r)
		}
		s.reset()
		s.shows("'kept' in globals()", "False")
		other.ok(`open("f", "w").write("1")`)
	}},
}

var outsidePaths = []string{"/etc/probe-x", "/usr/probe-x", "/root/probe-x"}

// onceOutside wants one record of a write to the path, and one violation, with what
// became of it.
func onceOutside(t *testing.T, r reply, path, decision string) {
	t.Helper()
	if n := len(r.auditWith("path", path)); n != 1 {
		t.Errorf("%d records for %s, want 1: %s", n, path, r)
	}
	var told []kernel.Violation
	if err := json.Unmarshal(r.Details.Policy.Violations, &told); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range told {
		if v.Path != path {
			continue
		}
		if n++; v.Op != "write" || v.Decision != decision {
			t.Errorf("%s: %s %s, want write %s", path, v.Op, v.Decision, decision)
		}
	}
	if n != 1 {
		t.Errorf("%d violations for %s, want 1: %s", n, path, r)
	}
}

const writeOutside = `
for path in ("/etc/probe-x", "/usr/probe-x", "/root/probe-x"):
    try:
        with open(path, "w") as f: f.write("x")
        print(path, "written")
    except OSError as problem:
        print(path, type(problem).__name__)
open("/etc/hostname").read() is not None`

const accountFacts = `
import getpass, os, pathlib, pwd
(bool(getpass.getuser()), os.path.expanduser("~") != "~", pathlib.Path.home().is_dir(), bool(pwd.getpwuid(os.getuid()).pw_name))`

// noAudit is a check that the cell left no audit record.
func noAudit(t *testing.T, s *session, r reply) {
	t.Helper()
	if len(r.Details.Audit) != 0 {
		t.Errorf("the cell has audit records: %s", r)
	}
}

func quote(s string) string { return `"` + s + `"` }

func symlink(t testing.TB, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func owner(t testing.TB, path string) int {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Uid)
}

// git runs git on the host and returns its trimmed output.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
