package jail

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cellblock/jail/internal/require"
)

// attempts tries each act of a table and prints "name: done" or the errno.
const attempts = `import errno, os, subprocess, sys
root = sys.argv[1]
def attempt(name, act):
    try: act(); print(name + ": done")
    except OSError as e: print(name + ": " + errno.errorcode[e.errno])
def put(path):
    with open(path, "w") as f: f.write("x")
`

// rulesDir is a tree of the host with everything that the rules below speak of.
func rulesDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cellblock-rules-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"work/.git/hooks", "work/keys", "inbox", "log", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"work/.git/hooks/old", "work/keys/id", "work/stub", "inbox/old", "log/x.log"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("canary"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"bin/true", "work/true"} {
		program, err := os.ReadFile("/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "work/stub"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	return dir
}

func rulesSpec(t *testing.T, dir string, code string) Spec {
	spec := testSpec(t, TreeReadOnly, python, "-I", "-c", attempts+code, dir)
	at := func(p string) string { return filepath.Join(dir, p) }
	bind := func(p string) {
		spec.Binds = append(spec.Binds, Bind{Source: at(p), Target: at(p), Write: true, OwnerUID: os.Geteuid(), OwnerGID: os.Getegid(), Reason: "allowed"})
	}
	bind("work")
	bind("inbox")
	bind("log/x.log")
	spec.Hide = []Hide{{Path: at("work/keys"), Inside: true, Reason: "keys"}, {Path: at("work/stub"), Inside: true, Reason: "stub"}}
	spec.Guards = []Guard{{Path: at("work/.git"), Inside: true, Reason: "on the way"},
		{Path: at("work/.git/hooks"), ReadOnly: true, Inside: true, Reason: "hooks"},
		{Path: at("bin"), NoExec: true, Reason: "not ours"}, {Path: at("absent"), NoExec: true, Reason: "nothing there"}}
	spec.Grants = []Grant{{Path: at("inbox"), Create: true, Reason: "inbox"}, {Path: at("log/x.log"), Modify: true, Reason: "log"}}
	return spec
}

// TestRulesOfPaths: each rule refuses what it names and nothing beside it.
func TestRulesOfPaths(t *testing.T) {
	if !Probe().Has(Landlock) {
		require.Skip(t, string(Landlock), "parts of changes need it")
	}
	dir := rulesDir(t)
	spec := rulesSpec(t, dir, `
w = root + "/work/"
attempt("write beneath the root", lambda: put(w + "new"))
attempt("write beside a read-only place", lambda: put(w + ".git/config"))
attempt("create in a read-only place", lambda: put(w + ".git/hooks/new"))
attempt("change in a read-only place", lambda: put(w + ".git/hooks/old"))
attempt("chmod in a read-only place", lambda: os.chmod(w + ".git/hooks/old", 0o777))
attempt("remove a read-only place", lambda: os.rename(w + ".git/hooks", w + ".git/moved"))
attempt("move what it lies in", lambda: os.rename(w + ".git", w + "moved"))
attempt("read what is hidden", lambda: open(w + "keys/id").close())
attempt("write what is hidden", lambda: put(w + "keys/id"))
attempt("move what is hidden", lambda: os.rename(w + "keys", w + "moved"))
attempt("write a stub", lambda: put(w + "stub"))
attempt("remove a stub", lambda: os.unlink(w + "stub"))
attempt("create in the inbox", lambda: os.mkdir(root + "/inbox/new"))
attempt("change in the inbox", lambda: open(root + "/inbox/old", "a").close())
attempt("remove in the inbox", lambda: os.unlink(root + "/inbox/old"))
attempt("change the log", lambda: open(root + "/log/x.log", "a").close())
attempt("remove the log", lambda: os.unlink(root + "/log/x.log"))
attempt("beside the log", lambda: put(root + "/log/y.log"))
attempt("execute", lambda: subprocess.run([w + "true"]))
attempt("execute where it is denied", lambda: subprocess.run([root + "/bin/true"]))
attempt("make in /dev", lambda: put("/dev/x"))
`)
	got := runSpec(t, spec)
	want := `write beneath the root: done
write beside a read-only place: done
create in a read-only place: EROFS
change in a read-only place: EROFS
chmod in a read-only place: EROFS
remove a read-only place: EBUSY
move what it lies in: EBUSY
read what is hidden: ENOENT
write what is hidden: EROFS
move what is hidden: EBUSY
write a stub: EROFS
remove a stub: EBUSY
create in the inbox: done
change in the inbox: EACCES
remove in the inbox: EACCES
change the log: done
remove the log: EROFS
beside the log: EROFS
execute: done
execute where it is denied: EACCES
make in /dev: EROFS
`
	if got.out != want {
		t.Errorf("got\n%swant\n%s%s %s", got.out, want, got.exit.Cause(), got.err)
	}
	// The control: outside of the jail every one of them is possible.
	if err := os.Rename(filepath.Join(dir, "work/.git"), filepath.Join(dir, "work/moved")); err != nil {
		t.Error(err)
	}
}

// TestListedTree: nothing of the host is there but what is listed, and nothing
// is executed but what is.
func TestListedTree(t *testing.T) {
	if !Probe().Has(Landlock) {
		require.Skip(t, string(Landlock), "lists of programs need it")
	}
	dir := rulesDir(t)
	spec := rulesSpec(t, dir, `
import glob
print(sorted(os.listdir("/")))
attempt("read what is not listed", lambda: open("/etc/hostname").close())
attempt("read a neighbour", lambda: os.listdir(root + "/bin"))
attempt("read what is listed", lambda: os.listdir("/usr/lib"))
attempt("write the root", lambda: put("/x"))
attempt("write beneath what is allowed", lambda: put(root + "/work/new"))
attempt("execute the interpreter", lambda: subprocess.run([sys.executable, "-I", "-c", ""]))
attempt("execute another", lambda: subprocess.run(["/usr/bin/env"]))
attempt("execute what it made", lambda: subprocess.run([root + "/work/true"]))
`)
	spec.Listed, spec.ExecListed = true, true
	spec.Guards[2].Path = "/srv/not-there"
	for _, top := range []string{"/bin", "/lib", "/lib64", "/sbin"} {
		if target, err := os.Readlink(top); err == nil {
			spec.Links = append(spec.Links, Link{Path: top, Target: target, Reason: "as on the host"})
		}
	}
	spec.Binds = append(spec.Binds, Bind{Source: "/usr", Target: "/usr", Reason: "listed"})
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		t.Fatal(err)
	}
	spec.Grants = append(spec.Grants, Grant{Path: real, Exec: true, Reason: "the interpreter"}, Grant{Path: loader(t, real), Exec: true, Reason: "its loader"})
	got := runSpec(t, spec)
	if lines := strings.SplitN(got.out, "\n", 2); len(lines) != 2 || strings.Contains(lines[0], "'etc'") || lines[1] != `read what is not listed: ENOENT
read a neighbour: ENOENT
read what is listed: done
write the root: EROFS
write beneath what is allowed: done
execute the interpreter: done
execute another: EACCES
execute what it made: EACCES
` {
		t.Errorf("got\n%s%s %s", got.out, got.exit.Cause(), got.err)
	}
}

// loader is the program interpreter that an executable names.
func loader(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") && strings.Contains(word, "/ld-") {
			real, err := filepath.EvalSymlinks(word)
			if err != nil {
				t.Fatal(err)
			}
			return real
		}
	}
	t.Fatalf("no loader in %s", out)
	return ""
}

// TestAWitnessMissesACover: a rule that the mounts do not keep ends the start.
func TestAWitnessMissesACover(t *testing.T) {
	dir := rulesDir(t)
	for _, where := range []string{"work/.git/hooks", "work/keys"} {
		spec := rulesSpec(t, dir, "")
		if err := os.RemoveAll(filepath.Join(dir, where)); err != nil {
			t.Fatal(err)
		}
		p, err := Compile(spec, Probe())
		if err != nil {
			t.Fatal(err)
		}
		if process, err := Start(t.Context(), p, StartOptions{}); err == nil {
			process.Kill()
			<-process.Done()
			t.Errorf("%s is gone, and the jail starts all the same", where)
		}
		if err := os.MkdirAll(filepath.Join(dir, where), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
