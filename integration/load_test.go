package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cellblock/kernel"
	"cellblock/policy/audit"
)

// load is how often something is done in a test of load: the share of the full
// number that CELLBLOCK_LOAD says in percent. CI does five of a hundred; the full
// number, CELLBLOCK_LOAD=100, takes some minutes.
func load(t *testing.T, full int) int {
	t.Helper()
	percent := 5
	if text := os.Getenv("CELLBLOCK_LOAD"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			t.Fatalf("CELLBLOCK_LOAD=%s: want a percentage", text)
		}
		percent = n
	}
	return max(1, full*percent/100)
}

// audited keeps the session's record in a file.
func audited(path string) option { return func(o *kernel.Options) { o.Audit = path } }

// flood is Python that has one path, many short paths and many long ones refused,
// by the worker, a thread and a child.
const flood = `
import ctypes, os, threading
libc = ctypes.CDLL(None)
def knock(n, name):
    for i in range(n):
        if libc.open(name(i), 65, 420) >= 0: raise SystemExit("a refused open was done")
def flood(n):
    once, part = b"/etc/cellblock-load", n // 4
    far = b"/etc/cellblock-" + b"x" * 200
    pid = os.fork()
    if pid == 0:
        knock(part, lambda i: b"/etc/cellblock-load%d" % i)
        os._exit(0)
    th = threading.Thread(target=knock, args=(part, lambda i: far + b"%d" % i)); th.start()
    knock(part, lambda i: once)
    knock(n - 3 * part, lambda i: b"/etc/cellblock-load%d" % (i % 7))
    th.join()
    return os.waitpid(pid, 0)[1]
`

// timesDenied sums up how often a log says that something was refused.
func timesDenied(records []audit.Record) (n int64) {
	for _, r := range records {
		if r.Denial() {
			n += r.Times()
		}
	}
	return n
}

// TestAMillionRefusedOpens: a flood of refused opens, of few paths and of many,
// grows neither the launcher nor its record, and each of them is counted. In the
// full run there are 1,000,000 of them, in CI 50,000.
func TestAMillionRefusedOpens(t *testing.T) {
	require(t, needUserns, needNotify)
	log := filepath.Join(newDirIn(t, "/var/tmp"), "audit", "s.jsonl")
	s := open(t, audited(log), cellLimit(time.Hour))
	s.ok(flood)
	s.ok("flood(8000)") // what the first ones cost belongs to the start
	attempts := load(t, 1_000_000)

	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, done := heap(), atomic.Uint64{}, make(chan struct{})
	go func() {
		defer close(done)
		r := s.kernelCall(fmt.Sprintf("flood(%d)", attempts))
		if r.IsError || r.value() != "0" {
			t.Errorf("the flood: %s", r)
		}
		var told []kernel.Violation
		if err := json.Unmarshal(r.Details.Policy.Violations, &told); err != nil || len(told) > 1100 {
			t.Errorf("the reply tells %d violations apart, %v", len(told), err)
		}
	}()
	start := time.Now()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(500 * time.Millisecond):
		}
		most.Store(max(most.Load(), heap()))
	}
	t.Logf("%d refused opens in %v; the launcher's heap was %d KiB before and %d KiB at most", attempts, time.Since(start).Round(time.Second), before>>10, most.Load()>>10)
	if grown := int64(most.Load()) - int64(before); grown > 16<<20 {
		t.Errorf("the launcher grew by %d MiB", grown>>20)
	}
	if err := s.kernel.Close(); err != nil {
		t.Fatal(err)
	}
	records := readLog(t, log)
	if got := timesDenied(records); got != int64(attempts+8000) {
		t.Errorf("%d refusals are recorded, of %d", got, attempts+8000)
	}
	if len(records) > 3000 {
		t.Errorf("the record has %d lines", len(records))
	}
}

// TestWhatHappensAfterTheLastCellIsCounted: also attempts of a process that a cell
// has left behind, until the session, its worker or its generation ends.
func TestWhatHappensAfterTheLastCellIsCounted(t *testing.T) {
	require(t, needUserns, needNotify)
	const leave = flood + `
import time
def later(n):
    if os.fork() == 0:
        os.setsid(); time.sleep(0.3)
        knock(n, lambda i: b"/etc/cellblock-late")
        open("done", "w").close(); os._exit(0)
`
	for name, end := range map[string]func(s *session){
		"closed":   func(s *session) {},
		"reset":    func(s *session) { s.reset() },
		"it exits": func(s *session) { s.run("import os; os._exit(3)") },
		"it hangs": func(s *session) { s.runLimit("import time; time.sleep(600)", time.Second) },
		"aborted":  func(s *session) { s.kernel.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(newDirIn(t, "/var/tmp"), "audit", "s.jsonl")
			s := open(t, audited(log))
			s.ok(leave)
			s.ok("later(500)")
			eventually(t, "the process that was left behind is done", hang, func() bool {
				_, err := os.Stat(s.path("done"))
				return err == nil
			})
			end(s)
			if err := s.kernel.Close(); err != nil {
				t.Fatal(err)
			}
			if got := timesDenied(readLog(t, log)); got != 500 {
				t.Errorf("%d refusals are recorded, of 500", got)
			}
		})
	}
}

// TestKilledLaunchersLoseNoRecord: launchers that are killed while refusals pour in
// have recorded all that their replies had told, and "audit verify" finds nothing
// amiss. In the full run 100 of them are killed, in CI 5.
func TestKilledLaunchersLoseNoRecord(t *testing.T) {
	require(t, needUserns, needNotify)
	dir, state := newDirIn(t, "/var/tmp"), newDirIn(t, "/var/tmp")
	cells := flood
	for i := range 400 {
		cells += fmt.Sprintf("\n# %%%%\nflood(%d)", 40+i%100)
	}
	write(t, dir+"/cells.py", cells)
	replies := 0
	for round := range load(t, 100) {
		log := fmt.Sprintf("%s/audit/%d.jsonl", state, round)
		told := killedUnderLoad(t, dir, log, time.Duration(rand.IntN(1500))*time.Millisecond)
		replies += len(told)
		if len(told) == 0 {
			t.Fatalf("round %d: no reply came", round)
		}
		out := command(t).env(stateEnv(state)...).run("audit", "verify", log)
		if out.code != 0 {
			t.Fatalf("round %d: verify: exit code %d\n%s%s", round, out.code, out.stdout, out.stderr)
		}
		recorded, ended := map[int]int64{}, map[int]bool{}
		for e, err := range audit.Read(strings.NewReader(wholeLines(readFile(t, log)))) {
			if err != nil {
				t.Fatal(err)
			}
			r := e.Record
			if r.Denial() {
				recorded[r.Cell] += r.Times()
			}
			ended[r.Cell] = ended[r.Cell] || r.Op == audit.OpCellEnd
		}
		for i, n := range told {
			if cell := i + 1; !ended[cell] || recorded[cell] != n {
				t.Errorf("round %d: the reply to cell %d told %d refusals, the record has %d, and its end: %v", round, cell, n, recorded[cell], ended[cell])
			}
		}
	}
	t.Logf("%d replies were told before the kills", replies)
}

// wholeLines is a log without a line that a kill has cut off in the middle, which
// nobody was told of and which the next start removes.
func wholeLines(text string) string { return text[:strings.LastIndexByte(text, '\n')+1] }

// killedUnderLoad runs the cells, kills the launcher some time after its first reply
// and returns how many refusals each reply has told.
func killedUnderLoad(t *testing.T, dir, log string, after time.Duration) (told []int64) {
	t.Helper()
	cmd := exec.Command(binary(t), "run", "--mode", "enforce", "--session", dir, "--python", pythonBin(), "--audit", log, "--json", "--cells", dir+"/cells.py")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // killed; what has no end was not told
		}
		if len(told) == 0 {
			time.AfterFunc(after, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		}
		var r kernel.Result
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v: %.300s", err, line)
		}
		sum := int64(0)
		for _, v := range r.Details.Policy.Violations {
			sum += int64(max(v.Count, 1))
		}
		told = append(told, sum)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatalf("the launcher had ended before it was killed, after %d replies", len(told))
	} else if cmd.ProcessState.Exited() {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return told
}
