package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cellblock/policy"
)

// flooding prints so many lines that they go out in blocks.
const flooding = `
for i in range(20000): print("line", i, "x" * 100)
`

// lastLine is the last of them.
const lastLine = "line 19999 x"

// A flood of lines may be held back for a moment, and no longer: a program sees the
// last one while the cell still runs, whatever that does.
func TestTheEndOfAFloodComesWhileTheCellRuns(t *testing.T) {
	tiers(t, Options{CellTimeout: 6 * time.Second}, func(t *testing.T, s *Session) {
		seen := filepath.Join(s.dir, "seen")
		for what, wait := range map[string]string{
			"computes": "while not there(): pass",
			"waits":    "import _thread\nlock = _thread.allocate_lock(); lock.acquire()\nwhile not there(): lock.acquire(True, 0.01)",
		} {
			t.Run(what, func(t *testing.T) {
				os.Remove(seen)
				var once sync.Once
				tail := ""
				call := Call{Output: func(_, text string) {
					tail += text
					if tail = tail[max(len(tail)-300, 0):]; strings.Contains(tail, lastLine) {
						once.Do(func() {
							if err := os.WriteFile(seen, nil, 0o644); err != nil {
								t.Error(err)
							}
						})
					}
				}}
				// access(2) has no audit event, which would end the flood by itself.
				call.Code = fmt.Sprintf("import os\nthere = lambda: os.access(%q, os.F_OK)\n", seen) + flooding + wait
				if r := s.Call(t.Context(), call); r.IsError {
					t.Fatal(r.Text())
				}
			})
		}
	})
}

// What a cell has printed is there, and in its order, whatever comes next.
func TestNothingOfAFloodIsLostOrOutOfOrder(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		for name, c := range map[string]struct{ next, last string }{
			"child":        {"import subprocess; subprocess.run(['echo', 'child'])", "child\n"},
			"system":       {"import os; os.system('echo child')", "child\n"},
			"fork":         {"import os\npid = os.fork()\nif not pid: os.write(1, b'child\\n'); os._exit(0)\nos.waitpid(pid, 0); None", "child\n"},
			"buffer":       {"import sys; sys.stdout.buffer.write(b'raw\\n'); sys.stdout.buffer.flush()", "raw\n"},
			"descriptor":   {"import os, sys; os.write(sys.stdout.fileno(), b'raw\\n')", "raw\n"},
			"exit":         {"import os; os._exit(3)", ""},
			"own signal":   {"import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ""},
			"own handlers": {"import signal; signal.signal(signal.SIGURG, signal.SIG_IGN); print('more')", "more\n"},
			"replaced":     {"import io, sys; sys.stdout = io.StringIO(); print('nowhere')", ""},
		} {
			t.Run(name, func(t *testing.T) {
				var text strings.Builder
				r := s.Call(t.Context(), Call{Code: flooding + c.next, Output: func(stream, part string) {
					if stream == "stdout" {
						text.WriteString(part)
					}
				}})
				lines := strings.SplitAfter(text.String(), "\n")
				for i := range 20000 {
					if want := fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", 100)); i >= len(lines) || lines[i] != want {
						t.Fatalf("line %d of %d; the call: %.300s", i, len(lines), r.Text())
					}
				}
				if got := strings.Join(lines[20000:], ""); got != c.last {
					t.Errorf("after the flood: %q, want %q", got, c.last)
				}
			})
		}
	})
}

// Lines of few bytes, in a flood or not, take no more memory than any others, and
// each stream keeps its own.
func TestTwoStreamsInTurnAreWhole(t *testing.T) {
	s := open(t, Options{Tier: TierProcess, Mode: policy.Report, MaxOutput: 1 << 20})
	r := run(t, s, "import sys\nfor i in range(5000): print(i); print(i, file=sys.stderr)")
	var want strings.Builder
	for i := range 5000 {
		fmt.Fprintln(&want, i)
	}
	if r.Details.Stdout != want.String() || r.Details.Stderr != want.String() {
		t.Errorf("stdout has %d bytes and stderr %d, want %d each", len(r.Details.Stdout), len(r.Details.Stderr), want.Len())
	}
}

// TestChildrenThatNeverStopWritingHoldUpNothing: they write faster than their
// output is taken, and the cell that left them and the next one end as they would.
func TestChildrenThatNeverStopWritingHoldUpNothing(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		const flood = "import subprocess\nprint('first', flush=True)\nwriters = [subprocess.Popen(['sh', '-c', 'while :; do cat /usr/bin/python3 /usr/bin/python3; done']) for _ in range(6)]\n"
		ended := make(chan Result, 1)
		next := func(code string) Result {
			t.Helper()
			slow := func(string, string) { time.Sleep(time.Millisecond) }
			go func() { ended <- s.Call(t.Context(), Call{Code: code, Output: slow}) }()
			select {
			case r := <-ended:
				return r
			case <-time.After(time.Minute):
				s.Abort()
				t.Fatalf("%q has no reply while they write", code)
				return Result{}
			}
		}
		if r := next(flood + "'left'"); r.IsError || !strings.HasPrefix(r.Details.Stdout, "first\n") {
			t.Fatalf("%+v", r.Details.Error)
		}
		if r := next("[w.kill() for w in writers]; 6 * 7"); r.IsError || r.Details.Value == nil || *r.Details.Value != "42" {
			t.Errorf("%+v", r.Details.Error)
		}
	})
}
