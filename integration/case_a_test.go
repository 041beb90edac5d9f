package integration

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestCasesA: threads, processes, memory, system calls.
func TestCasesA(t *testing.T) { runCases(t, casesA) }

var casesA = []bugCase{
	{id: "A1", title: "32 threads start under default limits", cells: []cell{{
		code: `
import threading
done = []
threads = [threading.Thread(target=done.append, args=(n,)) for n in range(32)]
[th.start() for th in threads]
[th.join() for th in threads]
len(done)`, value: "32"}}},

	{id: "A4", title: "refused and unknown system calls are errors, not deaths", cells: []cell{{
		code: `
import ctypes
lib = ctypes.CDLL(None, use_errno=True)
def attempt(function, *arguments):
    ctypes.set_errno(0)
    result = function(*arguments)
    return result, ctypes.get_errno()
attempt(lib.syscall, 9999)`, value: "(-1, 38)"},
		{code: `
NEWNS = 0x20000
result, errno = attempt(lib.unshare, NEWNS)
result == -1 and errno in (1, 38)`, value: "True"}}},

	{id: "A6", title: "lock and queue between processes", cells: []cell{{
		code: `
import multiprocessing
guard, channel = multiprocessing.Lock(), multiprocessing.Queue()
with guard:
    channel.put("through")
channel.get(timeout=5)`, value: "'through'"},
		{code: `
pool = multiprocessing.get_context("fork").Pool(2)
answer = pool.map(abs, [-1, -2])
pool.terminate(); pool.join()
answer`, value: "[1, 2]"}}},

	{id: "A9", title: "asyncio wake-up from another thread", do: func(t *testing.T, c bugCase) {
		for _, m := range []string{"enforce", "report"} { // network none and host
			r := open(t, mode(m)).ok(`
import asyncio, time
began = time.monotonic()
def blocking():
    time.sleep(0.5)
    return "woke"
async def outer():
    return await asyncio.to_thread(blocking)
got = asyncio.run(outer())
got, time.monotonic() - began < 2`)
			if r.value() != "('woke', True)" {
				t.Errorf("mode %s: %s", m, r)
			}
		}
	}},

	{id: "A11", title: "fork flood", do: func(t *testing.T, c bugCase) {
		other := open(t)
		other.ok("mine = 1")
		s := open(t)
		s.ok("1")
		before := openFDs(t)
		r := s.ok(`
import os, time
made, reason = 0, None
try:
    while made < 5000:
        if not os.fork():
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError as problem:
    reason = problem.errno
(made < 5000, reason)`)
		if r.value() != "(True, 11)" {
			t.Errorf("value %s, want EAGAIN before 5000: %s", r.value(), r)
		}
		other.shows("mine", "1")
		// Other cases run beside this one; the flood has hundreds of processes.
		if after := openFDs(t); after > before+100 {
			t.Errorf("the launcher's descriptors grew from %d to %d", before, after)
		}
		s.runs.Close()
		other.shows("mine + 1", "2")
	}},

	{id: "A11", title: "no child of a fork flood is left after reset", do: func(t *testing.T, c bugCase) {
		s := open(t)
		s.ok(`
import os, time
for _ in range(20):
    if not os.fork():
        time.sleep(600); os._exit(0)`)
		s.reset()
		time.Sleep(2 * time.Second)
		s.shows(`
pids = [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())]
[p for p in pids if "Z" not in open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[0]]`, "[]")
	}},

	{id: "A14", title: "no zombies pile up", cells: []cell{{
		code: `
import os, subprocess, time
for _ in range(200):
    subprocess.run(["sh", "-c", "(sleep 0.05 &) ; exit 0"])
def dead():
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
        except OSError:
            continue
        count += state == "Z"
    return count
time.sleep(1)  # the last of them have ended; one that ends while it is counted piles up nothing
for _ in range(100):
    left = dead()
    if not left: break
    time.sleep(0.1)
left`, value: "0"}}},

	{id: "A15", title: "memory limit reached in the interpreter", opts: []option{memory(256 << 20)}, do: func(t *testing.T, c bugCase) {
		other := open(t)
		other.ok("mine = 1")
		s := open(t, c.opts...)
		s.ok("kept = 1")
		r := s.run(`block = bytearray(b"x") * (1 << 30)`)
		switch r.ename() {
		case "MemoryError":
			s.shows("kept", "1")
		case "KernelExited":
			text := strings.ToLower(r.text())
			if !strings.Contains(text, "memory limit") && !strings.Contains(text, "oom") {
				t.Errorf("the reason does not name the memory limit: %s", r)
			}
			if !strings.Contains(text, "256") {
				t.Errorf("the limit's size is not named: %s", r)
			}
			next := s.shows("'kept' in globals()", "False")
			contains(t, "the next reply", next.text(), lostNote)
		default:
			t.Errorf("want MemoryError or KernelExited: %s", r)
		}
		other.shows("mine", "1")
	}},
}

// lostNote begins the reply after a crash or timeout.
const lostNote = "[python kernel crashed; prior state is lost - it restarts on the next call]"

// openFDs counts this process's descriptors.
func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
