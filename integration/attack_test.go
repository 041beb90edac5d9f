package integration

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// attack is one attempt to get out or to reach what is not the session's. Its
// code is Python that assigns to verdict: "done" when it worked, an errno's name
// when it was refused, "killed by N" when the process that tried it died.
//
// The control runs the same code outside the jail, where it must not be
// refused in that way: else the refusal inside proves nothing.
type attack struct {
	name    string
	code    string
	refused []string // what the attempt may end in, inside
	where   control
	needs   []string // of the control
	race    bool     // it changes names between the observer's look and Linux's
}

// control says where the attempt is shown to work.
type control int

const (
	plain      control = iota // as the tests' user, outside any jail
	namespaced                // as root of namespaces of its own, outside any jail
	asRoot                    // as real root; an ordinary user skips the control
)

// attackTools is what every attack may call.
const attackTools = `
import ctypes, errno, os, signal, socket, struct, sys
linux = ctypes.CDLL(None, use_errno=True)
linux.syscall.restype = ctypes.c_long

def raw(number, *args):
    ctypes.set_errno(0)
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = linux.syscall(ctypes.c_long(number), *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result

def attempt(act, *args):
    try:
        act(*args)
        return "done"
    except OSError as problem:
        return errno.errorcode.get(problem.errno, str(problem.errno))

def in_child(act, *args):
    back, forth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(forth, attempt(act, *args).encode())
        os._exit(0)
    os.close(forth)
    said = b""
    while True:
        part = os.read(back, 100)
        if not part: break
        said += part
    os.close(back)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return f"killed by {os.WTERMSIG(status)}"
    return said.decode()
`

// runAttacks tries every row in each mode, and its control once.
func runAttacks(t *testing.T, rows []attack, modes []string, opts ...option) {
	t.Helper()
	for _, m := range modes {
		t.Run(m, func(t *testing.T) {
			t.Parallel()
			s := open(t, append([]option{inMode(t, m)}, opts...)...)
			s.ok(attackTools)
			for _, a := range rows {
				t.Run(a.name, func(t *testing.T) {
					s.t = t
					r := s.run(a.code + "\nverdict")
					got := strings.Trim(r.value(), "'")
					if r.IsError {
						got = r.ename() + ": " + r.Details.Error.Value
					}
					if !slices.Contains(a.refused, got) {
						t.Errorf("inside the jail: %s, want one of %v\n%.1500s", got, a.refused, r.traceback())
					}
				})
			}
			s.t = t
			s.alive()
		})
	}
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		for _, a := range rows {
			t.Run(a.name, func(t *testing.T) {
				got := runControl(t, a)
				switch {
				case slices.Contains([]string{"ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"}, got):
					t.Skipf("this Linux does not have it: %s", got)
				case got == "ENOENT" && strings.Contains(a.code, "os.open"):
					t.Skip("the host has no such file")
				case got == "killed by 11":
					t.Skip("this Linux has no 32-bit gate")
				case slices.Contains(a.refused, got):
					t.Errorf("outside the jail it ends in %s too, so the refusal proves nothing", got)
				}
			})
		}
	})
}

// runControl runs an attack outside the jail and returns how it ended.
func runControl(t *testing.T, a attack) string {
	t.Helper()
	require(t, a.needs...)
	args := []string{pythonBin(), "-c", attackTools + a.code + "\nprint(verdict)"}
	switch a.where {
	case asRoot:
		require(t, needRoot)
	case namespaced:
		require(t, needUserns)
		args = append([]string{"unshare", "--user", "--map-root-user", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = newDir(t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("control: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

var (
	bothModes = []string{"report", "enforce"}
	everyMode = []string{"report", "shadow", "enforce"}
)

// inMode opens a session in a mode; in mode shadow with a state of its own.
func inMode(t testing.TB, m string) option {
	t.Helper()
	if m != "shadow" {
		return mode(m)
	}
	require(t, needOverlay)
	return shadowIn(newDirIn(t, "/var/tmp"))
}
