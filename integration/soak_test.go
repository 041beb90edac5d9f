package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// number is a variable of a test's environment, or what stands for it.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s: want a number", name, text)
	}
	return n
}

// TestSoak: sessions of every kind in which cells fail, die, are killed, flood and are
// interrupted at random leave nothing: no descriptor, goroutine, process, control group,
// mount or file. Each reply is the one that was due, and each loss of state has its
// cause. CELLBLOCK_SOAK_SESSIONS are how many, of which none begins after
// CELLBLOCK_SOAK_MINUTES; CELLBLOCK_SOAK_SEED repeats a run.
func TestSoak(t *testing.T) {
	require(t, needUserns)
	sessions := number(t, "CELLBLOCK_SOAK_SESSIONS", 24)
	seed := number(t, "CELLBLOCK_SOAK_SEED", uint64(time.Now().UnixNano()))
	t.Logf("%d sessions, seed %d", sessions, seed)
	room := newDirIn(t, "/var/tmp")
	for _, dir := range []string{room, room + "/sessions"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"tmp", "state", "audit"} {
		if err := os.Mkdir(filepath.Join(room, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", room+"/tmp")
	s := &soak{t: t, room: room, overlay: needs[needOverlay]() == ""}
	for _, m := range []policy.Mode{policy.Off, policy.Report, policy.Enforce, policy.Shadow} {
		if m != policy.Shadow || s.overlay {
			s.one(rand.New(rand.NewPCG(seed, 0)), 0, m) // what is made once belongs to the process
		}
	}
	failures, err := os.Create(room + "/stock.log")
	if err != nil {
		t.Fatal(err)
	}
	defer failures.Close()
	openStocks := func() (open []*kernel.Stock) {
		for _, way := range []kernel.StockWay{kernel.WayExec, kernel.WayFork} {
			stock, err := kernel.OpenStock(kernel.StockOptions{Sessions: room + "/sessions", Max: 4, Way: way, Log: failures})
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, stock)
		}
		return open
	}
	closeStocks := func(open []*kernel.Stock) {
		for _, stock := range open {
			if err := stock.Close(); err != nil {
				t.Errorf("stock: %v", err)
			}
		}
	}
	closeStocks(openStocks())
	launchers := map[int]bool{os.Getpid(): true}
	before, files, threads := leftovers(t, room, launchers), openFiles(t), runtime.NumGoroutine()
	heap := heapNow()
	s.stocks = openStocks()
	start := time.Now()
	until := start.Add(time.Duration(number(t, "CELLBLOCK_SOAK_MINUTES", 24*60)) * time.Minute)
	var next, done atomic.Uint64
	var all sync.WaitGroup
	for range number(t, "CELLBLOCK_SOAK_AT_ONCE", 4) {
		all.Go(func() {
			for i := next.Add(1); i <= sessions && !t.Failed() && time.Now().Before(until); i = next.Add(1) {
				s.one(rand.New(rand.NewPCG(seed, i)), i, "")
				if done.Add(1); i%500 == 0 {
					fmt.Fprintf(os.Stderr, "soak: %d sessions after %v: %d descriptors, %d goroutines, heap %d KiB\n",
						i, time.Since(start).Round(time.Second), openFDs(t), runtime.NumGoroutine(), heapNow()>>10)
				}
			}
		})
	}
	all.Wait()
	var stats []kernel.StockStats
	for _, stock := range s.stocks {
		stats = append(stats, stock.Stats())
	}
	closeStocks(s.stocks)
	t.Logf("%d sessions with %d calls in %v; %v", done.Load(), s.calls.Load(), time.Since(start).Round(time.Second), s.counts())
	for i, way := range []string{"executed", "forked"} {
		t.Logf("stock, %s: %d workers were given out, %d sessions found none, %d had none", way, stats[i].Given, stats[i].Missed, stats[i].Unfit)
		if stats[i].Failed > 0 {
			said, _ := os.ReadFile(failures.Name())
			t.Errorf("stock, %s: %d workers could not be made or given out:\n%s", way, stats[i].Failed, said)
		}
	}

	if more := grown(func() []string { return openFiles(t) }, files); more != nil {
		t.Errorf("open are\n%s\nbefore\n%s", strings.Join(more, "\n"), strings.Join(files, "\n"))
	}
	var extra []string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		extra = nil
		for what := range leftovers(t, room, launchers) {
			if !before[what] {
				extra = append(extra, what)
			}
		}
		for _, pid := range descendants(os.Getpid()) {
			extra = append(extra, fmt.Sprintf("child %d %s", pid, statusField(pid, "Name")))
		}
		if len(extra) == 0 || time.Now().After(end) {
			break
		}
	}
	if len(extra) > 0 {
		t.Errorf("%d things are left:\n%s", len(extra), strings.Join(extra, "\n"))
	}
	if left, err := os.ReadDir(room + "/tmp"); err != nil || len(left) != 0 {
		t.Errorf("in the temp directory are left %v, %v", left, err)
	}
	if grown := int64(heapNow()) - int64(heap); grown > 32<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	if now := runtime.NumGoroutine(); now > threads {
		stacks := make([]byte, 64<<10)
		t.Errorf("%d goroutines, %d before\n%s", now, threads, stacks[:runtime.Stack(stacks, true)])
	}
}

func heapNow() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// soak is a run of it.
type soak struct {
	t       *testing.T
	room    string
	overlay bool            // mode shadow can be had
	stocks  []*kernel.Stock // nil before the soak begins
	calls   atomic.Int64

	mu   sync.Mutex
	kind map[string]int
}

func (k *soak) count(kind string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kind == nil {
		k.kind = map[string]int{}
	}
	k.kind[kind]++
}

func (k *soak) counts() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kind
}

// soaked is one session of it.
type soaked struct {
	*soak
	r     *rand.Rand
	s     *kernel.Session
	opts  kernel.Options
	name  string
	steps []string
	kept  int         // what the session's variable is; 0 for none
	lost  bool        // the next reply has to tell of a loss
	asked atomic.Bool // a call was made, and so there is a record

	mu    sync.Mutex
	trail []string // the last replies
}

// one opens a session, of a mode or of any, does some steps in it and ends it.
func (k *soak) one(r *rand.Rand, i uint64, mode policy.Mode) {
	dir := filepath.Join(k.room, "sessions", strconv.FormatUint(i, 10))
	if err := os.Mkdir(dir, 0o700); err != nil {
		k.t.Error(err)
		return
	}
	defer os.RemoveAll(dir)
	o := kernel.Options{PythonBin: pythonBin(), SessionDir: dir, CellTimeout: hang, StartTimeout: hang, Mode: policy.Enforce,
		State: []string{k.room + "/state", k.room + "/audit"}, Runtime: k.room + "/state/runtime", Shadow: k.room + "/state/shadow",
		Limits: policy.Limits{MemoryBytes: 128 << 20, Tasks: 64, OpenFiles: 256}}
	if k.stocks != nil {
		o.Stock = k.stocks[r.IntN(len(k.stocks))]
	}
	switch n := r.IntN(10); {
	case n < 2:
		o.Mode = policy.Report
	case n == 2:
		o.Mode = policy.Off
	case n == 3 && k.overlay:
		o.Mode = policy.Shadow
	}
	if mode != "" {
		o.Mode = mode
	}
	if r.IntN(2) == 0 {
		o.OnTimeout = kernel.TimeoutInterrupt
	}
	if r.IntN(2) == 0 {
		o.Audit = filepath.Join(k.room, "audit", strconv.FormatUint(i, 10)+".jsonl")
	}
	s, err := kernel.Open(o)
	if err != nil {
		k.t.Errorf("session %d: %v", i, err)
		return
	}
	one := &soaked{soak: k, r: r, s: s, opts: o, name: fmt.Sprintf("session %d, mode %s", i, o.Mode)}
	for range 1 + r.IntN(5) {
		step := soakSteps[r.IntN(len(soakSteps))]
		one.steps = append(one.steps, step.name)
		k.count(step.name)
		step.do(one)
		if k.t.Failed() {
			break
		}
	}
	if r.IntN(4) == 0 {
		one.closedWhileItRuns()
	}
	if err := s.Close(); err != nil {
		one.wrong("close: %v", err)
	}
	if o.Audit != "" && one.asked.Load() {
		if v, err := audit.Verify(o.Audit); err != nil || !v.Clean() {
			one.wrong("the record: %v %+v", err, v)
		}
		os.Remove(o.Audit)
		os.Remove(o.Audit + audit.HeadSuffix)
	}
}

func (o *soaked) wrong(text string, args ...any) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.t.Errorf("%s, steps %q, last replies %q: %s", o.name, o.steps, o.trail[max(0, len(o.trail)-8):], fmt.Sprintf(text, args...))
}

// call runs a call that has to come back.
func (o *soaked) call(c kernel.Call) kernel.Result { return <-o.begin(c) }

func (o *soaked) begin(c kernel.Call) <-chan kernel.Result {
	o.calls.Add(1)
	o.asked.Store(true)
	done, out := make(chan kernel.Result, 1), make(chan kernel.Result, 1)
	go func() { done <- o.s.Call(context.Background(), c) }()
	go func() {
		select {
		case r := <-done:
			o.mu.Lock()
			o.trail = append(o.trail, fmt.Sprintf("generation %d: %.150s", r.Details.Generation, r.Text()))
			o.mu.Unlock()
			out <- r
		case <-time.After(2 * hang):
			o.wrong("no reply to %.100q", c.Code)
			out <- kernel.Result{}
		}
	}()
	return out
}

// told wants a reply to say exactly when state was lost.
func (o *soaked) told(r kernel.Result) {
	o.t.Helper()
	noticed := strings.HasPrefix(r.Text(), lostNote)
	if noticed != o.lost {
		o.wrong("a loss is due: %v, and told: %v: %.500s %+v", o.lost, noticed, r.Text(), r.Details.Error)
	}
	o.lost = false
}

// died wants the reply of a cell whose worker ended, by this name and with this cause.
func (o *soaked) died(r kernel.Result, name, cause string) {
	o.t.Helper()
	o.told(r)
	if e := r.Details.Error; e == nil || e.Name != name || !strings.Contains(e.Value, cause) || !r.Details.StateLost {
		o.wrong("want %s (%s): %.500s %+v", name, cause, r.Text(), e)
	}
	o.kept, o.lost = 0, true
}

// raised wants a cell's exception.
func (o *soaked) raised(r kernel.Result, name string) {
	o.t.Helper()
	o.told(r)
	if e := r.Details.Error; e == nil || e.Name != name {
		o.wrong("want %s: %.500s %+v", name, r.Text(), e)
	}
}

// fine wants a cell's value; "" for none.
func (o *soaked) fine(r kernel.Result, value string) {
	o.t.Helper()
	o.told(r)
	got := ""
	if r.Details.Value != nil {
		got = *r.Details.Value
	}
	if r.IsError || got != value {
		o.wrong("want %q: %.500s %+v", value, r.Text(), r.Details.Error)
	}
}

// begun begins a cell and waits until it says that it runs; false when it has come back
// before. The cell has to make the file up.
func (o *soaked) begun(code string, limit time.Duration) (<-chan kernel.Result, bool) {
	up := filepath.Join(o.opts.SessionDir, "up")
	os.Remove(up)
	out := o.begin(kernel.Call{Code: code, Timeout: limit})
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(up); err == nil {
			time.Sleep(time.Duration(o.r.IntN(20)) * time.Millisecond)
			return out, true
		}
		if len(out) > 0 {
			break
		}
	}
	r := <-out
	o.wrong("the cell does not run: %.500s %+v", r.Text(), r.Details.Error)
	return out, false
}

const (
	runsOn   = "import time\nopen('up', 'w').close()\nwhile True: time.sleep(0.005)"
	swallows = "import time\nwhile True:\n    try:\n        open('up', 'w').close()\n        while True: time.sleep(0.005)\n    except BaseException: pass"
)

// closedWhileItRuns ends the session under a cell.
func (o *soaked) closedWhileItRuns() {
	out, ok := o.begun(runsOn, 0)
	if !ok {
		return
	}
	if err := o.s.Close(); err != nil {
		o.wrong("close: %v", err)
	}
	if r := <-out; r.Details.Error == nil || r.Details.Error.Name != kernel.KernelKilled {
		o.wrong("closed under a cell: %.500s", r.Text())
	}
}

// soakSteps are what may happen in a session. Each wants the outcome that is due.
var soakSteps = slices.Concat([]soakStep{
	{"value", func(o *soaked) {
		d := 1 + o.r.IntN(9)
		o.kept += d
		o.fine(o.call(kernel.Call{Code: fmt.Sprintf("kept = globals().get('kept', 0) + %d; kept", d)}), strconv.Itoa(o.kept))
	}},
	{"output", func(o *soaked) {
		n := o.r.IntN(200000)
		r := o.call(kernel.Call{Code: fmt.Sprintf("print('x' * %d)", n)})
		o.fine(r, "")
		size := int64(len(r.Details.Stdout))
		if info, err := os.Stat(r.Details.FullOutputPath); err == nil {
			size = info.Size()
		}
		if size != int64(n+1) {
			o.wrong("%d bytes of output, %d were written; %q", size, n+1, r.Details.Notes)
		}
	}},
	{"exception", func(o *soaked) { o.raised(o.call(kernel.Call{Code: "1/0"}), "ZeroDivisionError") }},
	{"refusals", func(o *soaked) {
		if o.opts.Mode != policy.Enforce {
			return
		}
		r := o.call(kernel.Call{Code: "n = 0\nfor i in range(300):\n    try: open('/etc/cellblock-soak-%d' % (i % 7), 'w')\n    except OSError: n += 1\nn"})
		o.fine(r, "300")
		told := 0
		for _, v := range r.Details.Policy.Violations {
			told += max(v.Count, 1)
		}
		if told != 300 {
			o.wrong("%d refusals are told, of 300", told)
		}
	}},
	{"exit", func(o *soaked) {
		code := 1 + o.r.IntN(100)
		o.died(o.call(kernel.Call{Code: fmt.Sprintf("import os; os._exit(%d)", code)}), kernel.KernelExited, fmt.Sprintf("(%d)", code))
	}},
	{"signal", func(o *soaked) {
		name := []string{"SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM"}[o.r.IntN(4)]
		o.died(o.call(kernel.Call{Code: "import os, signal, time; os.kill(os.getpid(), signal." + name + "); time.sleep(60)"}), kernel.KernelExited, name)
	}},
	{"memory", func(o *soaked) {
		r := o.call(kernel.Call{Code: "bytearray(b'x') * (1 << 30)"})
		if r.Details.Error != nil && r.Details.Error.Name == "MemoryError" {
			o.raised(r, "MemoryError")
			return
		}
		o.died(r, kernel.KernelExited, "oom: memory limit 128 MiB")
	}},
	{"garbage on the wire", func(o *soaked) {
		o.died(o.call(kernel.Call{Code: "import os, time; os.write(3, b'garbage\\n'); time.sleep(60)"}), kernel.KernelExited, "protocol error")
	}},
	{"a closed wire", func(o *soaked) {
		o.died(o.call(kernel.Call{Code: "import os, time; os.close(3); time.sleep(0.01)"}), kernel.KernelExited, "")
	}},
	{"processes that stay", func(o *soaked) {
		o.fine(o.call(kernel.Call{Code: "import os, subprocess, threading, time\nif not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(900); os._exit(0)\n" +
			"subprocess.Popen(['sleep', '900'])\nthreading.Thread(target=time.sleep, args=(900,), daemon=True).start()"}), "")
	}},
	{"descriptors", func(o *soaked) {
		o.fine(o.call(kernel.Call{Code: "import os\nheld = []\ntry:\n    while True: held.append(os.open('/dev/null', 0))\nexcept OSError as e: got = e.errno\nwhile held: os.close(held.pop())\ngot"}), "24")
	}},
	{"files", func(o *soaked) {
		o.fine(o.call(kernel.Call{Code: "import os\nfor d in ('/tmp', '/dev/shm', '.'): open(d + '/left', 'w').write('x' * 5000)\nos.memfd_create('m') > 0"}), "True")
	}},
	{"time limit", func(o *soaked) {
		r := o.call(kernel.Call{Code: "while True: pass", Timeout: 200 * time.Millisecond})
		o.timedOut(r, o.opts.OnTimeout != kernel.TimeoutInterrupt)
	}},
	{"stopped", func(o *soaked) {
		r := o.call(kernel.Call{Code: "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", Timeout: 200 * time.Millisecond})
		o.timedOut(r, true)
	}},
	{"interrupt", func(o *soaked) {
		out, ok := o.begun(runsOn, 0)
		if !ok {
			return
		}
		o.s.Interrupt()
		o.raised(<-out, "KeyboardInterrupt")
	}},
	{"an interrupt that is swallowed", func(o *soaked) {
		out, ok := o.begun(swallows, 0)
		if !ok {
			return
		}
		o.s.Interrupt()
		o.died(<-out, kernel.KernelKilled, "")
	}},
	{"abort", func(o *soaked) {
		out, ok := o.begun(runsOn, 0)
		if !ok {
			return
		}
		o.s.Abort()
		o.died(<-out, kernel.KernelKilled, "")
	}},
	{"a worker that is killed", func(o *soaked) {
		out, ok := o.begun(runsOn, 0)
		if !ok {
			return
		}
		if err := syscall.Kill(o.s.Info().WorkerPID, syscall.SIGKILL); err != nil {
			o.wrong("kill: %v", err)
		}
		o.died(<-out, kernel.KernelExited, "SIGKILL")
	}},
	{"a first process that is killed", func(o *soaked) {
		out, ok := o.begun(runsOn, 0)
		if !ok {
			return
		}
		first, err := firstProcess(o.s.Info().WorkerPID)
		if err == nil {
			err = syscall.Kill(first, syscall.SIGKILL)
		}
		if err != nil {
			o.wrong("kill: %v", err)
		}
		o.died(<-out, kernel.KernelExited, "SIGKILL")
	}},
	{"reset", func(o *soaked) {
		r := o.call(kernel.Call{Reset: true})
		o.told(r)
		if r.IsError {
			o.wrong("reset: %.500s", r.Text())
		}
		o.kept = 0
	}},
	{"several at once", func(o *soaked) {
		// Nobody knows whom the abort meets; each call gets one reply.
		var all []<-chan kernel.Result
		for range 3 {
			all = append(all, o.begin(kernel.Call{Code: "import time; time.sleep(0.02)"}))
		}
		time.Sleep(time.Duration(o.r.IntN(40)) * time.Millisecond)
		o.s.Interrupt()
		o.s.Abort()
		for _, out := range all {
			if r := <-out; len(r.Content) == 0 {
				o.wrong("a reply without content")
			}
		}
		if r := o.call(kernel.Call{Code: "1"}); r.IsError {
			o.wrong("after an abort: %.500s", r.Text())
		}
		r := o.call(kernel.Call{Reset: true})
		o.lost, o.kept = false, 0
		o.told(r)
	}},
}, slices.Repeat([]soakStep{{"value again", func(o *soaked) {
	o.fine(o.call(kernel.Call{Code: "globals().get('kept', 0)"}), strconv.Itoa(o.kept))
}}}, 3))

type soakStep struct {
	name string
	do   func(o *soaked)
}

// timedOut wants the reply of a cell at its time limit.
func (o *soaked) timedOut(r kernel.Result, dead bool) {
	o.t.Helper()
	if dead {
		o.died(r, kernel.KernelTimeout, "timed out")
		return
	}
	o.raised(r, kernel.KernelTimeout)
}
