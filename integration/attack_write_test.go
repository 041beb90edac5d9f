package integration

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/integration/need"
	"cellblock/kernel"
)

// outside makes a directory that the tests' user may change and no session may,
// with canaries in it, and returns a function that tells its whole state.
func outside(t testing.TB) (string, func() string) {
	t.Helper()
	dir := newDirIn(t, "/var/tmp")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "victim", "script"} {
		write(t, dir+"/"+name, "canary\n")
		if err := os.Chmod(dir+"/"+name, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/empty", 0o777); err != nil {
		t.Fatal(err)
	}
	return dir, func() string {
		var state strings.Builder
		filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			info, err := os.Lstat(path)
			if err != nil {
				return err
			}
			var data []byte
			if info.Mode().IsRegular() { // a FIFO would wait for a writer
				data, _ = os.ReadFile(path)
			}
			s := info.Sys().(*syscall.Stat_t)
			fmt.Fprintf(&state, "%q %v %d:%d %d names %v %s %q\n", strings.TrimPrefix(path, dir), info.Mode(), s.Uid, s.Gid, s.Nlink, info.ModTime(), attributesOf(path), data)
			return nil
		})
		return state.String()
	}
}

// writeAttacks change something beneath OUT. Each undoes nothing: the control
// runs in a directory of its own.
var writeAttacks = []attack{
	{name: "open for writing", code: `verdict = attempt(open, OUT + "/file", "w")`},
	{name: "open for appending", code: `verdict = attempt(open, OUT + "/file", "a")`},
	{name: "create", code: `verdict = attempt(open, OUT + "/new", "x")`},
	{name: "O_TMPFILE", code: `verdict = attempt(os.open, OUT, os.O_TMPFILE | os.O_RDWR)`},
	{name: "by a directory's descriptor and ..", code: `
fd = os.open(OUT + "/empty", os.O_RDONLY)
verdict = attempt(lambda: os.open("../file", os.O_WRONLY, dir_fd=fd))`},
	{name: "by /proc/self/root", code: `verdict = attempt(open, "/proc/self/root" + OUT + "/file", "w")`},
	{name: "by /proc/self/cwd and ..", code: `verdict = attempt(open, "/proc/self/cwd/" + os.path.relpath(OUT, os.getcwd()) + "/file", "w") if not os.getcwd().startswith("/tmp") else attempt(open, OUT + "/file", "w")`},
	{name: "reopened by /proc/self/fd", code: `
fd = os.open(OUT + "/file", os.O_RDONLY)
verdict = attempt(open, f"/proc/self/fd/{fd}", "w")`},
	{name: "O_PATH reopened", code: `
fd = os.open(OUT + "/file", os.O_PATH)
verdict = attempt(open, f"/proc/self/fd/{fd}", "w")`},
	{name: "through a symbolic link in the session", code: `
os.path.lexists("way") or os.symlink(OUT + "/file", "way")
verdict = attempt(open, "way", "w")`},
	{name: "through a symbolic link to the directory", code: `
os.path.lexists("dirway") or os.symlink(OUT, "dirway")
verdict = attempt(open, "dirway/new2", "w")`},
	{name: "rename out", code: `
open("mine", "w").close()
import ctypes
verdict = attempt(os.rename, "mine", OUT + "/mine")`, refused: []string{"EXDEV", "EROFS", "EACCES", "EPERM"}},
	{name: "rename within", code: `verdict = attempt(os.rename, OUT + "/victim", OUT + "/renamed")`, names: 2},
	{name: "exchange", code: `
raw_exchange = lambda: raw(316, -100, (OUT + "/file").encode(), -100, (OUT + "/script").encode(), 2)
verdict = attempt(raw_exchange)`, names: 2},
	{name: "link out", code: `
open("linked", "w").close()
verdict = attempt(os.link, OUT + "/file", OUT + "/hard")`},
	{name: "unlink", code: `verdict = attempt(os.unlink, OUT + "/script")`},
	{name: "mkdir", code: `verdict = attempt(os.mkdir, OUT + "/sub")`},
	{name: "rmdir", code: `verdict = attempt(os.rmdir, OUT + "/empty")`},
	{name: "mkfifo", code: `verdict = attempt(os.mkfifo, OUT + "/pipe")`},
	{name: "symlink", code: `verdict = attempt(os.symlink, "x", OUT + "/sym")`},
	{name: "bind a Unix socket", code: `verdict = attempt(socket.socket(socket.AF_UNIX).bind, OUT + "/sock")`},
	{name: "truncate", code: `verdict = attempt(os.truncate, OUT + "/file", 0)`},
	{name: "chmod", code: `verdict = attempt(os.chmod, OUT + "/file", 0o600)`},
	{name: "fchmod by a read-only descriptor", code: `verdict = attempt(os.fchmod, os.open(OUT + "/file", os.O_RDONLY), 0o600)`},
	{name: "utime", code: `verdict = attempt(os.utime, OUT + "/file", (1, 1))`},
	{name: "setxattr", code: `verdict = attempt(os.setxattr, OUT + "/file", "user.canary", b"x")`},
	{name: "FS_IOC_SETFLAGS", code: `
import fcntl
def flag_it():
    fd = os.open(OUT + "/file", os.O_RDONLY)
    now = struct.unpack("l", fcntl.ioctl(fd, 0x80086601, bytes(8)))[0]
    fcntl.ioctl(fd, 0x40086602, struct.pack("l", now | 0x40))
verdict = attempt(flag_it)`},
	{name: "shared writable mapping", code: `
import mmap
def dirty():
    fd = os.open(OUT + "/file", os.O_RDWR)
    m = mmap.mmap(fd, 0); m[0:1] = b"X"; m.flush()
verdict = attempt(dirty)`},
	{name: "by a child of another program", code: `
import subprocess
said = subprocess.run(["sh", "-c", "echo evil > '" + OUT + "/file'"], capture_output=True, text=True)
verdict = "done" if said.returncode == 0 else ("EROFS" if "Read-only" in said.stderr else "EACCES")`},
	{name: "by a grandchild after its parent ended", code: `
import time
def orphan():
    if os.fork() == 0:
        time.sleep(0.3)
        try: open(OUT + "/orphan", "w").close()
        finally: os._exit(0)
    os._exit(0)
pid = os.fork()
if pid == 0: orphan()
os.waitpid(pid, 0); time.sleep(0.8)
verdict = "done" if os.path.exists(OUT + "/orphan") else "EROFS"`},
	{name: "by a thread", code: `
import threading
said = []
th = threading.Thread(target=lambda: said.append(attempt(open, OUT + "/file", "w"))); th.start(); th.join()
verdict = said[0]`},
	{name: "by C code", code: `
linux.open.restype = ctypes.c_int
ctypes.set_errno(0)
verdict = "done" if linux.open((OUT + "/file").encode(), os.O_WRONLY) >= 0 else errno.errorcode[ctypes.get_errno()]`},
	{name: "by sqlite", code: `
import sqlite3
try:
    db = sqlite3.connect(OUT + "/new.db"); db.execute("create table t(a)"); db.commit(); verdict = "done"
except sqlite3.Error: verdict = "EROFS"`},
}

// attributesOf are the names of a file's extended attributes.
func attributesOf(path string) string {
	list := make([]byte, 4096)
	n, err := unix.Llistxattr(path, list)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(list[:n]), "\x00", " ")
}

// fileAttacks are all attempts to change something beneath OUT.
func fileAttacks() []attack {
	rows := slices.Concat(writeAttacks, linkAttacks, resolveAttacks, metadataAttacks, nameAttacks, transferAttacks)
	for i := range rows {
		if rows[i].refused == nil {
			rows[i].refused = []string{"EROFS", "EACCES", "EPERM"}
		}
	}
	return rows
}

// TestAttacksOnFiles: no change outside of the session directory under enforce, on
// whatever way; none on the host in mode shadow, whatever the session then sees;
// under report the same attempts work and are told. The control is outside.
func TestAttacksOnFiles(t *testing.T) {
	rows := fileAttacks()
	t.Run("enforce", func(t *testing.T) { enforced(t, rows) })
	t.Run("shadow", func(t *testing.T) {
		require(t, needOverlay)
		unchanged(t, rows)
	})
	t.Run("report", func(t *testing.T) { reported(t, rows) })
	t.Run("control", func(t *testing.T) {
		for _, a := range rows {
			t.Run(a.name, func(t *testing.T) {
				if a.where == asRoot {
					require(t, needRoot)
				}
				free, _ := outside(t)
				session := newDirIn(t, "/var/tmp")
				got := hostPython(t, session, attackOn(free, 20000)+"\n"+a.code+"\nprint(verdict)")
				if slices.Contains([]string{"ENOTTY", "ENOTSUP", "EOPNOTSUPP", "ENOSYS"}, got) {
					need.Absent(t, "files", a.name+": this Linux, or file system, ends it in "+got)
				}
				if got != "done" {
					t.Errorf("outside the jail it ends in %s", got)
				}
			})
		}
	})
}

// attackOn are the tools, with the directory that is attacked. A race runs for so
// many tries.
func attackOn(dir string, tries int) string {
	return fmt.Sprintf("%s\nOUT, TRIES = %q, %d", attackTools, dir, tries)
}

// enforced expects each attempt to be refused, and nothing outside to change.
func enforced(t *testing.T, rows []attack) {
	dir, state := outside(t)
	before := state()
	s := open(t, at(newDirIn(t, "/var/tmp")))
	s.ok(attackOn(dir, 10000))
	for _, a := range rows {
		t.Run(a.name, func(t *testing.T) {
			s.t = t
			r := s.run(a.code + "\nverdict")
			if got := strings.Trim(r.value(), "'"); !slices.Contains(a.refused, got) {
				t.Errorf("inside the jail: %q, want one of %v: %s", got, a.refused, r)
			}
			if now := state(); now != before {
				t.Errorf("what lies outside changed from\n%sto\n%s", before, now)
				before = now
			}
		})
	}
	s.t = t
	s.alive()
}

// unchanged expects the host to stay as it is, whatever the session is told, until
// after its end.
func unchanged(t *testing.T, rows []attack) {
	s := open(t, shadowIn(newDirIn(t, "/var/tmp")), at(newDirIn(t, "/var/tmp")))
	for _, a := range rows {
		dir, state := outside(t)
		before := state()
		same := func(t *testing.T, when string) {
			if now := state(); now != before {
				t.Errorf("%s: the host changed %s from\n%sto\n%s", a.name, when, before, now)
			}
		}
		t.Run(a.name, func(t *testing.T) {
			s.t = t
			s.ok(attackOn(dir, 200))
			s.run(a.code)
			same(t, "at once")
		})
		defer same(t, "at the end of the session")
	}
	s.t = t
	s.alive()
	if err := s.kernel.Close(); err != nil {
		t.Error(err)
	}
}

// reported expects each attempt to do what it does outside, and to be told as one
// that would be denied, when it changes anything.
func reported(t *testing.T, rows []attack) {
	s := open(t, mode("report"), at(newDirIn(t, "/var/tmp")))
	for _, a := range rows {
		t.Run(a.name, func(t *testing.T) {
			s.t = t
			dir, state := outside(t)
			before := state()
			s.ok(attackOn(dir, 200))
			r := s.run(a.code + "\nverdict")
			if r.IsError {
				t.Fatalf("%s", r)
			}
			var told []kernel.Violation
			if err := json.Unmarshal(r.Details.Policy.Violations, &told); err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(told, func(v kernel.Violation) bool {
				return strings.HasPrefix(v.Path, dir) && v.Decision == "would be denied"
			})
			if state() != before && !found && !a.race {
				t.Errorf("it ended in %s, changed what lies outside, and nothing tells: %s", r.value(), r)
			}
		})
	}
	s.t = t
	s.alive()
}
