package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cellblock/kernel"
	"cellblock/policy"
)

func document(t testing.TB, text string) option {
	t.Helper()
	doc, err := policy.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return func(o *kernel.Options) { o.Policy = &doc }
}

// ruledPlaces are directories and what a policy says of them; BASE is the test's
// own directory, and the session's is BASE/work.
const ruledPolicy = `version: 1
name: ruled
fs:
  DEFAULTS
  rules:
    - {path: "${session}", access: [write], effect: allow, reason: r}
    - {path: "${session}/locked", access: [write], effect: deny, reason: r}
    - {path: "${session}/deep/er/locked", access: [write], effect: deny, reason: r}
    - {path: "${session}/hidden", access: [read], effect: deny, reason: r}
    - {path: "${session}/noexec", access: [exec], effect: deny, reason: r}
    - {path: "${session}/tried", access: [write, exec], effect: deny, mode: report, reason: r}
    - {path: "${session}/absent", access: [write], effect: deny, reason: r}
    - {path: "${session}/absent-directory/", access: [write], effect: deny, reason: r}
    - {path: "${session}/new/tree/", access: [write], effect: deny, reason: r}
    - {path: "${session}/unseen", access: [read], effect: deny, reason: r}
    - {path: BASE/allowed, access: [write], effect: allow, reason: r}
    - {path: BASE/allowed/locked, access: [write], effect: deny, reason: r}
    - {path: BASE/allowed/hidden, access: [read], effect: deny, reason: r}
    - {path: BASE/inbox, access: [create], effect: allow, reason: r}
    - {path: BASE/modify, access: [modify], effect: allow, reason: r}
    - {path: BASE/remove, access: [remove], effect: allow, reason: r}
    - {path: BASE/inbox/more, access: [modify, remove], effect: allow, reason: r}
    - {path: BASE/secret, access: [read], effect: deny, mode: enforce, reason: r}
    - {path: BASE/opt, access: [exec], effect: deny, reason: r}
    - {path: BASE/way, access: [read], effect: deny, reason: r}
    - {path: BASE/promoted, access: [write], effect: deny, mode: enforce, reason: r}
    - {path: BASE/readable, access: [read], effect: allow, reason: r}
    - {path: BASE/programs, access: [read, exec], effect: allow, reason: r}
    - {path: BASE/nowhere, access: [write], effect: allow, reason: r}
`

// places are the directories in which every operation is tried.
var places = []string{"work/plain", "work/locked", "work/locked/sub", "work/deep/er/locked", "work/deep/er", "work/deep", "work/hidden", "work/noexec", "work/tried",
	"allowed", "allowed/sub", "allowed/locked", "allowed/hidden", "inbox", "inbox/more", "modify", "remove", "secret", "opt", "target", "promoted", "readable", "programs", "outside"}

// operation is one row: what is done to paths in a place, and what it means to a
// policy. Paths in acts are names within the place.
type operation struct {
	name string
	code string // Python, with p for the place
	ops  []policy.Op
}

var operations = []operation{
	{"read", `open(p + "/f").read()`, []policy.Op{{Kind: policy.Read, Path: "f"}}},
	{"list", `os.scandir(p + "/d").close()`, []policy.Op{{Kind: policy.Read, Path: "d"}}},
	{"write", `os.close(os.open(p + "/f", os.O_WRONLY))`, []policy.Op{{Kind: policy.Write, Path: "f"}}},
	{"append", `os.close(os.open(p + "/f", os.O_WRONLY | os.O_APPEND))`, []policy.Op{{Kind: policy.Write, Path: "f"}}},
	{"truncate", `os.truncate(p + "/f", 0)`, []policy.Op{{Kind: policy.Truncate, Path: "f"}}},
	{"create to write", `os.close(os.open(p + "/new.w", os.O_WRONLY | os.O_CREAT | os.O_EXCL))`, []policy.Op{{Kind: policy.Write, Path: "new.w", Creates: true}}},
	{"create", `os.close(os.open(p + "/new.r", os.O_RDONLY | os.O_CREAT | os.O_EXCL))`, []policy.Op{{Kind: policy.Create, Path: "new.r"}}},
	{"mkdir", `os.mkdir(p + "/new.d")`, []policy.Op{{Kind: policy.Mkdir, Path: "new.d"}}},
	{"mkfifo", `os.mkfifo(p + "/new.p")`, []policy.Op{{Kind: policy.Create, Path: "new.p"}}},
	{"symlink", `os.symlink("f", p + "/new.s")`, []policy.Op{{Kind: policy.Symlink, Path: "new.s"}}},
	{"link", `os.link(p + "/f", p + "/new.l")`, []policy.Op{{Kind: policy.Link, Path: "new.l"}}},
	{"remove", `os.unlink(p + "/gone.f")`, []policy.Op{{Kind: policy.Remove, Path: "gone.f"}}},
	{"rmdir", `os.rmdir(p + "/gone.d")`, []policy.Op{{Kind: policy.Rmdir, Path: "gone.d"}}},
	{"rename", `os.rename(p + "/old.f", p + "/new.f")`, []policy.Op{{Kind: policy.RenameFrom, Path: "old.f"}, {Kind: policy.RenameTo, Path: "new.f"}}},
	{"chmod", `os.chmod(p + "/f", 0o640)`, []policy.Op{{Kind: policy.Chmod, Path: "f"}}},
	{"utime", `os.utime(p + "/f", (1, 1))`, []policy.Op{{Kind: policy.Utime, Path: "f"}}},
	{"xattr", `os.setxattr(p + "/f", "user.x", b"1")`, []policy.Op{{Kind: policy.Xattr, Path: "f"}}},
	{"exec", `subprocess.run([p + "/x"], check=True)`, []policy.Op{{Kind: policy.Exec, Path: "x"}}},
}

// single are operations on paths of their own, relative to BASE or absolute.
var single = []operation{
	{"move what holds a locked place", `away(B + "/work/deep/er", B + "/work/moved")`, []policy.Op{{Kind: policy.RenameFrom, Path: "work/deep/er"}, {Kind: policy.RenameTo, Path: "work/moved"}}},
	{"move what holds what holds it", `away(B + "/work/deep", B + "/work/moved")`, []policy.Op{{Kind: policy.RenameFrom, Path: "work/deep"}}},
	{"move a locked place", `away(B + "/work/locked", B + "/work/moved")`, []policy.Op{{Kind: policy.RenameFrom, Path: "work/locked"}}},
	{"move a hidden place", `away(B + "/work/hidden", B + "/work/moved")`, []policy.Op{{Kind: policy.RenameFrom, Path: "work/hidden"}}},
	{"move the session", `away(B + "/work", B + "/moved")`, []policy.Op{{Kind: policy.RenameFrom, Path: "work"}}},
	{"move an allowed place", `away(B + "/allowed", B + "/moved")`, []policy.Op{{Kind: policy.RenameFrom, Path: "allowed"}}},
	{"write what is absent", `open(B + "/work/absent", "w").close(); os.unlink(B + "/work/absent")`, []policy.Op{{Kind: policy.Write, Path: "work/absent", Creates: true}}},
	{"mkdir what is absent", `os.mkdir(B + "/work/absent"); os.rmdir(B + "/work/absent")`, []policy.Op{{Kind: policy.Mkdir, Path: "work/absent"}}},
	{"link what is absent", `os.symlink("x", B + "/work/absent"); os.unlink(B + "/work/absent")`, []policy.Op{{Kind: policy.Symlink, Path: "work/absent"}}},
	{"write into an absent directory", `os.makedirs(B + "/work/absent-directory", exist_ok=True); open(B + "/work/absent-directory/x", "w").close()`, []policy.Op{{Kind: policy.Write, Path: "work/absent-directory/x", Creates: true}}},
	{"write deep into what is absent", `os.makedirs(B + "/work/new", exist_ok=True); os.makedirs(B + "/work/new/tree/x")`, []policy.Op{{Kind: policy.Mkdir, Path: "work/new/tree/x"}}},
	{"write beside it", `os.makedirs(B + "/work/new", exist_ok=True); open(B + "/work/new/free", "w").close()`, []policy.Op{{Kind: policy.Write, Path: "work/new/free", Creates: true}}},
	{"move what holds it", `os.makedirs(B + "/work/new", exist_ok=True); away(B + "/work/new", B + "/work/newer")`, []policy.Op{{Kind: policy.RenameFrom, Path: "work/new"}}},
	{"make what is unseen", `open(B + "/work/unseen", "w").close()`, []policy.Op{{Kind: policy.Write, Path: "work/unseen", Creates: true}}},
	{"write beneath what is nowhere", `os.mkdir(B + "/nowhere")`, []policy.Op{{Kind: policy.Mkdir, Path: "nowhere"}}},
	{"/tmp", `open("/tmp/x", "w").close()`, []policy.Op{{Kind: policy.Write, Path: "/tmp/x", Creates: true}}},
	{"/dev/shm", `open("/dev/shm/x", "w").close()`, []policy.Op{{Kind: policy.Write, Path: "/dev/shm/x", Creates: true}}},
	{"/dev/null", `open("/dev/null", "w").close()`, []policy.Op{{Kind: policy.Write, Path: "/dev/null"}}},
	{"/dev", `open("/dev/x", "w").close()`, []policy.Op{{Kind: policy.Write, Path: "/dev/x", Creates: true}}},
	{"/run", `open("/run/x", "w").close()`, []policy.Op{{Kind: policy.Write, Path: "/run/x", Creates: true}}},
	{"own version of a file", `open("/etc/hosts", "r+").close()`, []policy.Op{{Kind: policy.Write, Path: "/etc/hosts"}}},
	{"own version's times", `os.utime("/etc/hosts")`, []policy.Op{{Kind: policy.Utime, Path: "/etc/hosts"}}},
	{"own name", `open("/proc/self/comm", "w").write("x")`, []policy.Op{{Kind: policy.Write, Path: "/proc/1/comm"}}},
	{"/proc/sys", `open("/proc/sys/kernel/hostname", "w").close()`, []policy.Op{{Kind: policy.Write, Path: "/proc/sys/kernel/hostname"}}},
	{"/sys", `os.mkdir("/sys/x")`, []policy.Op{{Kind: policy.Mkdir, Path: "/sys/x"}}},
	{"exec in /tmp", `put("/tmp/t"); subprocess.run(["/tmp/t"], check=True)`, []policy.Op{{Kind: policy.Exec, Path: "/tmp/t"}}},
	{"exec in /dev/shm", `put("/dev/shm/t"); subprocess.run(["/dev/shm/t"], check=True)`, []policy.Op{{Kind: policy.Exec, Path: "/dev/shm/t"}}},
	{"the root", `os.scandir("/").close()`, []policy.Op{{Kind: policy.Read, Path: "/"}}},
}

const operationTools = `
import errno, json, os, subprocess
results = {}
def away(path, to):
    os.rename(path, to)
    os.rename(to, path)
def put(path):
    with open(path, "wb") as to: to.write(PROGRAM)
    os.chmod(path, 0o755)
def act(name, code, names):
    try:
        exec(code, globals(), names)
        results[name] = "done"
    except OSError as problem:
        results[name] = errno.errorcode.get(problem.errno, str(problem.errno))
`

// furnish makes the places and what is in them.
func furnish(t *testing.T) string {
	t.Helper()
	base := newDirIn(t, "/var/tmp")
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	program := readFile(t, "/bin/true")
	for _, place := range places {
		dir := filepath.Join(base, place)
		for _, name := range []string{"f", "gone.f", "old.f"} {
			write(t, dir+"/"+name, "canary")
		}
		for _, name := range []string{"d", "gone.d"} {
			if err := os.Mkdir(dir+"/"+name, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, dir+"/x", program)
		if err := os.Chmod(dir+"/x", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("target", base+"/way"); err != nil {
		t.Fatal(err)
	}
	return base
}

// tryAll is a program that tries every row; with alone those on paths of their own
// as well, which outside of a jail would change the host.
func tryAll(base string, alone bool) string {
	var code strings.Builder
	code.WriteString(operationTools)
	fmt.Fprintf(&code, "PROGRAM = open(%q + '/work/plain/x', 'rb').read()\nB = %q\n", base, base)
	for _, o := range single {
		if alone {
			fmt.Fprintf(&code, "act(%q, %q, {})\n", o.name, o.code)
		}
	}
	for _, place := range places {
		for _, o := range operations {
			fmt.Fprintf(&code, "act(%q, %q, {'p': B + %q})\n", place+": "+o.name, o.code, "/"+place)
		}
	}
	return code.String()
}

// refusals are the errors in which a refusal may end: of a mount, of Landlock, of
// a mount point whose name is to stay or that is moved out of its mount, of what is
// covered or not shown, and of a stub in whose place nothing can be made.
var refusals = []string{"EACCES", "EROFS", "EPERM", "EBUSY", "ENOENT", "EEXIST", "ENOTDIR", "EISDIR", "EXDEV"}

// TestPolicyAndLinuxAgree: a table of operations in a table of places; what the
// policy says is refused is what Linux refuses, operation by operation.
func TestPolicyAndLinuxAgree(t *testing.T) {
	require(t, needLandlock)
	plain := "defaults: {}"
	listed := `defaults:
    read: {effect: deny, reason: r}
    exec: {effect: deny, reason: r}`
	for _, c := range []struct{ name, mode, defaults string }{
		{"enforce", "enforce", plain},
		{"enforce, listed", "enforce", listed},
		{"report", "report", plain},
		{"report, reading promoted", "report", `defaults: {read: {effect: deny, mode: enforce, reason: r}}`},
		{"report, writing promoted", "report", `defaults: {write: {effect: deny, mode: enforce, reason: r}}`},
		{"enforce, writing tried", "enforce", `defaults: {write: {effect: deny, mode: report, reason: r}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := furnish(t)
			text := strings.ReplaceAll(strings.Replace(ruledPolicy, "DEFAULTS", c.defaults, 1), "BASE", base)
			opts := []option{at(base + "/work"), document(t, text), mode(c.mode), skills()}
			s := open(t, opts...)
			judged := judge(t, opts...)
			if r := s.run(tryAll(base, true)); r.IsError {
				t.Fatal(r.Details.Error)
			}
			var got map[string]string
			if err := json.Unmarshal([]byte(s.ok("print(json.dumps(results))").Details.Stdout), &got); err != nil {
				t.Fatal(err)
			}
			check := func(name string, o operation, dir string) {
				denied, by := false, ""
				for _, op := range o.ops {
					if !filepath.IsAbs(op.Path) {
						op.Path = filepath.Join(dir, op.Path)
					}
					if d := judged.Decide(op); !d.Allowed() && d.Enforced {
						denied, by = true, d.Rule
					}
				}
				refused := slices.Contains(refusals, got[name])
				if got[name] != "done" && !refused || denied != refused {
					t.Errorf("%s: Linux says %s, the policy says refused %v %s", name, got[name], denied, by)
				}
			}
			for _, o := range single {
				check(o.name, o, base)
			}
			for _, place := range places {
				for _, o := range operations {
					check(place+": "+o.name, o, filepath.Join(base, place))
				}
			}
			s.kernel.Close()
			for _, stub := range []string{"absent", "absent-directory", "unseen"} {
				if info, err := os.Lstat(base + "/work/" + stub); err == nil && c.mode == "enforce" {
					t.Errorf("%s is left in the session directory: %v", stub, info.Mode())
				}
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		base := furnish(t)
		out := hostPython(t, base+"/work", tryAll(base, false)+"\nprint(json.dumps(results))")
		var got map[string]string
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		for name, result := range got {
			if result != "done" && strings.Contains(name, ": ") {
				t.Errorf("%s ends in %s outside of any jail too", name, result)
			}
		}
	})
}

// judge is the policy that a session with these options has.
func judge(t testing.TB, opts ...option) policy.Policy {
	t.Helper()
	o := kernel.Options{PythonBin: pythonBin()}
	for _, opt := range opts {
		opt(&o)
	}
	p, _, err := kernel.Policy(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
