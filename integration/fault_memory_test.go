package integration

import (
	"strings"
	"testing"

	"cellblock/integration/need"
	"cellblock/jail"
)

// TestWithoutMemory: whichever way a session uses up its memory, the cell is told or the
// worker's end has that cause and names the limit; others notice nothing, and the next
// cell runs. Where no control group keeps the limit each process has it for itself.
func TestWithoutMemory(t *testing.T) {
	together := jail.Probe().Get(jail.CgroupMemory).Yes()
	for _, c := range []struct {
		name, code string
		together   bool // only a limit of all processes together is reached
		told       []string
	}{
		{name: "one large object", code: `bytearray(b"x") * (1 << 30)`, told: []string{"MemoryError"}},
		{name: "native code", code: "import mmap\nheld = []\nwhile True:\n    m = mmap.mmap(-1, 1 << 20); m[:] = b'x' * (1 << 20); held.append(m)", told: []string{"OSError"}, together: true},
		{name: "a child", code: `
import subprocess, sys
r = subprocess.run([sys.executable, "-c", "x = bytearray(b'x') * (1 << 30)"], stderr=subprocess.PIPE)
if r.returncode: raise MemoryError(r.returncode)`, told: []string{"MemoryError"}},
		{name: "children together", code: `
import subprocess, sys
all = [subprocess.Popen([sys.executable, "-c", "x = bytearray(b'x') * (20 << 20); input()"], stdin=subprocess.PIPE) for _ in range(6)]
codes = [c.wait() for c in [c for c in all if not c.stdin.close()]]
if any(codes): raise MemoryError(codes)`, told: []string{"MemoryError"}, together: true},
		{name: "files in memory", code: `
with open("/dev/shm/x", "wb", buffering=0) as f:
    while True: f.write(b"x" * 65536)`, told: []string{"OSError"}},
		{name: "pipes", code: `
import os, fcntl
held = []
while True:
    r, w = os.pipe(); fcntl.fcntl(w, 1031, 1 << 20); os.set_blocking(w, False); held.append((r, w)); os.write(w, b"x" * (1 << 20))`, told: []string{"OSError", "PermissionError"}, together: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.together && !together {
				need.Absent(t, "cgroup", "no control group keeps the memory limit here, and each process has it for itself")
			}
			other := open(t)
			other.ok("mine = 1")
			s := open(t, memory(64<<20))
			s.ok("kept = 1")
			r := s.run(c.code)
			switch {
			case r.ename() == "KernelExited":
				if !strings.Contains(r.text(), "oom: memory limit 64 MiB") {
					t.Errorf("the cause and the limit are not named: %s", r)
				}
				s.goesOn()
			case strings.Contains(strings.Join(c.told, " "), r.ename()) && r.ename() != "":
				s.ok("grow = held = None")
				s.shows("kept", "1")
			default:
				t.Errorf("want one of %q or KernelExited: %s", c.told, r)
			}
			t.Logf("%s %.100s", r.ename(), r.Details.Error.Value)
			other.shows("mine", "1")
		})
	}
}
