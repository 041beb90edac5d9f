package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/kernel/proxy"
	"cellblock/kernel/wire"
	"cellblock/policy"
	"cellblock/pyruntime"
)

// worker is one generation of a session: a process, its wire and its pipes.
type worker struct {
	temp       *tempDir
	proc       process
	conn       *wire.Conn
	out        *output
	room       room // for full-output files
	watch      *watch
	outlet     *outlet
	lookups    lookups
	generation int
	python     string // the interpreter
	info       wire.Info
	forked     bool // the next cell gets fresh pipes
	hears      bool // what the worker asks Linux for is told
	spawned    bool // some cell has made a process or a thread

	mu      sync.Mutex
	waiting map[int64]chan *wire.Message
	onCall  func(*wire.Message) // host calls; set before the first request
	broken  error               // what it did against the protocol
	gone    chan struct{}       // closed when nothing more will be read
	killed  string              // why the launcher ended it; empty when it did not
	ended   sync.WaitGroup
	calls   atomic.Int32 // host calls that wait for an answer
}

var errGone = errors.New("the worker has gone")

// startWorker starts a generation and waits until it is ready.
func startWorker(ctx context.Context, s *Session, generation int) (started *worker, err error) {
	python, err := interpreter(s.opts.PythonBin, s.dir)
	if err != nil {
		return nil, err
	}
	temp, err := newTempDir()
	if err != nil {
		return nil, err
	}
	uid, gid := -1, -1
	if s.opts.Tier == TierJail {
		uid, gid = s.opts.workerIDs()
	}
	w := &worker{temp: temp, out: newOutput(uid, gid), room: room{limit: s.policy.Limits.OutputBytes}, generation: generation, python: python, watch: &watch{policy: s.policy},
		waiting: map[int64]chan *wire.Message{}, gone: make(chan struct{}), onCall: s.hostCall}
	defer func() {
		if err != nil {
			w.discard()
		}
	}()
	if s.opts.Tier == TierJail {
		if err := temp.hold(s.policy.Deny); err != nil {
			return nil, err
		}
	}
	w.lookups.find = proxy.Lookup
	w.outlet = s.newOutlet(w.watch)
	if w.outlet != nil {
		w.watch.names = w.outlet.names
	}
	if err := s.layer.ready(s); err != nil {
		return nil, err
	}
	source, err := runtimeDir(s.opts.Runtime, python, s.dir, temp.path)
	if err != nil {
		return nil, err
	}
	seen := source
	if s.opts.Tier == TierJail && !policy.Within(temp.path, source) {
		// Of the launcher's state a session sees nothing, not even the name.
		seen = filepath.Join(temp.path, "runtime")
		if err := os.Mkdir(seen, 0o755); err != nil {
			return nil, fmt.Errorf("worker source: %w", err)
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "wire")
	defer theirs.Close()
	if w.conn, err = wire.NewConn(os.NewFile(uintptr(fds[0]), "wire")); err != nil {
		return nil, err
	}
	ends, err := w.out.open()
	if err != nil {
		return nil, err
	}
	defer ends[0].Close()
	defer ends[1].Close()
	start := time.Now()
	w.proc, err = s.start(ctx, launch{
		argv: pyruntime.Command(python, seen, wireNumber), env: s.environment(), dir: s.dir, source: source,
		wire: theirs, stdout: ends[0], stderr: ends[1], temp: temp.path, needless: temp.needless,
		interpreter: python, skillRoots: s.opts.SkillRoots, startTimeout: s.opts.StartTimeout, told: w.watch.told, outlet: w.outlet,
	})
	if err != nil {
		return nil, fmt.Errorf("python %q: %w", python, err)
	}
	theirs.Close()
	if err := s.recordStart(w); err != nil {
		return nil, err
	}
	w.ended.Add(1)
	go w.read()
	s.layer.watch(w, s.policy.Limits.ShadowBytes)
	defer context.AfterFunc(ctx, w.proc.Kill)()
	if err := w.ready(s, python, start); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *worker) ready(s *Session, python string, start time.Time) error {
	input := s.opts.Input != nil
	limit := s.opts.StartTimeout - time.Since(start)
	m, err := w.request(wire.Request{Op: wire.OpInstallRuntime, Session: s.name, Directory: s.dir,
		SkillRoots: s.opts.SkillRoots, Input: &input, MaxOutput: s.opts.MaxOutput}, nil, limit)
	if err == nil && m.Error != nil {
		err = m.Error
	}
	if err == nil && m.Info != nil && oldPython(m.Info.Python, pyruntime.MinVersion) {
		return fmt.Errorf("python %q: is %s; %s or later is needed", python, m.Info.Python, pyruntime.MinVersion)
	}
	if err == nil {
		if m.Info != nil {
			w.info = *m.Info
		}
		read, write, refusal := []string{}, s.writable(), ""
		m, err = w.request(wire.Request{Op: wire.OpConfine, Session: s.name, Read: &read, Write: &write, Deny: s.denied(), Refusal: &refusal}, nil, limit)
		if err == nil && m.Error != nil {
			err = m.Error
		}
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, errGone) {
		death, log := w.death(s), w.out.tail()
		return fmt.Errorf("python %q: ended before it was ready (%s): %s", python, death, lastLines(log))
	}
	if errors.Is(err, errLate) {
		return fmt.Errorf("python %q: was not ready within %s: %s", python, s.opts.StartTimeout, lastLines(w.out.tail()))
	}
	return fmt.Errorf("python %q: %w", python, err)
}

// ownEnd bounds the wait for the exit status of a worker whose wire has closed.
const ownEnd = time.Second

const (
	// signalEvery is the time between two signals of one interrupt.
	signalEvery = 50 * time.Millisecond
	// aloneFor is how many of them go to the worker alone.
	aloneFor = 5
)

var errLate = errors.New("no answer in time")

// read takes messages until the wire ends. Whatever is not in the protocol ends
// the worker, and nothing else.
func (w *worker) read() {
	defer w.ended.Done()
	defer close(w.gone)
	for {
		m, err := w.conn.ReadMessage()
		if err != nil {
			var broke *wire.ProtocolError
			if errors.As(err, &broke) {
				w.fail(broke)
			}
			return
		}
		if m.Op == wire.OpHost {
			w.onCall(m)
			continue
		}
		w.mu.Lock()
		to := w.waiting[m.ID]
		delete(w.waiting, m.ID)
		w.mu.Unlock()
		if to == nil {
			w.fail(&wire.ProtocolError{Rule: wire.RuleUnknownReply, Detail: fmt.Sprintf("id %d", m.ID)})
			return
		}
		to <- m
	}
}

func (w *worker) fail(err error) {
	w.mu.Lock()
	w.broken = err
	w.mu.Unlock()
	w.proc.Kill()
}

// send writes a request; its number and where its reply will come. numbered,
// when given, is called with the number before the first byte goes out.
func (w *worker) send(r wire.Request, fds []int, numbered func(id int64)) (int64, chan *wire.Message, error) {
	reply := make(chan *wire.Message, 1)
	var number int64
	err := w.conn.Request(r, fds, func(id int64) {
		number = id
		w.mu.Lock()
		w.waiting[id] = reply
		w.mu.Unlock()
		if numbered != nil {
			numbered(id)
		}
	})
	if err != nil && !errors.As(err, new(*wire.ProtocolError)) {
		err = errGone
	}
	return number, reply, err
}

func (w *worker) request(r wire.Request, fds []int, limit time.Duration) (*wire.Message, error) {
	_, reply, err := w.send(r, fds, nil)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(max(limit, time.Millisecond))
	defer timer.Stop()
	select {
	case m := <-reply:
		return m, nil
	case <-w.gone:
		select {
		case m := <-reply:
			return m, nil
		default:
			return nil, errGone
		}
	case <-timer.C:
		return nil, errLate
	}
}

// interrupt asks for the execution with number to stop and reports whether the
// worker said that it did.
func (w *worker) interrupt(session string, number int64) (hit bool, err error) {
	_, reply, err := w.send(wire.Request{Op: wire.OpInterrupt, Session: session, Target: number}, nil, nil)
	if err != nil {
		return false, err
	}
	late, cancel := after(interruptExchange)
	defer cancel()
	// A signal that comes just before the code runs finds no code to stop, and
	// the request then waits on the wire for the next one. A signal without a
	// request on the wire does nothing.
	again := time.NewTicker(signalEvery)
	defer again.Stop()
	for sent := 0; ; sent++ {
		// After the request, so that the handler finds it on the wire. A worker that
		// waits for a child in system(3) ignores the signal until the child has
		// ended, so the child gets it too, as it would from a terminal.
		signal := w.proc.Signal
		if sent >= aloneFor {
			signal = w.proc.SignalGroup
		}
		if err := signal(syscall.SIGINT); err != nil {
			return false, errGone
		}
		select {
		case m := <-reply:
			return string(m.Value) == "true", nil
		case <-w.gone:
			return false, errGone
		case <-late:
			return false, errLate
		case <-again.C:
		}
	}
}

// kill ends the worker and everything below it, and says why.
func (w *worker) kill(why string) {
	w.mu.Lock()
	if w.killed == "" {
		w.killed = why
	}
	w.mu.Unlock()
	w.proc.Kill()
}

func (w *worker) killedBy() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed
}

// death waits for the process's end and picks its one cause.
func (w *worker) death(s *Session) Death {
	// A worker that closes its wire is usually about to end by itself, and then its
	// own exit status is the cause; one that lives on is of no use.
	if !w.condemned() {
		grace, cancel := after(ownEnd)
		select {
		case <-w.proc.Done():
		case <-grace:
		}
		cancel()
	}
	w.proc.Kill()
	<-w.proc.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	limits := s.policy.Limits
	if w.killed == killedFull {
		return Death{ShadowLimit: limits.ShadowBytes}
	}
	return w.proc.Exit().death(limits.MemoryBytes, limits.Tasks, w.broken)
}

// condemned says whether the launcher itself has ended the worker.
func (w *worker) condemned() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed != "" || w.broken != nil
}

// discard ends what is left of a generation: process, wire, pipes, directory.
func (w *worker) discard() {
	if w.proc != nil {
		w.proc.Kill()
		<-w.proc.Done()
	}
	if w.conn != nil {
		w.conn.Close()
	}
	w.outlet.close()
	w.ended.Wait()
	w.out.close()
	w.temp.remove()
}

func lastLines(log string) string {
	if log == "" {
		return "it wrote nothing"
	}
	return string(suffix([]byte(log), 2000))
}
