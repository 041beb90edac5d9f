package extension

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cellblock/kernel/host"
)

// busy is an extension with handlers of every kind.
const busy = `
import asyncio, os, subprocess, threading, time
begun = threading.Event()
def echo(text: str): return text
def nested(tool: str, context): return context.host.call(tool)
def nest_all(tools: list, context):
    return [context.host.call(t) for t in tools]
async def gather(context): return await asyncio.gather(*[context.host.call("other.echo", text=str(i)) for i in range(10)])
def spin():
    while True: pass
def deaf():
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass
async def awaits(): await asyncio.sleep(600)
def dies(): os._exit(7)
def crashes():
    import ctypes
    ctypes.string_at(0)
def floods():
    for i in range(3000): print("x" * 4096)
def quick(): return "parent"
def daemon():
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid
def closes(): os.close(1); os.close(2); return "closed"
def forks():
    pid = os.fork()
    if pid == 0:
        try:
            1 / 0
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return "parent"
def forges():
    os.write(3, b'{"id":999,"value":"forged"}\n')
    time.sleep(600)
cellblock.register(cellblock.Extension(name=NAME, tools=[echo, nested, nest_all, gather, spin, deaf, awaits, dies, crashes, floods, daemon, closes, forks, forges, quick]))
`

func busyPair(t *testing.T) (*Session, Launch) {
	t.Helper()
	l := launch(t)
	root := write(t, map[string]string{"busy.py": strings.ReplaceAll(busy, "NAME", `"busy"`), "other.py": strings.ReplaceAll(busy, "NAME", `"other"`)})
	return session(t, l, register(t, l, root)), l
}

func TestNestedCallsGoThroughTheDoorAndNeverWaitForThemselves(t *testing.T) {
	s, _ := busyPair(t)
	if value, err := call(t, s, "busy.gather", ""); value != `["0","1","2","3","4","5","6","7","8","9"]` {
		t.Error(value, err)
	}
	if _, err := call(t, s, "busy.nested", `{"tool": "busy.echo"}`); err == nil || err.Code != host.CodeReentrant {
		t.Error(err)
	}
	// Each holds its own extension and wants the other's: one of them is refused.
	var wait sync.WaitGroup
	codes := make(chan string, 200)
	for i := range 100 {
		for _, pair := range [][2]string{{"busy.nested", "other.quick"}, {"other.nested", "busy.quick"}} {
			wait.Add(1)
			go func() {
				defer wait.Done()
				value, err := call(t, s, pair[0], fmt.Sprintf(`{"tool": %q}`, pair[1]))
				if err != nil {
					codes <- err.Code
				} else if value != `"parent"` {
					t.Errorf("%d: %s", i, value)
				}
			}()
		}
		if i%10 == 9 {
			wait.Wait()
		}
	}
	wait.Wait()
	close(codes)
	for code := range codes {
		if code != host.CodeReentrant {
			t.Errorf("code %s", code)
		}
	}
}

func TestACancelledCallUnwindsOrTheWorkerIsGivenUp(t *testing.T) {
	s, _ := busyPair(t)
	for _, tool := range []string{"busy.spin", "busy.awaits"} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		if _, err := callIn(ctx, t, s, tool, ""); err == nil || err.Code != host.CodeCancelled {
			t.Errorf("%s: %v", tool, err)
		}
	}
	if value, err := call(t, s, "busy.echo", `{"text": "alive"}`); value != `"alive"` {
		t.Error(err)
	}
	// What neither returns nor unwinds costs the worker, and all that is in it.
	beside := make(chan *host.Error, 1)
	go func() {
		_, err := call(t, s, "other.spin", "")
		beside <- err
	}()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	if _, err := callIn(ctx, t, s, "busy.deaf", ""); err == nil || err.Code != host.CodeIndeterminate || !strings.Contains(err.Message, "did not unwind") {
		t.Error(err)
	}
	if err := <-beside; err == nil || err.Code != host.CodeIndeterminate {
		t.Error(err)
	}
	if _, err := call(t, s, "other.echo", `{"text": "x"}`); err == nil || err.Code != host.CodeRetired {
		t.Error(err)
	}
	s.Reset()
	if value, err := call(t, s, "other.echo", `{"text": "x"}`); value != `"x"` {
		t.Error(err)
	}
}

func TestAWorkerThatDiesAnswersEveryCallAndTheNextStartsAfresh(t *testing.T) {
	s, _ := busyPair(t)
	for tool, how := range map[string]string{"busy.dies": "exit code 7", "busy.crashes": "SIGSEGV", "busy.forges": "broke the protocol: unknown-reply"} {
		beside := make(chan *host.Error, 1)
		go func() {
			_, err := call(t, s, "other.spin", "")
			beside <- err
		}()
		for s.inFlight() == 0 {
			time.Sleep(time.Millisecond)
		}
		if _, err := call(t, s, tool, ""); err == nil || err.Code != host.CodeIndeterminate || !strings.Contains(err.Message, how) {
			t.Errorf("%s: %v", tool, err)
		}
		if err := <-beside; err == nil || err.Code != host.CodeIndeterminate {
			t.Error(err)
		}
		if value, err := call(t, s, "busy.echo", `{"text": "again"}`); value != `"again"` {
			t.Error(err)
		}
	}
}

func (s *Session) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.serving)
}

func TestTheLogIsBoundedAndNobodyElses(t *testing.T) {
	s, l := busyPair(t)
	if _, err := call(t, s, "busy.floods", ""); err != nil {
		t.Fatal(err)
	}
	if value, err := call(t, s, "busy.forks", ""); value != `"parent"` {
		t.Fatal(err)
	}
	if value, err := call(t, s, "busy.closes", ""); value != `"closed"` {
		t.Fatal(err)
	}
	if value, err := call(t, s, "busy.echo", `{"text": "x"}`); value != `"x"` {
		t.Fatal(err)
	}
	s.Close()
	logs, _ := filepath.Glob(filepath.Join(l.LogDir, "test-*.log"))
	if len(logs) != 1 {
		t.Fatal(logs)
	}
	info, err := os.Stat(logs[0])
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() < maxLog || info.Size() > maxLog+100 {
		t.Errorf("%v, %v", info, err)
	}
	if text, _ := os.ReadFile(logs[0]); !strings.Contains(string(text[maxLog:]), "bytes were left out") {
		t.Error("what was cut is not said")
	}
}

// A daemon outlives neither its session nor, where a cgroup is to be had, its group.
func TestTheEndTakesAlongWhatWasStarted(t *testing.T) {
	s, _ := busyPair(t)
	pid, err := call(t, s, "busy.daemon", "")
	if err != nil {
		t.Fatal(err)
	}
	grouped := s.worker.proc.group != nil
	s.Close()
	var number int
	fmt.Sscan(pid, &number)
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", number))
	alive := len(stat) > 0 && !strings.Contains(string(stat), ") Z ")
	if alive {
		_ = syscall.Kill(number, syscall.SIGKILL)
	}
	if alive && grouped {
		t.Errorf("daemon %d lives on", number)
	}
	if _, err := call(t, s, "busy.echo", `{"text": "x"}`); err == nil || err.Code != host.CodeRetired {
		t.Error(err)
	}
}

// Calls with random cancels: each has one answer, and it is its own.
func TestManyCallsWithRandomCancels(t *testing.T) {
	s, _ := busyPair(t)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for j := range 60 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.Intn(2) == 0 {
					time.AfterFunc(time.Duration(rand.Intn(3000))*time.Microsecond, cancel)
				}
				want := fmt.Sprintf("%d-%d", i, j)
				value, err := callIn(ctx, t, s, []string{"busy.echo", "other.echo"}[rand.Intn(2)], fmt.Sprintf(`{"text": %q}`, want))
				switch {
				case err == nil && value != fmt.Sprintf("%q", want):
					t.Errorf("%s has the answer %s", want, value)
				case err != nil && (err.Code != host.CodeCancelled || ctx.Err() == nil):
					t.Errorf("%s: %v", want, err)
				}
				cancel()
			}
		}()
	}
	wait.Wait()
	if left := s.inFlight(); left != 0 {
		t.Errorf("%d calls are left", left)
	}
}
