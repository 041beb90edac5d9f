package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// memoryPrograms make a program of memory that has no path, and execute it.
const memoryPrograms = `
import ctypes, os, shutil, subprocess
TRUE = open("/usr/bin/true", "rb").read()
def status_of(how):
    child = os.fork()
    if child == 0:
        try: how()
        except OSError as problem: os._exit(100 + problem.errno)
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def run(flags, how):
    try: fd = os.memfd_create("program", flags)
    except OSError as problem: return "none: " + problem.strerror
    try:
        os.write(fd, TRUE)
        try: os.fchmod(fd, 0o755)
        except OSError as problem: pass
        name = "/proc/self/fd/%d" % fd
        ways = {
            "by its descriptor": lambda: os.execve(fd, ["true"], {}),
            "by its name in proc": lambda: os.execve(name, ["true"], {}),
            "by another's name in proc": lambda: os.execve("/proc/%d/fd/%d" % (os.getppid(), fd), ["true"], {}),
        }
        code = status_of(ways[how])
        return "ran" if code == 0 else os.strerror(code - 100)
    finally: os.close(fd)
`

// TestAListOfProgramsHasNoMemory: memory without a path is on no list, and Landlock asks for
// none. It is to be had as what cannot be executed, as with vm.memfd_noexec at 2.
func TestAListOfProgramsHasNoMemory(t *testing.T) {
	require(t, needLandlock)
	listed := document(t, `version: 1
name: programs
fs:
  defaults:
    exec: {effect: deny, reason: a list}
  rules:
    - {path: "${session}", access: [write], effect: allow, reason: its own}
    - {path: /usr, access: [exec], effect: allow, reason: programs of the system}
`)
	const plain, executable, sealed = 0, 0x10, 0x8 // MFD_EXEC, MFD_NOEXEC_SEAL
	s, free, tells := open(t, mode("enforce"), listed), open(t, mode("enforce")), open(t, mode("report"), listed)
	s.ok(memoryPrograms)
	tells.ok(memoryPrograms)
	free.ok(memoryPrograms)
	s.shows(`status_of(lambda: os.execv("/usr/bin/true", ["true"]))`, "0")
	for _, how := range []string{"by its descriptor", "by its name in proc", "by another's name in proc"} {
		for _, flags := range []int{plain, executable} {
			code := fmt.Sprintf("run(%d, %s)", flags, literal(how))
			free.shows(code, "'ran'")
			if told := tells.shows(code, "'ran'").violations(); len(told) != 1 || told[0].Op != "exec" || told[0].Path != "" {
				t.Errorf("%s: told of %+v", code, told)
			}
			s.shows(code, "'none: Permission denied'")
		}
		code := fmt.Sprintf("run(%d, %s)", sealed, literal(how))
		free.shows(code, "'Permission denied'")
		s.shows(code, "'Permission denied'")
	}
	s.shows(`os.close(os.memfd_create("data", 8))`, "")
}

// TestNoIDIsLeftOnFiles: a program with one of these bits, left in the session directory,
// would run with its owner's or its group's rights for whoever starts it on the host: root's,
// where the launcher is root. Set-group-ID, which shared directories have, is refused where
// the session could do no worse.
func TestNoIDIsLeftOnFiles(t *testing.T) {
	require(t, needRoot)
	const tools = `
import os
def made(n):
    open(n, "w").close()
    return n
def handle(n, bits):
    with open(made(n)) as f: os.fchmod(f.fileno(), bits)
def at(n, bits):
    here = os.open(".", os.O_RDONLY)
    try: os.chmod(made(n), bits, dir_fd=here)
    finally: os.close(here)
WAYS = {
    "chmod": lambda n, bits: os.chmod(made(n), bits),
    "fchmod": handle,
    "fchmodat": at,
    "open": lambda n, bits: os.close(os.open(n, os.O_CREAT | os.O_WRONLY, bits)),
    "mknod": lambda n, bits: os.mknod(n, bits),
}
def leave(way, bits):
    name = "%s-%o" % (way, bits)
    try: WAYS[way](name, bits)
    except OSError as problem: return problem.strerror
    return "left"
os.umask(0)
[leave(way, 0o755) for way in WAYS]
`
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			dir := newDirIn(t, "/var/tmp")
			s := open(t, inMode(t, m), at(dir))
			s.shows(tools, "["+strings.TrimSuffix(strings.Repeat("'left', ", 5), ", ")+"]")
			for _, way := range []string{"chmod", "fchmod", "fchmodat", "open", "mknod"} {
				for _, bits := range []int{0o4755, 0o2755, 0o6755} {
					if bits == 0o2755 && m != "enforce" && strings.Contains(way, "chmod") {
						s.shows(fmt.Sprintf("leave(%s, %d)", literal(way), bits), "'left'")
						s.ok(fmt.Sprintf("os.unlink('%s-%o')", way, bits))
						continue
					}
					s.shows(fmt.Sprintf("leave(%s, %d)", literal(way), bits), "'Operation not permitted'")
				}
			}
			files, err := os.ReadDir(dir)
			if err != nil || m != "shadow" && len(files) < 5 {
				t.Fatalf("%d files, %v", len(files), err)
			}
			for _, f := range files {
				info, err := f.Info()
				if err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
					t.Errorf("%s on the host: %v, %v", f.Name(), info, err)
				}
			}
		})
	}
}
