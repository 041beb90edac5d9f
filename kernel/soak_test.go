package kernel

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cellblock/kernel/host"
)

// scripted is a worker in this process: the other end of a real session's wire, in
// the hands of a test.
type scripted struct {
	conn net.Conn
	done chan struct{}
	once sync.Once
	hit  chan struct{} // an interrupt's signal
}

func (p *scripted) Signal(syscall.Signal) error {
	select {
	case p.hit <- struct{}{}:
	default:
	}
	return nil
}
func (p *scripted) SignalGroup(s syscall.Signal) error { return p.Signal(s) }
func (p *scripted) Kill()                              { p.once.Do(func() { p.conn.Close(); close(p.done) }) }
func (p *scripted) Done() <-chan struct{}              { return p.done }
func (p *scripted) Exit() exitStatus                   { return exitStatus{} }
func (p *scripted) Usage() Usage                       { return Usage{} }
func (p *scripted) Pid() int                           { return 1 }
func (p *scripted) Standing() standing                 { return standing{} }
func (p *scripted) Settle() (bool, error)              { return false, nil }
func (p *scripted) Dial(context.Context, int) (net.Conn, error) {
	return nil, os.ErrInvalid
}

// scriptedBy opens a session whose workers follow play.
func scriptedBy(t *testing.T, o Options, play func(p *scripted)) *Session {
	t.Helper()
	o.Tier = TierProcess
	s := open(t, o)
	s.start = func(_ context.Context, l launch) (process, error) {
		conn, err := net.FileConn(l.wire)
		if err != nil {
			return nil, err
		}
		p := &scripted{conn: conn, done: make(chan struct{}), hit: make(chan struct{}, 1)}
		go func() { play(p); p.Kill() }()
		return p, nil
	}
	return s
}

// message is any line of the wire, as a worker sees it.
type message struct {
	ID      int64           `json:"id"`
	Op      string          `json:"op"`
	Scope   string          `json:"scope"`
	Code    string          `json:"code"`
	Name    string          `json:"name"`
	Target  int64           `json:"target"`
	Session string          `json:"session"`
	Value   json.RawMessage `json:"value"`
	Error   *struct{ Code string }
}

// lines hands on what the launcher writes, until the wire ends.
func (p *scripted) lines() <-chan message {
	out := make(chan message, 4096)
	go func() {
		defer close(out)
		r := bufio.NewReaderSize(p.conn, 64<<10)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var m message
			if json.Unmarshal(line, &m) != nil {
				return
			}
			select {
			case out <- m:
			case <-p.done:
				return
			}
		}
	}()
	return out
}

func (p *scripted) say(v any) {
	line, _ := json.Marshal(v)
	p.raw(append(line, '\n'))
}

func (p *scripted) raw(b []byte) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _ = p.conn.Write(b)
}

// prepare answers what comes before the first cell, and returns its request.
func (p *scripted) prepare(in <-chan message) (cell message, ok bool) {
	for m := range in {
		switch m.Op {
		case "install-runtime":
			p.say(map[string]any{"id": m.ID, "value": 0, "info": map[string]any{"python": "3.11.0"}})
		case "confine":
			p.say(map[string]any{"id": m.ID, "value": map[string]int{"read": 0, "write": 0}})
		case "install-tool":
			p.say(map[string]any{"id": m.ID, "value": m.Name})
		case "interrupt":
			p.say(map[string]any{"id": m.ID, "value": false})
		case "run-block":
			return m, true
		}
	}
	return message{}, false
}

// liar plays a worker that does whatever the seed says, and now and then, for a whole
// cell, what it should.
type liar struct {
	t       *testing.T
	seed    uint64
	started atomic.Uint64 // generations
	others  *atomic.Value // scope of another session
	honest  atomic.Int64  // cells in which every call was answered once
	strange atomic.Int64
}

func (l *liar) play(p *scripted) {
	r := rand.New(rand.NewPCG(l.seed, l.started.Add(1)))
	in := p.lines()
	next := int64(0)
	for {
		cell, ok := p.prepare(in)
		if !ok {
			return
		}
		if r.IntN(3) == 0 {
			if !l.keepsTo(r, p, in, cell, &next) {
				return
			}
			continue
		}
		l.strange.Add(1)
		if !l.lies(r, p, in, cell, &next) {
			return
		}
	}
}

// keepsTo makes calls, cancels some, and wants each answered exactly once.
func (l *liar) keepsTo(r *rand.Rand, p *scripted, in <-chan message, cell message, next *int64) bool {
	open := map[int64]bool{}
	for range 1 + r.IntN(40) {
		*next++
		open[*next] = true
		tool := []string{"t.echo", "t.slow", "x.never", "t.none"}[r.IntN(4)]
		p.say(map[string]any{"id": *next, "op": "host", "name": tool, "arguments": map[string]any{"n": *next}, "scope": cell.Scope})
		if r.IntN(4) == 0 {
			*next++
			open[*next] = true
			p.say(map[string]any{"id": *next, "op": "host", "name": "host.cancel", "arguments": map[string]any{"call": *next - 1}, "scope": cell.Scope})
		}
	}
	for len(open) > 0 {
		m, ok := <-in
		switch {
		case !ok:
			return false
		case m.Op == "interrupt":
			p.say(map[string]any{"id": m.ID, "value": m.Target == cell.ID})
		case m.Op != "":
			l.t.Errorf("a request while a cell runs: %+v", m)
		case m.Scope != cell.Scope: // of a lying cell before this one
		case !open[m.ID] || (m.Error == nil) == (m.Value == nil):
			l.t.Errorf("an answer that nobody waits for: %+v", m)
			return false
		default:
			delete(open, m.ID)
		}
	}
	l.honest.Add(1)
	p.say(map[string]any{"id": cell.ID, "value": map[string]any{"status": "ok", "value": cell.Scope}})
	return true
}

// lies sends lines of every kind, most of them wrong.
func (l *liar) lies(r *rand.Rand, p *scripted, in <-chan message, cell message, next *int64) bool {
	for range r.IntN(60) {
		select {
		case <-p.done:
			return false
		default:
		}
		*next++
		scopes := []string{cell.Scope, cell.Scope, cell.Scope, "", "x", cell.Scope + "0", fmt.Sprint(l.others.Load())}
		call := map[string]any{"id": *next, "op": "host", "name": []string{"t.echo", "t.slow", "t.own", "x.never", "input", "host.cancel", "host.x", ""}[r.IntN(8)],
			"arguments": map[string]any{"call": r.IntN(50), "prompt": "?", "session": "other", "role": "extension"}, "scope": scopes[r.IntN(len(scopes))]}
		switch r.IntN(24) {
		case 0:
			call["id"] = r.Int64N(*next + 1)
		case 1:
			call["id"] = int64(1) << (20 + r.IntN(44))
		case 2:
			call["role"] = "extension"
		case 3:
			call = map[string]any{"id": r.IntN(20), "value": "forged"}
		case 4:
			call = map[string]any{"id": cell.ID, "error": map[string]any{"type": "E", "message": "m", "fields": []int{1}}}
		case 5:
			line, _ := json.Marshal(call)
			for range 1 + r.IntN(4) {
				line[r.IntN(len(line))] = byte(r.IntN(256))
			}
			p.raw(append(line, '\n'))
			continue
		case 6:
			p.raw([]byte(strings.Repeat("[", r.IntN(3000)) + "\n"))
			continue
		case 7:
			p.raw(make([]byte, r.IntN(100000)))
			continue
		case 8:
			for range r.IntN(3000) { // and nobody reads the answers
				*next++
				p.say(map[string]any{"id": *next, "op": "host", "name": "t.none", "arguments": map[string]any{}, "scope": cell.Scope})
			}
			continue
		case 9:
			line, _ := json.Marshal(call)
			p.raw(line[:r.IntN(len(line))])
			return false
		case 10:
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		case 11:
			call["arguments"] = []any{1}
		case 12:
			call["arguments"] = map[string]any{"x": strings.Repeat("y", r.IntN(3<<20))}
		}
		p.say(call)
	}
	for len(in) > 0 {
		if m, ok := <-in; ok && m.Op == "interrupt" {
			p.say(map[string]any{"id": m.ID, "value": r.IntN(2) == 0})
		}
	}
	switch r.IntN(4) {
	case 0:
		return false
	case 1:
		p.say(map[string]any{"id": cell.ID, "value": map[string]any{"status": "ok", "value": l.others.Load()}})
		*next++ // after its reply
		p.say(map[string]any{"id": *next, "op": "host", "name": "t.own", "arguments": map[string]any{}, "scope": cell.Scope})
	case 2:
		p.say(map[string]any{"id": cell.ID, "value": map[string]any{"status": "ok", "extra": 1}})
	default:
		p.say(map[string]any{"id": cell.ID, "value": map[string]any{"status": "ok"}})
	}
	return true
}

// soakFor is how long the test below goes on: CELLBLOCK_SOAK, such as 10m, or a few
// seconds.
func soakFor(t *testing.T) time.Duration {
	text := os.Getenv("CELLBLOCK_SOAK")
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CELLBLOCK_SOAK: %v", err)
	}
	return d
}

// TestWorkersThatSpeakTheWireAtRandom: whatever a worker sends, the launcher lives on,
// keeps nothing of it, and another session notices nothing.
func TestWorkersThatSpeakTheWireAtRandom(t *testing.T) {
	limit := soakFor(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	if r, w, err := os.Pipe(); err == nil { // Go's own poller has descriptors from the first pipe on
		r.Close()
		w.Close()
	}
	files := func() (open []string) {
		list, _ := os.ReadDir("/proc/self/fd")
		for _, f := range list {
			to, _ := os.Readlink("/proc/self/fd/" + f.Name())
			open = append(open, f.Name()+" "+to)
		}
		return open
	}
	before, threads := files(), runtime.NumGoroutine()

	var names sync.Map // sessions of this test
	var own atomic.Int64
	tool := func(name string, do func(context.Context, host.Call) (json.RawMessage, error)) host.Tool {
		return host.Tool{Name: name, Do: func(ctx context.Context, c host.Call) (json.RawMessage, error) {
			if _, known := names.Load(c.Identity.Session); !known || !strings.HasPrefix(c.Identity.Scope, c.Identity.Session+"/") || c.Identity.Role != host.RoleSandbox {
				t.Errorf("a call as %+v", c.Identity)
			}
			return do(ctx, c)
		}}
	}
	options := func() Options {
		o := withTools(t, tool("t.echo", echo),
			tool("t.slow", func(ctx context.Context, _ host.Call) (json.RawMessage, error) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(rand.IntN(30)) * time.Millisecond):
				}
				return nil, ctx.Err()
			}),
			tool("t.own", func(_ context.Context, c host.Call) (json.RawMessage, error) {
				own.Add(1)
				return json.Marshal(c.Identity.Session)
			}),
			host.Tool{Name: "x.never", Do: func(context.Context, host.Call) (json.RawMessage, error) {
				t.Error("what the policy denies was carried out")
				return nil, nil
			}})
		o.OnTimeout, o.Audit = TimeoutInterrupt, auditFile(t)
		state := t.TempDir()
		o.State, o.Runtime = []string{state}, filepath.Join(state, "runtime")
		o.Input = func(string, bool) (string, error) { return "", os.ErrClosed }
		return o
	}
	var others atomic.Value
	others.Store("")
	good := scriptedBy(t, options(), func(p *scripted) {
		in := p.lines()
		for next := int64(1); ; next++ {
			cell, ok := p.prepare(in)
			if !ok {
				return
			}
			others.Store(cell.Scope)
			p.say(map[string]any{"id": next, "op": "host", "name": "t.own", "arguments": map[string]any{}, "scope": cell.Scope})
			m, ok := <-in
			if !ok {
				return
			}
			p.say(map[string]any{"id": cell.ID, "value": map[string]any{"status": "ok", "value": string(m.Value)}})
		}
	})
	names.Store(good.name, true)

	stop := time.Now().Add(limit)
	var all sync.WaitGroup
	var liars []*liar
	var cells atomic.Int64
	for i := range 2 {
		l := &liar{t: t, seed: seed + uint64(i), others: &others}
		liars = append(liars, l)
		s := scriptedBy(t, options(), l.play)
		names.Store(s.name, true)
		drive := rand.New(rand.NewPCG(seed, uint64(100+i)))
		all.Go(func() {
			for time.Now().Before(stop) {
				var meddle sync.WaitGroup
				if n := drive.IntN(8); n < 2 {
					pause := time.Duration(drive.IntN(20)) * time.Millisecond
					meddle.Go(func() {
						time.Sleep(pause)
						if n == 0 {
							s.Interrupt()
						} else {
							s.Abort()
						}
					})
				}
				call := Call{Code: "x", Timeout: time.Duration(20+drive.IntN(200)) * time.Millisecond, Reset: drive.IntN(20) == 0}
				done := make(chan Result, 1)
				go func() { done <- s.Call(context.Background(), call) }()
				select {
				case r := <-done:
					if len(r.Content) == 0 {
						t.Error("a result without content")
					}
				case <-time.After(time.Minute):
					t.Errorf("a call did not come back")
					return
				}
				meddle.Wait()
				cells.Add(1)
			}
			s.Close()
		})
	}
	served := 0
	for time.Now().Before(stop) {
		r := good.Call(t.Context(), Call{Code: "x"})
		if r.IsError || r.Details.Value == nil || *r.Details.Value != `"`+good.name+`"` || r.Details.StateLost {
			t.Fatalf("the other session: %+v", r)
		}
		served++
	}
	all.Wait()
	good.Close()
	honest := int64(0)
	for _, l := range liars {
		honest += l.honest.Load()
	}
	t.Logf("%d cells, %d of them kept to the protocol; %d of the other session; %d calls of its tool", cells.Load(), honest, served, own.Load())
	if honest == 0 || liars[0].strange.Load() == 0 || served == 0 {
		t.Error("nothing was tried")
	}
	for range 100 {
		if len(files()) <= len(before) && runtime.NumGoroutine() <= threads {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	stacks := make([]byte, 64<<10)
	t.Errorf("descriptors %q and %d goroutines, before %q and %d\n%s", files(), runtime.NumGoroutine(), before, threads, stacks[:runtime.Stack(stacks, true)])
}
