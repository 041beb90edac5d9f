package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// readAttacks try to see what is in SECRET, a file below a directory that the
// default policy covers, each on another way. They print whatever they get.
var readAttacks = []struct{ name, code string }{
	{"by its path", `print(open(SECRET).read())`},
	{"by a link", `os.path.lexists("l") or os.symlink(SECRET, "l"); print(open("l").read())`},
	{"by a chain of links", `
for here, there in (("l1", "l2"), ("l2", "l3"), ("l3", os.path.dirname(SECRET))): os.path.lexists(here) or os.symlink(there, here)
print(open("l1/" + os.path.basename(SECRET)).read())`},
	{"by /proc/self/root", `print(open("/proc/self/root" + SECRET).read())`},
	{"by /proc/self/cwd", `print(open("/proc/self/cwd/" + os.path.relpath(SECRET)).read())`},
	{"by the parent's root", `print(open(f"/proc/{os.getppid()}/root" + SECRET).read())`},
	{"by a directory's descriptor and ..", `
fd = os.open("/usr", os.O_RDONLY)
print(os.read(os.open(".." + SECRET, os.O_RDONLY, dir_fd=fd), 100))`},
	{"by a descriptor without rights, opened again", `
fd = os.open(SECRET, os.O_PATH)
print(open(f"/proc/self/fd/{fd}").read(), open(f"/dev/fd/{fd}").read())`},
	{"by the directory's descriptor without rights", `
fd = os.open(os.path.dirname(SECRET), os.O_PATH)
print(os.read(os.open(os.path.basename(SECRET), os.O_RDONLY, dir_fd=fd), 100))`},
	{"after fchdir", `
here = os.getcwd(); os.fchdir(os.open(os.path.dirname(SECRET), os.O_RDONLY))
try: print(open(os.path.basename(SECRET)).read())
finally: os.chdir(here)`},
	{"by a name in the session", `os.path.exists("hard") or os.link(SECRET, "hard"); print(open("hard").read())`},
	{"by a copy of the directory", `
import shutil
shutil.copytree(os.path.dirname(SECRET), "copied", dirs_exist_ok=True); print(open("copied/" + os.path.basename(SECRET)).read())`},
	{"by renaming the directory", `
os.rename(os.path.dirname(SECRET), os.path.dirname(SECRET) + "2"); print(open(os.path.dirname(SECRET) + "2/" + os.path.basename(SECRET)).read())`},
	{"by a child", `print(subprocess.run(["cat", SECRET], capture_output=True, text=True).stdout)`},
	{"by sendfile", `
r, w = os.pipe(); fd = os.open(SECRET, os.O_RDONLY); os.sendfile(w, fd, 0, 100); print(os.read(r, 100))`},
	{"by a mapping", `
import mmap
print(mmap.mmap(os.open(SECRET, os.O_RDONLY), 0, prot=mmap.PROT_READ)[:])`},
	{"by its size", `print("canary" if os.stat(SECRET).st_size == 10 else "")`},
	{"by the names beside it", `print("canary" if os.path.basename(SECRET) in os.listdir(os.path.dirname(SECRET)) else "")`},
	{"by its attributes", `print(os.getxattr(SECRET, "user.note"))`},
	{"by a watch of its directory", `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0o4000)
if libc.inotify_add_watch(fd, SECRET.encode(), 0xfff) < 0: raise OSError("no watch")
print("canary")`},
}

// TestAttacksOnSecrets: what the policy covers is seen on no way, in no mode, and
// the host's file stays. The control sees it on each.
func TestAttacksOnSecrets(t *testing.T) {
	secretIn := func(t *testing.T) string {
		home := newDirIn(t, "/var/tmp")
		if err := os.Chmod(home, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, home+"/.ssh/id_canary", "the-canary")
		if err := exec.Command(pythonBin(), "-c", "import os, sys; os.setxattr(sys.argv[1], 'user.note', b'canary')", home+"/.ssh/id_canary").Run(); err != nil {
			t.Fatal(err)
		}
		return home
	}
	tools := func(home string) string {
		return fmt.Sprintf("import os, subprocess\nSECRET = %q\n", home+"/.ssh/id_canary")
	}
	for _, a := range readAttacks {
		t.Run("control/"+a.name, func(t *testing.T) {
			contains(t, "outside the jail", hostPython(t, newDirIn(t, "/var/tmp"), tools(secretIn(t))+a.code), "canary")
		})
	}
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			home := secretIn(t)
			t.Setenv("HOME", home)
			s := open(t, inMode(t, m), at(newDirIn(t, "/var/tmp")))
			s.ok(tools(home))
			for _, a := range readAttacks {
				t.Run(a.name, func(t *testing.T) {
					s.t = t
					r := s.run(a.code)
					lacks(t, "what the session sees", r.Details.Stdout+r.value(), "canary\"")
					if strings.Contains(r.Details.Stdout, "canary") {
						t.Errorf("the session sees it: %s", r)
					}
					if got := readFile(t, home+"/.ssh/id_canary"); got != "the-canary" {
						t.Errorf("the host has %q", got)
					}
				})
			}
			s.t = t
			s.alive()
		})
	}
}

// TestSessionsSeeNothingOfEachOther: of two that run at once, and of one that runs
// after another in the same place of its own.
func TestSessionsSeeNothingOfEachOther(t *testing.T) {
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			first := open(t, inMode(t, m))
			first.ok(`
import os, tempfile
open("/tmp/canary-tmp", "w").write("canary"); open("/dev/shm/canary-shm", "w").write("canary")
os.makedirs(os.path.expanduser("~/.config"), exist_ok=True); open(os.path.expanduser("~/.config/canary-home"), "w").write("canary")
os.environ["CANARY_ENV"] = "canary"
assert os.path.exists("/tmp/canary-tmp") and os.path.exists("/dev/shm/canary-shm")`)
			const look = `
import os
def look():
    seen = [os.path.join(at, n) for top in ("/tmp", "/dev/shm", "/run", os.path.expanduser("~")) for at, _, names in os.walk(top) for n in names if "canary" in n]
    for p in os.listdir("/proc"):
        if p.isdigit():
            try: seen += [p] if b"CANARY" in open(f"/proc/{p}/environ", "rb").read() else []
            except OSError: pass
    return seen
look()`
			open(t, inMode(t, m)).shows(look, "[]")
			first.kernel.Close()
			open(t, inMode(t, m)).shows(look, "[]")
		})
	}
}
