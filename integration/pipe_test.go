package integration

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// pipeTools write to a FIFO in each way that there is.
const pipeTools = `
import os, subprocess, sys
def through(fd):
    try: os.write(fd, b"inside")
    finally: os.close(fd)
def by_open(flags): return lambda p: through(os.open(p, flags | os.O_NONBLOCK))
def from_there(p):
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(os.path.dirname(p))
        through(os.open(os.path.basename(p), os.O_WRONLY | os.O_NONBLOCK))
    finally: os.fchdir(here)
def by_link(p):
    os.path.lexists("way") or os.symlink(p, "way")
    try: through(os.open("way", os.O_WRONLY | os.O_NONBLOCK))
    finally: os.unlink("way")
def again(p):
    fd = os.open(p, os.O_PATH)
    try: through(os.open("/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_NONBLOCK))
    finally: os.close(fd)
def by_child(p):
    subprocess.run(["/bin/sh", "-c", 'exec 3<>"$0" && echo inside >&3', p], check=True, stderr=subprocess.DEVNULL)
WAYS = [by_open(os.O_WRONLY), by_open(os.O_RDWR), by_open(os.O_WRONLY | os.O_CREAT), by_open(os.O_WRONLY | os.O_TRUNC), from_there, by_link, again, by_child]
def reach(way, path):
    try: WAYS[way](path)
    except OSError as problem: return problem.strerror
    except subprocess.CalledProcessError: return "Permission denied"
    return "reached"
`

// pipeWays is how many WAYS there are.
const pipeWays = 8

// newPipe makes a FIFO that everybody may write to, with a reader that waits. heard is
// whether anything has come.
func newPipe(t *testing.T, path string) (heard func() bool) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	return func() bool {
		n, _ := syscall.Read(fd, make([]byte, 4096))
		return n > 0
	}
}

// TestPipesOfTheHost: a FIFO with a reader on the host is one of its ways in, and no mount
// that is read-only keeps anybody from writing to it. What is denied is told of once, and
// nothing arrives where a rule is enforced, beneath what the session may write, too.
func TestPipesOfTheHost(t *testing.T) {
	require(t, needUserns, needNotify)
	for _, c := range []struct {
		name, mode, rule string
		enforced         bool
	}{
		{"report", "report", "", false},
		{"a rule that is enforced in every mode", "report", ", mode: enforce", true},
		{"enforce", "enforce", "", true},
		{"shadow", "shadow", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, outside := newDirIn(t, "/var/tmp"), newDirIn(t, "/var/tmp")
			for _, d := range []string{dir + "/ctl", dir + "/free"} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(outside, 0o777); err != nil {
				t.Fatal(err)
			}
			denied := map[string]func() bool{}
			for _, path := range []string{outside + "/pipe", dir + "/ctl/pipe", dir + "/pipe"} {
				denied[path] = newPipe(t, path)
			}
			own := newPipe(t, dir+"/free/pipe")
			s := open(t, inMode(t, c.mode), at(dir), document(t, fmt.Sprintf(`version: 1
name: pipes
fs:
  rules:
    - {path: "${session}", access: [write], effect: allow, reason: its own}
    - {path: "${session}/ctl", access: [write], effect: deny, reason: the operator's%[1]s}
    - {path: "${session}/pipe", access: [write], effect: deny, reason: the operator's%[1]s}
    - {path: %[2]s, access: [write], effect: deny, reason: the operator's%[1]s}
`, c.rule, outside)))
			s.ok(pipeTools)
			for way := range pipeWays {
				for path, heard := range denied {
					r := s.ok(fmt.Sprintf("reach(%d, %s)", way, literal(path)))
					told, got := r.violations(), strings.Trim(r.value(), "'")
					layered := c.mode == "shadow" && path == outside+"/pipe" // the layer's own, with no reader
					if (got == "reached") == c.enforced && !layered || heard() == c.enforced {
						t.Errorf("way %d to %s: %s", way, path, got)
					}
					if len(told) != 1 || told[0].Op != "write" || told[0].Path != path || (told[0].Decision == "denied") != (c.enforced && !layered) {
						t.Errorf("way %d to %s: %s, told of %+v", way, path, got, told)
					}
				}
				if r := s.ok(fmt.Sprintf("reach(%d, %s)", way, literal(dir+"/free/pipe"))); r.value() != "'reached'" || !own() || len(r.violations()) != 0 {
					t.Errorf("way %d to its own: %s, %+v", way, r.value(), r.violations())
				}
			}
		})
	}
}

// TestPipesOfOtherSessionsFromStock: Landlock knows of the directory of all sessions there,
// and not which of them a worker is to get.
func TestPipesOfOtherSessionsFromStock(t *testing.T) {
	require(t, needUserns, needNotify)
	for _, way := range bothWays {
		t.Run(string(way), func(t *testing.T) {
			next := fromStock(t, way, profile("default"), mode("enforce"))
			first := next()
			dir := strings.Trim(first.ok("import os; os.getcwd()").value(), "'")
			heard := newPipe(t, dir+"/pipe")
			second := next()
			second.ok(pipeTools)
			for _, s := range []*session{second, first} {
				s.ok(pipeTools)
				for way := range pipeWays {
					r := s.ok(fmt.Sprintf("reach(%d, %s)", way, literal(dir+"/pipe")))
					if own := s == first; (r.value() == "'reached'") != own || heard() != own || (len(r.violations()) == 0) != own {
						t.Errorf("way %d, its own %t: %s, told of %+v", way, own, r.value(), r.violations())
					}
				}
			}
		})
	}
}
