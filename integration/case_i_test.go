package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestCasesI: confinement.
func TestCasesI(t *testing.T) { runCases(t, casesI) }

var casesI = []bugCase{
	{id: "I1", title: "descriptors of the launcher", do: func(t *testing.T, c bugCase) {
		dir := newDir(t)
		secret := newDir(t) + "/secret"
		write(t, secret, "canary")
		code := `
import os, subprocess, sys
held = {}
for name in os.listdir("/proc/self/fd"):
    try:
        held[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        pass
child = subprocess.run([sys.executable, "-c", "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])"], capture_output=True, text=True).stdout.strip()
(9 in held, 2048 in held, len(held) <= 4, any("secret" in v or v == "/" for v in held.values()), child)`
		// The shell opens both without close-on-exec and becomes the launcher.
		script := `ulimit -n 4096; exec 9<"$1"; exec 2048<"$1"; shift; exec "$@"`
		cmd := exec.Command("bash", "-c", script, "bash", secret, binary(t), "run", "--json", "--mode", "enforce",
			"--session", dir, "--python", pythonBin(), "-c", code)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		r := decodeReply(t, out)
		if r.value() != "(False, False, True, False, '[0, 1, 2]')" {
			t.Errorf("value %s: %s", r.value(), r)
		}
	}},

	{id: "I5", title: "sessions cannot see each other", do: func(t *testing.T, c bugCase) {
		first, second := open(t), open(t)
		first.ok(`
import os, subprocess, socket, pathlib
child = subprocess.Popen(["sleep", "4321"])
pathlib.Path("/tmp/mark-first").write_text("1")
pathlib.Path("/dev/shm/mark-first").write_text("1")
loose = socket.socket(socket.AF_UNIX); loose.bind("\0mark-first"); loose.listen()`)
		second.shows(`
import os, socket
def command(pid):
    try: return open(f"/proc/{pid}/cmdline").read()
    except OSError: return ""
seen = [p for p in os.listdir("/proc") if p.isdigit() and "4321" in command(p)]
try:
    socket.socket(socket.AF_UNIX).connect("\0mark-first"); linked = True
except OSError:
    linked = False
(seen, os.path.exists("/tmp/mark-first"), os.path.exists("/dev/shm/mark-first"), linked)`, "([], False, False, False)")
		second.shows("os.path.exists("+quote(first.dir+"/f")+") or os.path.exists("+quote(first.dir)+") and os.access("+quote(first.dir)+", os.W_OK)", "False")
		// Every pid that the second can name lies in its own namespace.
		second.ok(`
import signal
me = os.getpid()
for pid in range(2, 400):
    if pid != me:
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass`)
		first.shows("child.poll() is None", "True")
		first.ok("child.kill()")
	}},

	{id: "I6", title: "no spare powers", cells: []cell{{
		code: `
import os
state = dict(line.rstrip("\n").split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
try:
    os.setuid(0)
    risen = True
except OSError:
    risen = False
(int(state["CapEff"], 16), state["NoNewPrivs"], state["Seccomp"], risen or os.geteuid() == 0)`,
		value: "(0, '1', '2', False)"},
		{code: `[int(state[k], 16) for k in ("CapInh", "CapPrm", "CapBnd", "CapAmb")]`, value: "[0, 0, 0, 0]"},
		{code: `
import subprocess
[line for line in subprocess.getoutput("cat /proc/self/status").splitlines() if line.startswith(("CapEff", "NoNewPrivs"))]`,
			check: func(t *testing.T, s *session, r reply) {
				if !strings.Contains(r.value(), `CapEff:\t0000000000000000`) || !strings.Contains(r.value(), `NoNewPrivs:\t1`) {
					t.Errorf("a child: %s", r.value())
				}
			}},
	}},
}
