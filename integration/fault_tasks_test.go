package integration

import (
	"strings"
	"testing"

	"cellblock/kernel"
)

// TestWithoutTasks: a session that has as many processes and threads as it may is told
// so, its next cells run, and a reset clears it.
func TestWithoutTasks(t *testing.T) {
	for _, c := range []struct{ name, code, says string }{
		{"children that stay", `
import os, time
def bomb():
    while True:
        if not os.fork():
            time.sleep(600); os._exit(0)
bomb()`, "BlockingIOError"},
		{"children that multiply", `
import os, time
def bomb():
    me = os.getpid()
    try:
        while True: os.fork()
    except BlockingIOError:
        if os.getpid() == me: raise
        time.sleep(600)
bomb()`, "BlockingIOError"},
		{"children that raise", `
import os
me = os.getpid()
while True: os.fork()`, "BlockingIOError"},
		{"threads", `
import threading, time
while True: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()`, "RuntimeError"},
		{"programs", `
import subprocess
all = []
while True: all.append(subprocess.Popen(["sleep", "600"]))`, "BlockingIOError"},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := open(t)
			other.ok("mine = 1")
			s := open(t, tasks(40))
			s.ok("kept = 1")
			r := s.run(c.code)
			if r.ename() != c.says {
				t.Fatalf("want %s: %s", c.says, r)
			}
			s.shows("print('told'); kept", "1")
			if !strings.Contains(c.name, "raise") {
				r = s.run("import os\nif not os.fork(): os._exit(0)")
				if r.ename() != "BlockingIOError" {
					t.Errorf("the next cell: want BlockingIOError: %s", r)
				}
			}
			r = s.call(t.Context(), kernel.Call{Reset: true})
			if r.IsError {
				t.Errorf("reset: %s", r)
			}
			s.shows("import subprocess; subprocess.run(['true']).returncode", "0")
			other.shows("mine", "1")
		})
	}
}
