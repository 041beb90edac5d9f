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
	forked     bool      // the next cell gets fresh pipes
	places     []placeID // of what its jail covers, as it was when stock got it
	stock      bool      // made before its session came
	hears      bool      // what the worker asks Linux for is told
	spawned    bool      // some cell has made a process or a thread
	stuck      bool      // it was killed and did not end in time

	mu      sync.Mutex
	waiting map[int64]chan *wire.Message
	onCall  func(*worker, *wire.Message)  // host calls; set before the first request
	onReply func(w *worker, number int64) // before a reply is handed on; set before the first request
	broken  error                         // what it did against the protocol
	gone    chan struct{}                 // closed when nothing more will be read
	killed  string                        // why the launcher ended it; empty when it did not
	ended   sync.WaitGroup
	answers answers      // to its host calls
	calls   atomic.Int32 // host calls whose answers have not been written
	asks    atomic.Int32 // of them, questions to whoever answers input()
}

var errGone = errors.New("the worker has gone")

// startWorker starts a generation, or takes a worker from stock, and waits until it is
// ready.
func startWorker(ctx context.Context, s *Session, generation int) (*worker, error) {
	w, parent := s.opts.Stock.take(s)
	if w != nil {
		err := w.begin(ctx, s, generation, time.Now(), s.opts.StartTimeout/stockShare)
		s.opts.Stock.given()
		if err == nil {
			return w, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		// Something may have stopped it while it waited. A fresh one is ready, or its error
		// says what is wrong with the session.
		err = fmt.Errorf("stock: worker for %s: %w", s.name, err)
		s.opts.Stock.failed(nil, err)
		s.recordFailure(generation, err)
	}
	start := time.Now()
	w, err := s.makeForked(ctx, parent)
	if w == nil {
		w, err = makeWorker(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	if err := w.begin(ctx, s, generation, start, s.opts.StartTimeout); err != nil {
		return nil, err
	}
	return w, nil
}

// stockShare is the part of a start's time that a worker from stock has: what takes long
// has been done.
const stockShare = 3

// begin makes a worker the session's and waits until it is ready, for limit from start on.
// One that is not in time is discarded.
func (w *worker) begin(ctx context.Context, s *Session, generation int, start time.Time, limit time.Duration) (err error) {
	defer func() {
		if err != nil {
			w.discard()
		}
	}()
	w.generation, w.onCall, w.onReply = generation, s.hostCall, s.closeScope
	if err := s.recordStart(w); err != nil {
		return err
	}
	w.ended.Add(1)
	go w.read()
	s.layer.watch(w, s.policy.Limits.ShadowBytes)
	defer context.AfterFunc(ctx, w.proc.Kill)()
	return w.ready(ctx, s, start, limit)
}

// makeWorker starts a process that waits for its first request.
func makeWorker(ctx context.Context, s *Session) (made *worker, err error) {
	defer func() { err = short(err) }()
	if err := roomForStart(); err != nil {
		return nil, err
	}
	python, err := interpreter(s.opts.PythonBin, s.places())
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
	w := &worker{temp: temp, out: newOutput(uid, gid), room: room{limit: s.policy.Limits.OutputBytes}, python: python, watch: &watch{},
		waiting: map[int64]chan *wire.Message{}, gone: make(chan struct{})}
	w.watch.rules.Store(&s.policy)
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
	source, err := runtimeDir(s.opts.Runtime, python, s.places(), temp.path)
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
	w.answers.conn, w.answers.left = w.conn, &w.calls
	ends, err := w.out.open()
	if err != nil {
		return nil, err
	}
	defer ends[0].Close()
	defer ends[1].Close()
	w.proc, err = s.start(ctx, launch{
		argv: pyruntime.Command(python, seen, wireNumber), env: s.environment(), dir: s.dir, source: source,
		wire: theirs, stdout: ends[0], stderr: ends[1], seen: seen, temp: temp.path, needless: temp.needless,
		interpreter: python, skillRoots: s.opts.SkillRoots, startTimeout: s.opts.StartTimeout, told: w.watch.told, outlet: w.outlet,
	})
	if err != nil {
		return nil, fmt.Errorf("python %q: %w", python, err)
	}
	w.out.pressed(func() { _ = w.proc.Signal(syscall.SIGURG) }) // it may have ended
	return w, nil
}

func (w *worker) ready(ctx context.Context, s *Session, start time.Time, whole time.Duration) error {
	python, limit := w.python, whole-time.Since(start)
	input := s.opts.Input != nil
	_, installed, err := w.send(wire.Request{Op: wire.OpInstallRuntime, Session: s.name, Directory: s.dir,
		SkillRoots: s.opts.SkillRoots, Input: &input, MaxOutput: s.opts.MaxOutput}, nil, nil)
	var confined chan *wire.Message
	if err == nil {
		// Before the first is answered: the worker takes one after the other.
		read, write, refusal := []string{}, s.writable(), ""
		observed, _ := w.proc.Settle() // of a failure the first cell tells
		_, confined, err = w.send(wire.Request{Op: wire.OpConfine, Session: s.name, Read: &read, Write: &write, Deny: s.denied(), Observed: observed, Refusal: &refusal}, nil, nil)
	}
	var m *wire.Message
	if err == nil {
		m, err = w.await(installed, limit)
	}
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
		m, err = w.await(confined, limit)
		if err == nil && m.Error != nil {
			err = m.Error
		}
	}
	if err == nil {
		err = s.ext().registered(ctx)
	}
	if err == nil {
		err = s.bindTools(w, limit)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, errGone) {
		death, log := w.death(s), w.out.tail()
		return fmt.Errorf("python %q: ended before it was ready (%s): %s", python, death, lastLines(log))
	}
	if errors.Is(err, errLate) {
		return fmt.Errorf("python %q: was not ready within %s: %s", python, whole, lastLines(w.out.tail()))
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
			w.onCall(w, m)
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
		w.onReply(w, m.ID)
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

func (w *worker) request(r wire.Request, limit time.Duration) (*wire.Message, error) {
	_, reply, err := w.send(r, nil, nil)
	if err != nil {
		return nil, err
	}
	return w.await(reply, limit)
}

// await waits for the reply to what send has sent.
func (w *worker) await(reply chan *wire.Message, limit time.Duration) (*wire.Message, error) {
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
	grace, cancel := after(endGrace)
	defer cancel()
	select {
	case <-w.proc.Done():
	case <-grace:
		w.stuck = true
		return Death{Stuck: true}
	}
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

// endGrace bounds the wait for the end of what was killed. Linux lets a process end at
// once, unless it waits within a system call that no signal breaks off: for a disk that
// does not answer, mostly (proc(5): state D).
const endGrace = 5 * time.Second

// discard ends what is left of a generation: process, wire, pipes, directory. It waits for
// endGrace at most, unless death has done so; ended is closed when all is done.
func (w *worker) discard() (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.discardAll()
	}()
	if w.stuck {
		return done
	}
	grace, cancel := after(endGrace)
	defer cancel()
	select {
	case <-done:
	case <-grace:
	}
	return done
}

func (w *worker) discardAll() {
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
