package integration

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestCasesC: stop, time limit, crash, reset.
func TestCasesC(t *testing.T) { runCases(t, casesC) }

const soon = 2 * time.Second

// timedOut is a cell that must end by its limit.
func timedOut(code string) cell {
	return cell{code: code, limit: soon, err: "KernelTimeout"}
}

// stateLost is a cell that shows that a new interpreter serves it and says so.
func stateLost(name string) cell {
	return cell{code: `"` + name + `" in globals()`, value: "False", check: func(t *testing.T, s *session, r reply) {
		contains(t, "the reply after the loss", r.text(), lostNote)
		if !r.Details.StateLost {
			t.Errorf("details.stateLost is not set: %s", r)
		}
	}}
}

var casesC = []bugCase{
	{id: "C1", title: "plain time-out keeps state", opts: []option{onTimeout("interrupt")}, cells: []cell{
		{code: "x = 41"},
		timedOut("import time\ntime.sleep(60)\nx = 0"),
		{code: "x + 1", value: "42"},
		{pause: time.Second, code: "x + 1", value: "42"},
	}},
	{id: "C1", title: "plain time-out loses state by default and says so", cells: []cell{
		{code: "x = 41"},
		timedOut("import time\ntime.sleep(60)"),
		stateLost("x"),
		{code: "1", check: func(t *testing.T, s *session, r reply) {
			lacks(t, "the second reply after the loss", r.text(), "prior state is lost")
		}},
	}},

	{id: "C3", title: "busy inside C", cells: []cell{
		{code: "x = 1"},
		timedOut("sum(range(10 ** 12))"),
		stateLost("x"),
	}},
	{id: "C3", title: "busy inside C with interrupt", opts: []option{onTimeout("interrupt")}, cells: []cell{
		{code: "x = 1"},
		timedOut("sum(range(10 ** 12))"),
		{code: `("kept" if "x" in globals() else "lost")`, check: func(t *testing.T, s *session, r reply) {
			if r.value() == "'lost'" {
				contains(t, "the reply after the loss", r.text(), lostNote)
			}
		}},
	}},

	{id: "C4", title: "a child goes on after the time-out", do: func(t *testing.T, c bugCase) {
		for _, how := range []string{"kill", "interrupt"} {
			s := open(t, onTimeout(how))
			runCells(t, s, []cell{timedOut(`
import subprocess
subprocess.run(["sh", "-c", "while true; do echo tick >> ticks.txt; sleep 0.2; done"])`)})
			size := func() int64 {
				info, err := os.Stat(s.path("ticks.txt"))
				if err != nil {
					t.Fatalf("on timeout %s: the child never ran: %v", how, err)
				}
				return info.Size()
			}
			before := size()
			time.Sleep(time.Second)
			if after := size(); after != before {
				t.Errorf("on timeout %s: ticks.txt grew from %d to %d", how, before, after)
			}
		}
	}},

	{id: "C7", title: "sys.exit and friends", cells: []cell{
		{code: "kept = 5"},
		{code: "import sys; sys.exit(3)", err: "SystemExit", check: says("3")},
		{code: "exit()", err: "SystemExit"},
		{code: "quit()", err: "SystemExit"},
		{code: `raise SystemExit("bye")`, err: "SystemExit", check: says("bye")},
		{code: "kept", value: "5"},
	}},

	{id: "C8", title: "os._exit", cells: []cell{
		{code: "x = 1"},
		{code: "import os\nprint('so far', flush=True); os._exit(7)", err: "KernelExited", check: func(t *testing.T, s *session, r reply) {
			contains(t, "the reply", r.text(), "python kernel exited (7)")
			contains(t, "stdout", r.Details.Stdout, "so far")
		}},
		stateLost("x"),
	}},
	{id: "C8", title: "a signal is named", cells: []cell{
		{code: "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", err: "KernelExited", check: func(t *testing.T, s *session, r reply) {
			contains(t, "the reply", r.text(), "SIGSEGV")
		}},
		stateLost("os_"),
	}},

	{id: "C11", title: "input()", cells: []cell{
		{code: `name = input("who? ")`, any: true, check: func(t *testing.T, s *session, r reply) {
			if !r.IsError || r.Details.Error == nil || r.Details.Error.Value == "" {
				t.Errorf("want an error that says why: %s", r)
			}
			contains(t, "stdout", r.Details.Stdout, "who? ")
			if r.Details.DurationMs == nil || *r.Details.DurationMs > 10000 {
				t.Errorf("it waited: %s", r)
			}
		}},
		{code: "import getpass; getpass.getpass()", any: true, check: func(t *testing.T, s *session, r reply) {
			if !r.IsError {
				t.Errorf("want an error: %s", r)
			}
		}},
		{code: "import sys; sys.stdin.read()", value: "''"},
	}},

	{id: "C13", title: "interrupt with nothing running", do: func(t *testing.T, c bugCase) {
		s := open(t)
		s.ok("x = 1")
		if s.runs.Interrupt() {
			t.Error("an interrupt with nothing running says it interrupted something")
		}
		s.shows("sum(range(10))", "45")
		s.shows("x", "1")
	}},

	{id: "C16", title: "user ignores signals", do: func(t *testing.T, c bugCase) {
		for name, deaf := range map[string]string{
			"ignored": `
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)`,
			"blocked":   "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
			"swallowed": "def spin():\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
		} {
			spin := "while True: pass"
			if name == "swallowed" {
				spin = "spin()"
			}
			for _, how := range []string{"kill", "interrupt"} {
				t.Run(name+" "+how, func(t *testing.T) {
					after := stateLost("deaf")
					if how == "interrupt" {
						// A cell that the interrupt does unwind keeps its state; then nothing is lost.
						after = cell{code: `"kept" if "deaf" in globals() else "lost"`, check: func(t *testing.T, s *session, r reply) {
							if r.value() == "'lost'" {
								contains(t, "the reply after the loss", r.text(), lostNote)
							}
						}}
					}
					runCells(t, open(t, onTimeout(how)), []cell{{code: deaf + "\ndeaf = True"}, timedOut(spin), after})
				})
			}
		}
	}},

	{id: "C19", title: "what reset clears", do: func(t *testing.T, c bugCase) {
		s := open(t)
		s.ok(`
import os, sys
v = 1
os.environ["MARK"] = "1"
os.makedirs("sub", exist_ok=True)
os.chdir("sub")
sys.path.insert(0, "/x")
open("made.txt", "w").write("1")`)
		s.reset()
		name := s.dir[strings.LastIndex(s.dir, "/")+1:]
		s.shows(`
import os, sys
("v" in globals(), "MARK" in os.environ, "/x" in sys.path, os.path.basename(os.getcwd()), os.path.exists("sub/made.txt"))`,
			"(False, False, False, '"+name+"', True)")
	}},
}

// says is a check that the reply's text has part.
func says(part string) func(*testing.T, *session, reply) {
	return func(t *testing.T, s *session, r reply) {
		t.Helper()
		contains(t, "the reply", r.text(), part)
	}
}
