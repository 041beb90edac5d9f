package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"cellblock/kernel"
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
	names   int      // of OUT that the policy keeps from it; 0 counts as one, keptApart as none
}

// keptApart is of an attempt that the policy has nothing against, since it makes a name of
// the session's own: that the names lie in two mounts is what refuses it, in every mode.
const keptApart = -1

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

// runAttacks tries every row in each mode, and its control once: by workers that were
// executed, and by those that a warm parent has forked, where these can be had.
func runAttacks(t *testing.T, rows []attack, modes []string, opts ...option) {
	t.Helper()
	for _, m := range modes {
		for _, forked := range []bool{false, true} {
			name := m
			if forked {
				name += " forked"
				if m == "shadow" {
					continue // no stock
				}
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				all := append([]option{inMode(t, m)}, opts...)
				var s *session
				if forked {
					s = fromStock(t, kernel.WayFork, all...)()
				} else {
					s = open(t, all...)
				}
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
	}
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		controls := map[control]func() (map[string]string, error){}
		for _, where := range []control{plain, namespaced, asRoot} {
			controls[where] = sync.OnceValues(func() (map[string]string, error) { return runControls(t, rows, where) })
		}
		for _, a := range rows {
			t.Run(a.name, func(t *testing.T) {
				require(t, a.needs...)
				if need := map[control]string{asRoot: needRoot, namespaced: needUserns}[a.where]; need != "" {
					require(t, need)
				}
				all, err := controls[a.where]()
				if err != nil {
					t.Fatal(err)
				}
				got := all[a.name]
				switch {
				case got == "" || strings.HasPrefix(got, "it failed"):
					t.Errorf("control: %q %s", got, all)
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

// controlLoop makes each attempt of a list in a process of its own, and tells how it ended.
const controlLoop = `
import json
for name, code in json.load(sys.stdin):
    come, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(come)
        names = dict(globals())
        try: exec(code, names); said = names["verdict"]
        except BaseException as problem: said = "it failed: %r" % problem
        os.write(go, said.encode()); os._exit(0)
    os.close(go)
    with open(come) as answer: said = answer.read()
    os.waitpid(child, 0)
    print(json.dumps([name, said]), flush=True)
`

// runControls makes those attempts outside of the jail whose control is there, and
// returns how each ended, by its name.
func runControls(t *testing.T, rows []attack, where control) (map[string]string, error) {
	args := []string{pythonBin(), "-c", attackTools + controlLoop}
	if where == namespaced {
		args = append([]string{"unshare", "--user", "--map-root-user", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--"}, args...)
	}
	var list [][2]string
	for _, a := range rows {
		if a.where == where {
			list = append(list, [2]string{a.name, a.code})
		}
	}
	asked, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stdin = newDir(t), bytes.NewReader(asked)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("control: %w\n%s%s", err, out, problems.String())
	}
	ended := map[string]string{}
	for line := range strings.Lines(string(out)) {
		var said [2]string
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			return nil, fmt.Errorf("control: %w: %s", err, line)
		}
		ended[said[0]] = said[1]
	}
	return ended, nil
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
