package kernel

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"cellblock/kernel/wire"
)

// fakeWorker starts well and then does to a cell what the program in BAD says.
const fakeWorker = `
import json, os, socket, sys, time
s = socket.socket(fileno=3)
f = s.makefile("rb")
def raw(b): s.sendall(b)
def say(o): raw(json.dumps(o).encode() + b"\n")
for line in f:
    m = json.loads(line)
    if m.get("op") == "install-runtime":
        say({"id": m["id"], "value": 0, "info": {"python": "3.11.0"}})
    elif m.get("op") == "confine":
        say({"id": m["id"], "value": {"read": 0, "write": 0}})
    elif m.get("op") == "install-tool":
        say({"id": m["id"], "value": m["name"]})
    elif m.get("op") == "run-block":
        exec(BAD)
        time.sleep(600)
`

// withFake opens a session whose first worker is a fake one; later ones are real.
func withFake(t *testing.T, bad string, o Options) *Session {
	t.Helper()
	o.Tier, o.CellTimeout = TierProcess, 20*time.Second
	s := open(t, o)
	real := s.start
	first := true
	s.start = func(ctx context.Context, l launch) (process, error) {
		if first {
			first = false
			l.argv = []string{"/usr/bin/python3", "-I", "-c", "BAD = " + pythonString(bad) + fakeWorker}
		}
		return real(ctx, l)
	}
	return s
}

func pythonString(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func TestWhatIsNotInTheProtocolEndsThatWorkerAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		name, bad string
		rule      wire.Rule
	}{
		{"no JSON", `raw(b"hello\n")`, wire.RuleNotJSON},
		{"a line without end", `
while True: raw(b"x" * 65536)`, wire.RuleLineTooLong},
		{"half a line, then death", `raw(b'{"id":'); os._exit(0)`, wire.RuleTruncatedLine},
		{"a reply nobody asked for", `say({"id": 99, "value": 1})`, wire.RuleUnknownReply},
		{"a second reply", `say({"id": m["id"], "value": {"status": "ok"}}); say({"id": m["id"], "value": {"status": "ok"}}); time.sleep(1)`, ""},
		{"another field", `say({"id": m["id"], "value": {"status": "ok", "stdout": "x"}})`, wire.RuleUnknownField},
		{"another type", `say({"id": m["id"], "value": {"status": 1}})`, wire.RuleWrongType},
		{"NaN", `raw(b'{"id":%d,"value":NaN}\n' % m["id"])`, wire.RuleNotJSON},
		{"half a surrogate pair", `raw(b'{"id":%d,"value":"\\ud800"}\n' % m["id"])`, wire.RuleNotText},
		{"deep nesting", `raw(b'{"id":1,"value":' + b"[" * 100000 + b"\n")`, wire.RuleTooDeep},
		{"a key twice", `raw(b'{"id":1,"id":1,"value":1}\n')`, wire.RuleDuplicateField},
		{"another request", `say({"id": 1, "op": "exec", "code": "1"})`, wire.RuleUnknownOp},
		{"host calls with one number", `
for _ in range(2): say({"id": 1, "op": "host", "name": "x", "arguments": {}})`, wire.RuleDuplicateID},
		{"too many entries", `say({"id": m["id"], "value": {"status": "ok", "figures": ["x"] * 10000}})`, wire.RuleTooMany},
		{"value and error", `say({"id": m["id"], "value": 1, "error": {"type": "E", "message": "m"}})`, wire.RuleValueAndError},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := withFake(t, c.bad, Options{})
			r := run(t, s, "1")
			if c.rule == "" { // the first reply was in order; the next call meets the fault
				if r.IsError {
					t.Fatalf("%+v", r)
				}
				deadline := time.Now().Add(5 * time.Second)
				for !strings.HasPrefix(r.Text(), crashNotice) && time.Now().Before(deadline) {
					r = run(t, s, "1 + 1")
				}
			} else if r.Details.Error == nil || r.Details.Error.Name != KernelExited || r.Details.Error.Death == nil ||
				!strings.HasPrefix(r.Details.Error.Death.Protocol, string(c.rule)) {
				t.Fatalf("%+v", r.Details.Error)
			} else {
				r = run(t, s, "1 + 1")
			}
			if !strings.HasPrefix(r.Text(), crashNotice) || r.Details.Value == nil || *r.Details.Value != "2" || !r.Details.StateLost {
				t.Fatalf("the next call: %+v", r)
			}
		})
	}
}

func TestAWorkerThatDoesNotReadHoldsNothingUp(t *testing.T) {
	flood := `
n = 0
while True:
    n += 1
    say({"id": n, "op": "host", "name": "x", "arguments": {}})`
	for name, bad := range map[string]string{"flooding": flood, "stopped": `import signal; os.kill(os.getpid(), signal.SIGSTOP)`} {
		t.Run(name, func(t *testing.T) {
			s := withFake(t, bad, Options{OnTimeout: TimeoutInterrupt})
			start := time.Now()
			r := s.Call(t.Context(), Call{Code: "1", Timeout: time.Second})
			if !r.IsError || time.Since(start) > 8*time.Second {
				t.Fatalf("after %v: %+v", time.Since(start), r)
			}
			if r := run(t, s, "1 + 1"); r.Details.Value == nil || *r.Details.Value != "2" {
				t.Fatalf("the next call: %+v", r)
			}
		})
	}
}

func TestALargeReplyCostsTheLauncherNoMultiple(t *testing.T) {
	s := withFake(t, `raw(b'{"id":%d,"value":{"status":"ok","audit":[' % m["id"] + b",".join([b'{"a":[' + b",".join([b"0"] * 1000) + b"]}"] * 7000) + b"]}}\n")`, Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := run(t, s, "1")
	runtime.ReadMemStats(&after)
	if r.IsError || len(r.Details.Audit) != 7000 {
		t.Fatalf("%+v", r.Details.Error)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 200 {
		t.Errorf("a reply of 14 MB cost %d MB", took)
	}
}

func TestAnInterruptThatACellSwallowsEndsIt(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		done, inside := make(chan Result, 1), make(chan struct{}, 1)
		go func() {
			code := "import time\nwhile True:\n    try:\n        print('in', flush=True)\n        while True: time.sleep(0.01)\n    except KeyboardInterrupt: pass"
			done <- s.Call(t.Context(), Call{Code: code, Output: func(_, _ string) {
				select {
				case inside <- struct{}{}:
				default:
				}
			}})
		}()
		<-inside
		s.Interrupt()
		select {
		case r := <-done:
			if r.Details.Error == nil || r.Details.Error.Name != KernelKilled {
				t.Fatalf("%+v", r)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the cell runs on")
		}
		if got := value(t, s, "1 + 1"); got != "2" {
			t.Fatal(got)
		}
	})
}

func TestAnInterruptFindsACellThatIsSeenToRun(t *testing.T) {
	tiers(t, Options{CellTimeout: 20 * time.Second}, func(t *testing.T, s *Session) {
		for range 100 {
			seen, hit := make(chan struct{}), make(chan bool, 1)
			go func() {
				<-seen
				hit <- s.Interrupt()
			}()
			r := s.Call(t.Context(), Call{Code: "import time; print('in', flush=True)\nwhile True: time.sleep(0.01)", Output: func(_, _ string) { close(seen) }})
			if r.Details.Error == nil || r.Details.Error.Name != "KeyboardInterrupt" || !<-hit {
				t.Fatalf("%+v", r.Details.Error)
			}
		}
	})
}

func TestADeathBetweenTwoCallsIsSaidInTheNext(t *testing.T) {
	s := open(t, Options{Tier: TierProcess})
	run(t, s, "import threading, os\nthreading.Timer(0.2, os._exit, [3]).start()")
	<-s.worker.gone
	if r := run(t, s, "1 + 1"); !strings.HasPrefix(r.Text(), crashNotice) || !r.Details.StateLost {
		t.Fatalf("%+v", r)
	}
	if r := run(t, s, "1 + 1"); r.Text() != "2" || r.Details.StateLost {
		t.Fatalf("said twice: %+v", r)
	}
}

func TestDeclaredEntriesCannotPoseAsTheSystems(t *testing.T) {
	s := open(t, Options{Tier: TierProcess})
	r := run(t, s, `_AUDIT.append({"op": "write", "path": "/etc/hosts", "source": "os"}); _AUDIT.append("text")`)
	if len(r.Details.Audit) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, entry := range r.Details.Audit {
		if !strings.Contains(string(entry), `"source":"declared"`) {
			t.Errorf("%s", entry)
		}
	}
}

// A start that hangs is given up by Abort, by the caller's context and by Close,
// long before its own time limit, and the next call starts afresh.
func TestAStartCanBeGivenUp(t *testing.T) {
	for name, give := range map[string]func(*Session, context.CancelFunc){
		"abort":  func(s *Session, _ context.CancelFunc) { s.Abort() },
		"cancel": func(_ *Session, cancel context.CancelFunc) { cancel() },
		"close":  func(s *Session, _ context.CancelFunc) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Tier: TierProcess, StartTimeout: time.Hour})
			real, started, first := s.start, make(chan struct{}), true
			s.start = func(ctx context.Context, l launch) (process, error) {
				if first {
					first = false
					defer close(started)
					l.argv = []string{"/usr/bin/python3", "-I", "-c", "import time; time.sleep(1000)"}
				}
				return real(ctx, l)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan Result)
			go func() { done <- s.Call(ctx, Call{Code: "1"}) }()
			<-started
			give(s, cancel)
			r := <-done
			if !r.IsError || r.Details.Error.Name != KernelKilled {
				t.Fatalf("%+v", r.Details.Error)
			}
			if name != "close" {
				if r := run(t, s, "1 + 1"); r.Text() != "2" {
					t.Errorf("the next call: %q", r.Text())
				}
			}
		})
	}
}
