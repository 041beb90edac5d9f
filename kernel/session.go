package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cellblock/jail"
	"cellblock/kernel/delegate"
	"cellblock/kernel/host"
	"cellblock/kernel/proxy"
	"cellblock/kernel/wire"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// Session is one agent's long-lived state: a worker that is started on the
// first call, and again after it has died. Its methods may be called from
// several goroutines; calls run one after the other in the order they came.
type Session struct {
	opts   Options
	name   string
	dir    string
	home   string // the operator's; may be empty
	policy policy.Policy
	notes  []policy.Note
	digest string // of the policy
	shape  string // see policyShape; empty without a stock
	record *recorder
	rego   *delegate.Delegate // of a policy that delegates host calls; nil for none
	door   *host.Door
	layer  *layer // of mode shadow; nil in the others
	start  func(context.Context, launch) (process, error)
	swept  *sweeping
	keep   *keeping // nil where no definitions are kept
	// stocked is the room in which a directory will be attached, of what stands for the
	// sessions that get a worker from stock; empty for a session.
	stocked string
	// parent forks its workers; nil where they are executed.
	parent *jail.Parent

	inbound  []Inbound
	forwards *proxy.Server // serves them; nil for none

	turn chan struct{} // holds one token; who has it runs

	mu         sync.Mutex
	extensions *extensions // nil for none
	worker     *worker
	running    execution     // what runs; zero for nothing
	stop       chan struct{} // closed by Abort: everything waiting fails at once
	generation int
	cells      int
	lost       bool            // the last worker died: the next reply says so
	ending     <-chan struct{} // closed when the last worker has ended whole; nil for none
	retired    string          // why nothing runs until a reset; empty when it does
	closed     bool
}

var sessions atomic.Int64

// Open checks the options and the session directory, opens the audit record and
// begins to remove what killed launchers left, unless that was done within the last
// 10 s; it has ended when the first worker is ready, or with Close. No worker is
// started before the first call or Start. The error is an *audit.OpenError when it is the record's.
func Open(opts Options) (*Session, error) {
	if err := roomForStart(); err != nil {
		return nil, short(err)
	}
	makeState(opts)
	s, err := newSession(opts)
	if err != nil {
		return nil, err
	}
	s.start = startUnjailed
	if s.opts.Tier == TierJail {
		if s.start, err = s.jailTier(); err != nil {
			return nil, err
		}
	}
	if s.shadowed() {
		if s.layer, err = newLayer(s.opts); err != nil {
			return nil, err
		}
	}
	if err := s.delegated(); err != nil {
		return nil, err
	}
	if err := s.openDefinitions(); err != nil {
		s.rego.Close()
		return nil, err
	}
	if err := s.openRecord(); err != nil {
		s.rego.Close()
		s.keep.close()
		return nil, err
	}
	if err := s.openInbound(); err != nil {
		s.keep.close()
		return nil, errors.Join(err, s.record.close())
	}
	s.swept = s.sweep()
	s.openExtensions()
	s.turn <- struct{}{}
	return s, nil
}

// makeState makes the launcher's own directories: what is not there cannot be
// hidden, and a session could make it. Where the launcher cannot make one, neither
// can a session, which has fewer rights.
func makeState(opts Options) {
	dirs := opts.State
	if own, err := auditDirectory(opts.Audit); err == nil && own != "" {
		dirs = append(slices.Clone(dirs), own)
	}
	for _, dir := range dirs {
		_ = os.MkdirAll(dir, 0o700)
	}
	if home := opts.home(); home != "" {
		_ = os.Mkdir(filepath.Join(home, ownDirectory), 0o755)
	}
}

// newSession checks the options and looks at the directory; it makes nothing.
func newSession(opts Options) (*Session, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if own, err := auditDirectory(opts.Audit); err != nil {
		return nil, err
	} else if own != "" {
		// It is hidden from the session, as all state of the launcher is.
		opts.State = append(slices.Clone(opts.State), own)
	}
	dir, err := sessionDirectory(opts.SessionDir, opts.State)
	if err != nil {
		return nil, err
	}
	home := opts.home()
	if opts.SkillRoots == nil {
		opts.SkillRoots = skillRoots(home)
	}
	s := &Session{opts: opts, dir: dir, home: home, name: opts.Name, turn: make(chan struct{}, 1), stop: make(chan struct{})}
	if s.policy, s.notes, err = compilePolicy(opts, dir, home); err != nil {
		return nil, err
	}
	if wall := time.Duration(s.policy.Limits.WallSeconds) * time.Second; wall > 0 {
		s.opts.CellTimeout = min(s.opts.CellTimeout, wall)
	}
	text := s.policy.JSON()
	s.digest = policy.DigestOf(text)
	if opts.Stock != nil {
		s.shape = policyShape(s, text)
	}
	s.door = host.NewDoor(host.Config{Decide: s.decideTool, Check: wire.CheckValue})
	store := opts.Store
	if store == nil {
		store = host.NewMemoryStore()
	}
	if err := s.door.Set(host.BuiltIn, host.Methods(store)); err != nil {
		return nil, err
	}
	if err := s.door.Set("the host", opts.Tools); err != nil {
		return nil, &OptionError{"tools", err.Error()}
	}
	if s.name == "" {
		s.name = fmt.Sprintf("s%d-%d", os.Getpid(), sessions.Add(1))
	}
	return s, nil
}

// writable are the roots that the worker's hook takes for granted: everything, where
// nobody hears of what it sees.
func (s *Session) writable() []string {
	if s.policy.Mode == policy.Off {
		return []string{"/"}
	}
	var roots []string
	for _, rules := range [][]policy.Rule{s.policy.Allow, s.policy.Private, s.policy.Devices} {
		for _, r := range rules {
			if r.Access&policy.AccessWrite != 0 {
				roots = append(roots, r.Path)
			}
		}
	}
	return roots
}

// denied are the roots beneath which the worker's hook looks all the same.
func (s *Session) denied() []string {
	if s.policy.Mode == policy.Off {
		return nil
	}
	var roots []string
	for _, r := range s.policy.Deny {
		if r.Access&(policy.AccessRead|policy.AccessWrite) != 0 {
			roots = append(roots, append(r.Pins, r.Path)...)
		}
	}
	for _, r := range s.policy.Sealed {
		roots = append(roots, r.Path)
	}
	return roots
}

// errStopped is a start that was given up from outside.
type errStopped struct{ cause error }

func (e errStopped) Error() string { return e.cause.Error() }

var (
	errAborted = errors.New("aborted")
	errClosed  = errors.New("session: closed")
)

// take waits for the session's turn.
func (s *Session) take(ctx context.Context) error {
	s.mu.Lock()
	stop, closed := s.stop, s.closed
	s.mu.Unlock()
	if closed {
		return errClosed
	}
	select {
	case <-s.turn:
		return nil
	case <-stop:
		return errAborted
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Session) give() { s.turn <- struct{}{} }

// Start starts the worker now instead of with the first call.
func (s *Session) Start(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	w, err := s.live(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	_, err = s.restore(ctx, w, stop)
	return err
}

// live returns the worker, started when there is none; Abort and the end of ctx
// end a start. The caller has the turn.
func (s *Session) live(ctx context.Context) (*worker, error) {
	s.mu.Lock()
	w, closed, stop := s.worker, s.closed, s.stop
	s.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	if w != nil {
		if w.condemned() {
			// It was ended as its last reply came, or after: nothing more runs in it.
			select {
			case <-w.gone:
			case <-w.proc.Done():
			case <-ctx.Done():
				return nil, errStopped{context.Cause(ctx)}
			}
		}
		select {
		case <-w.gone: // died between two calls
		case <-w.proc.Done(): // and left somebody who holds its wire
		default:
			return w, nil
		}
		s.bury(w, s.unreported(w)...)
	}
	s.mu.Lock()
	why := s.retired
	s.mu.Unlock()
	if why != "" {
		return nil, &RetiredError{why}
	}
	if s.stuck() {
		return nil, errStuck
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-stop:
			cancel(errAborted)
		case <-ctx.Done():
		}
	}()
	w, err := startWorker(ctx, s, s.generation+1)
	s.swept.wait()
	if err != nil && ctx.Err() != nil {
		return nil, errStopped{context.Cause(ctx)}
	}
	if err != nil {
		s.recordFailure(s.generation+1, err)
		return nil, err
	}
	s.mu.Lock()
	s.worker = w
	s.generation = w.generation
	s.mu.Unlock()
	return w, nil
}

// discard ends what is left of the session's worker, and remembers one that does not end.
func (s *Session) discard(w *worker) {
	ended := w.discard()
	s.mu.Lock()
	s.ending = ended
	s.mu.Unlock()
}

// stuck says that a worker was killed and has not ended yet.
func (s *Session) stuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == nil {
		return false
	}
	select {
	case <-s.ending:
		return false
	default:
		return true
	}
}

// errStuck is a session whose worker was killed and does not end. Another one beside it
// would have the same directory, and the limits twice.
var errStuck = errors.New("a process of the last worker was killed and does not end: Linux waits within a system call of it, mostly for a disk that does not answer (state D in ps); the session goes on when it has ended")

// retire ends a worker whose state was given up on purpose.
func (s *Session) retire(w *worker) {
	w.kill(KernelKilled)
	s.discard(w)
	s.recordEnd(w, "given up on purpose", s.unreported(w)...)
	s.mu.Lock()
	if s.worker == w {
		s.worker = nil
	}
	s.mu.Unlock()
}

// bury removes a dead generation; the next reply says that state was lost. What is
// recorded before that is what no reply will tell of.
func (s *Session) bury(w *worker, before ...audit.Record) Death {
	death := w.death(s)
	s.discard(w)
	s.recordEnd(w, death.String(), before...)
	s.mu.Lock()
	if s.worker == w {
		s.worker = nil
	}
	s.lost = true
	if s.opts.Retire && !s.keep.restores() {
		s.retired = death.String()
		switch w.killedBy() {
		case KernelTimeout:
			s.retired = "it was ended at the time limit"
		case KernelKilled:
			s.retired = "it was ended by the host"
		}
	}
	s.mu.Unlock()
	return death
}

// RetiredError says that a session lost its worker and, with Options.Retire, runs
// nothing until a call with Reset.
type RetiredError struct {
	Why string // what became of the worker
}

func (e *RetiredError) Error() string {
	return "python session retired: its worker is gone (" + e.Why + ") and its state with it; nothing runs until a reset"
}

// rebuild lets a retired session have a worker again.
func (s *Session) rebuild() {
	s.mu.Lock()
	s.retired = ""
	s.mu.Unlock()
}

// execution is one cell that runs in one worker: what an interrupt is bound to.
type execution struct {
	worker *worker
	number int64
	scope  *host.Scope   // what its host calls are made by
	done   chan struct{} // closed when the cell has come back, or its worker has gone

	run       *Run // that it is a part of; nil for none
	restoring bool // a kept statement: it makes no host call
}

// Interrupt stops the cell that runs now, whose state is kept; false when none
// runs or it had ended before. A cell that does not unwind in time (2 s), and a
// worker that does not answer (1 s), are ended as by Abort.
func (s *Session) Interrupt() bool {
	s.mu.Lock()
	e := s.running
	s.mu.Unlock()
	if e.worker == nil {
		return false
	}
	s.recordControl(e.worker, audit.OpInterrupt, "asked for")
	grace, cancel := after(unwindGrace)
	defer cancel()
	hit, err := e.worker.interrupt(s.name, e.number)
	if err == nil && !hit {
		return false
	}
	if err == nil {
		// After the cell has the interrupt: it is not to take the end of a call for
		// an answer.
		e.scope.Interrupt()
		select {
		case <-e.done:
			return true
		case <-grace:
		}
	}
	s.recordControl(e.worker, audit.OpAbort, "the interrupted cell did not unwind")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running.worker == e.worker && s.running.number == e.number {
		s.abort()
	}
	return true
}

// Abort kills the worker; the running call and every queued one fail at once.
func (s *Session) Abort() {
	s.mu.Lock()
	w, closed := s.running.worker, s.closed
	s.mu.Unlock()
	if closed {
		return
	}
	s.recordControl(w, audit.OpAbort, "asked for")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.abort()
	}
}

// abort holds the lock throughout, so that what it kills is what runs.
func (s *Session) abort() {
	close(s.stop)
	s.stop = make(chan struct{})
	if w := s.running.worker; w != nil {
		w.kill(KernelKilled)
	}
}

// Close ends the session and everything of it. It waits for nothing but the end
// of the processes.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.abort()
	s.closed = true
	w := s.worker
	s.mu.Unlock()
	if w != nil {
		w.kill(KernelKilled)
	}
	<-s.turn // the running call, if any, has seen its worker end
	s.mu.Lock()
	w, s.worker = s.worker, nil
	cells, generations := s.cells, s.generation
	s.mu.Unlock()
	var last []audit.Record
	if w != nil {
		s.discard(w)
		end := s.event(w, audit.OpWorkerEnd)
		end.Reason = "the session was closed"
		last = append(s.unreported(w), end)
	}
	end := s.event(nil, audit.OpSessionEnd)
	end.Facts = map[string]any{"cells": cells, "generations": generations}
	s.closeInbound()
	kept, err := s.layer.close()
	if kept != "" {
		end.Facts["layer"] = kept
	}
	grace, cancel := after(closeGrace)
	s.door.Close(grace)
	cancel()
	s.ext().ended(s.extensionIdentity(0, ""))
	s.ext().close()
	s.rego.Close()
	s.keep.close()
	if s.stuck() {
		err = errors.Join(err, errStuck)
	}
	s.swept.wait()
	return errors.Join(err, s.record.close(append(append(s.record.counted(), last...), end)...))
}

func skillRoots(home string) []string {
	roots := append(filepath.SplitList(os.Getenv("PI_SKILL_PATHS")), filepath.SplitList(os.Getenv("PI_SKILL_ROOTS"))...)
	if home != "" {
		roots = append(roots, filepath.Join(home, ".pi/agent/skills"), filepath.Join(home, ".claude/skills"))
	}
	found := []string{}
	for _, r := range roots {
		if abs, err := filepath.Abs(r); err == nil && r != "" {
			if info, err := os.Stat(abs); err == nil && info.IsDir() {
				found = append(found, abs)
			}
		}
	}
	return found
}

// environment is the worker's whole environment.
func (s *Session) environment() []string {
	home := "/tmp/home"
	if s.opts.Tier == TierProcess {
		home = s.dir
	}
	zone := s.opts.TimeZone
	if zone == "" {
		zone = os.Getenv("TZ")
	}
	if zone == "" {
		zone = "UTC"
	}
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "LANG=C.UTF-8", "LC_ALL=C.UTF-8",
		"USER=session", "LOGNAME=session", "TERM=dumb", "MPLBACKEND=agg", "TZ=" + zone,
	}
	set := slices.Clone(s.policy.Env.Set)
	for _, v := range s.opts.Env {
		if strings.Contains(v, "=") {
			set = append(set, v)
		} else if value, ok := os.LookupEnv(v); ok {
			set = append(set, v+"="+value)
		}
	}
	passed := policy.Env{Pass: without(s.policy.Env.Pass, "TZ", "MPLBACKEND")}.Filter(os.Environ())
	return append(env, s.withProxy(passed, set)...)
}

func without(names []string, drop ...string) []string {
	var out []string
next:
	for _, n := range names {
		for _, d := range drop {
			if n == d {
				continue next
			}
		}
		out = append(out, n)
	}
	return out
}

// after is a timer's channel; never for no limit.
func after(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}
