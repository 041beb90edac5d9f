package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/kernel/front/http/client"
)

// TestServeUnderLoad: many sessions at once through a server, of whose workers one in a
// hundred calls kills one: each answer is right, each loss has its cause, and none that
// is told was not asked for. CELLBLOCK_SERVE_LOAD is how long it goes on, such as 10m, and
// CELLBLOCK_SERVE_SESSIONS how many there are.
func TestServeUnderLoad(t *testing.T) {
	require(t, needUserns)
	sessions := int(number(t, "CELLBLOCK_SERVE_SESSIONS", 8))
	seed := number(t, "CELLBLOCK_SOAK_SEED", uint64(time.Now().UnixNano()))
	limit, often := 3*time.Second, 10 // a short run would kill nobody
	if text := os.Getenv("CELLBLOCK_SERVE_LOAD"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatalf("CELLBLOCK_SERVE_LOAD: %v", err)
		}
		often = 100
	}
	t.Logf("%d sessions for %v, seed %d", sessions, limit, seed)
	room := fmt.Sprint(2 * sessions)
	d := newDaemon(t).start("--mode", "enforce", "--max-sessions", room, "--max-caller-sessions", room, "--max-cells", room, "--max-caller-cells", room)

	l := &serveLoad{t: t, often: often}
	var start time.Time
	began := make(chan struct{})
	var all, ready sync.WaitGroup
	ready.Add(sessions)
	for i := range sessions {
		all.Go(func() {
			waits := sync.OnceFunc(ready.Done)
			defer waits()
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			c, err := client.New(d.socket, "")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			s, err := c.Create(t.Context(), api.Create{Directory: fmt.Sprintf("load-%d", i), Make: true, Limits: map[string]string{"memory": "256MiB"}})
			if err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			if first := s.Call(t.Context(), kernel.Call{Code: "1"}); first.IsError {
				t.Errorf("session %d: %.500s", i, first.Text())
				return
			}
			waits()
			<-began
			l.drive(r, c, s, start.Add(limit))
			if err := s.Close(); err != nil {
				t.Errorf("session %d: close: %v", i, err)
			}
		})
	}
	ready.Wait()
	start = time.Now()
	close(began)
	all.Wait()
	if l.killed.Load() == 0 || l.calls.Load() == 0 {
		t.Errorf("%d calls and %d kills: nothing was tried", l.calls.Load(), l.killed.Load())
	}
	slices.Sort(l.times)
	at := func(share float64) time.Duration {
		if len(l.times) == 0 {
			return 0
		}
		return l.times[min(len(l.times)-1, int(share*float64(len(l.times))))].Round(10 * time.Microsecond)
	}
	t.Logf("%d calls in %v, %.0f a second; %d workers were killed: %d replies told of a death and its cause, %d of one before their call; p50 %v, p90 %v, p99 %v, most %v",
		l.calls.Load(), time.Since(start).Round(time.Second), float64(l.calls.Load())/time.Since(start).Seconds(), l.killed.Load(), l.deaths.Load(), l.losses.Load(), at(0.5), at(0.9), at(0.99), at(1))
	if told := l.deaths.Load() + l.losses.Load(); told > 2*l.killed.Load() {
		t.Errorf("%d deaths and losses are told, of %d kills", told, l.killed.Load())
	}
	eventually(t, "no session is left", hang, func() bool { _, list := d.ask("GET", "/v1/sessions", ""); return list == `{"sessions":[]}`+"\n" })
	eventually(t, "no worker is left", hang, func() bool { return len(descendants(d.cmd.Process.Pid)) == 0 })
}

// serveLoad is what the clients of a load have seen.
type serveLoad struct {
	t                             *testing.T
	often                         int // one call in so many has its worker killed
	calls, killed, deaths, losses atomic.Int64

	mu    sync.Mutex
	times []time.Duration // of calls in which nobody was killed
}

// loadCells are what the clients run, each with the count of the session's calls in its
// value.
var loadCells = []string{
	"n = globals().get('n', 0) + 1; (n, 6 * 7)",
	"n = globals().get('n', 0) + 1; print('x' * 20000); (n, 6 * 7)",
	"import json; n = globals().get('n', 0) + 1; (n, len(json.dumps(list(range(2000)))) // 260 + 1)",
	"n = globals().get('n', 0) + 1; open('state', 'w').write(str(n)); (n, 6 * 7)",
	"import time; n = globals().get('n', 0) + 1; time.sleep(0.01); (n, 6 * 7)",
}

// drive runs cells in one session and looks at each answer.
func (l *serveLoad) drive(r *rand.Rand, c *client.Client, s *client.Session, until time.Time) {
	n, owed := 0, 0        // owed: kills of which no reply has told yet
	var worker *os.Process // a handle, which means no other process later
	for time.Now().Before(until) && !l.t.Failed() {
		kills := r.IntN(l.often) == 0 && worker != nil
		if kills {
			l.killed.Add(1)
			owed++
			pause, victim := time.Duration(r.IntN(15))*time.Millisecond, worker
			go func() {
				time.Sleep(pause)
				_ = victim.Signal(syscall.SIGKILL) // one that is gone already was killed before
			}()
		}
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		start := time.Now()
		reply := s.Call(ctx, kernel.Call{Code: loadCells[r.IntN(len(loadCells))]})
		took := time.Since(start)
		cancel()
		l.calls.Add(1)
		lost := reply.Details.StateLost
		if lost && owed == 0 {
			l.t.Errorf("session %s: a loss for which nobody has killed: %.500s %+v", s.ID, reply.Text(), reply.Details.Error)
		}
		switch e := reply.Details.Error; {
		case e != nil && e.Name == kernel.KernelExited && strings.Contains(e.Value, "SIGKILL") && lost:
			l.deaths.Add(1)
			owed, worker = max(owed-1, 0), nil
			// The next reply says it again, in words.
			next := s.Call(context.Background(), kernel.Call{Code: loadCells[0]})
			l.calls.Add(1)
			if n = 1; !next.Details.StateLost || !strings.HasPrefix(next.Text(), lostNote) {
				l.t.Errorf("session %s: the reply after a death: %.500s", s.ID, next.Text())
			}
			l.right(s, next, n)
		case e != nil:
			l.t.Errorf("session %s: %s: %.500s", s.ID, e.Name, e.Value)
		case lost: // killed between two calls
			l.losses.Add(1)
			owed, n = max(owed-1, 0), 1
			l.right(s, reply, n)
			worker = nil
		default:
			n++
			l.right(s, reply, n)
			if !kills {
				l.mu.Lock()
				l.times = append(l.times, took)
				l.mu.Unlock()
			}
		}
		if worker == nil {
			worker = l.workerOf(c, s)
		}
		time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
	}
}

// right wants a reply's value to be the one that is due.
func (l *serveLoad) right(s *client.Session, reply kernel.Result, n int) {
	l.t.Helper()
	want := fmt.Sprintf("(%d, 42)", n)
	if reply.IsError || reply.Details.Value == nil || *reply.Details.Value != want {
		l.t.Errorf("session %s: want %s: %.500s", s.ID, want, reply.Text())
	}
}

// workerOf asks the server for the process of a session's worker; nil for none.
func (l *serveLoad) workerOf(c *client.Client, s *client.Session) *os.Process {
	list, err := c.Sessions(context.Background())
	if err != nil {
		l.t.Errorf("list: %v", err)
		return nil
	}
	for _, one := range list {
		if one.ID == s.ID && one.Info.WorkerPID > 0 {
			worker, err := os.FindProcess(one.Info.WorkerPID)
			if err != nil {
				l.t.Error(err)
			}
			return worker
		}
	}
	return nil // it has died meanwhile
}
