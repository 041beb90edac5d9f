package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"cellblock/kernel/wire"
	"cellblock/policy"
)

// Session is one agent's long-lived state: a worker that is started on the
// first call, and again after it has died. Its methods may be called from
// several goroutines; calls run one after the other in the order they came.
type Session struct {
	opts   Options
	name   string
	dir    string
	policy policy.Policy
	notes  []policy.Note
	start  func(launch) (process, error)

	turn chan struct{} // holds one token; who has it runs

	mu         sync.Mutex
	worker     *worker
	running    execution     // what runs; zero for nothing
	stop       chan struct{} // closed by Abort: everything waiting fails at once
	generation int
	cells      int
	lost       bool // the last worker died: the next reply says so
	closed     bool
}

var sessions atomic.Int64

// Open checks the options and the session directory and removes what killed
// launchers left. No worker is started before the first call or Start.
func Open(opts Options) (*Session, error) {
	s, err := newSession(opts)
	if err != nil {
		return nil, err
	}
	s.start = startUnjailed
	if s.policy.Network.Mode == policy.NetAllow && s.policy.Network.Enforced {
		return nil, fmt.Errorf("policy %s: net.mode allow: a session under enforce has no way out that could be filtered yet: use mode none or host", s.policy.Name)
	}
	if s.opts.Tier == TierJail {
		if s.start, err = s.jailTier(); err != nil {
			return nil, err
		}
	}
	sweepTemp()
	s.turn <- struct{}{}
	return s, nil
}

// newSession checks the options and looks at the directory; it makes nothing.
func newSession(opts Options) (*Session, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := sessionDirectory(opts.SessionDir, opts.State)
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir()
	if opts.SkillRoots == nil {
		opts.SkillRoots = skillRoots(home)
	}
	s := &Session{opts: opts, dir: dir, name: opts.Name, turn: make(chan struct{}, 1), stop: make(chan struct{})}
	if s.policy, s.notes, err = compilePolicy(opts, dir, home); err != nil {
		return nil, err
	}
	if wall := time.Duration(s.policy.Limits.WallSeconds) * time.Second; wall > 0 {
		s.opts.CellTimeout = min(s.opts.CellTimeout, wall)
	}
	if s.name == "" {
		s.name = fmt.Sprintf("s%d-%d", os.Getpid(), sessions.Add(1))
	}
	return s, nil
}

// writable are the roots that the worker's hook takes for granted.
func (s *Session) writable() []string {
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

// Info is what a session says of itself.
type Info struct {
	Session    string      `json:"session"`
	Directory  string      `json:"directory"`
	Tier       Tier        `json:"tier"`
	Mode       policy.Mode `json:"mode"`
	Generation int         `json:"generation"`
	Python     string      `json:"python,omitempty"`
	Skills     []string    `json:"skills,omitempty"`
}

// Info returns what is known now; the interpreter's part once a worker runs.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := Info{Session: s.name, Directory: s.dir, Tier: s.opts.Tier, Mode: s.policy.Mode, Generation: s.generation}
	if s.worker != nil {
		i.Python, i.Skills = s.worker.info.Python, s.worker.info.Skills
	}
	return i
}

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
	_, err := s.live()
	return err
}

// live returns the worker, started when there is none. The caller has the turn.
func (s *Session) live() (*worker, error) {
	s.mu.Lock()
	w, closed := s.worker, s.closed
	s.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	if w != nil {
		select {
		case <-w.gone: // died between two calls
			s.bury(w)
		default:
			return w, nil
		}
	}
	w, err := startWorker(s, s.generation+1)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.worker = w
	s.generation = w.generation
	s.mu.Unlock()
	return w, nil
}

// retire ends a worker whose state was given up on purpose.
func (s *Session) retire(w *worker) {
	w.kill(KernelKilled)
	w.discard()
	s.mu.Lock()
	if s.worker == w {
		s.worker = nil
	}
	s.mu.Unlock()
}

// bury removes a dead generation; the next reply says that state was lost.
func (s *Session) bury(w *worker) Death {
	death := w.death(s)
	w.discard()
	s.mu.Lock()
	if s.worker == w {
		s.worker = nil
	}
	s.lost = true
	s.mu.Unlock()
	return death
}

// execution is one cell that runs in one worker: what an interrupt is bound to.
type execution struct {
	worker *worker
	number int64
	done   chan struct{} // closed when the cell has come back, or its worker has gone
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
	grace, cancel := after(unwindGrace)
	defer cancel()
	hit, err := e.worker.interrupt(s.name, e.number)
	if err == nil && !hit {
		return false
	}
	if err == nil {
		select {
		case <-e.done:
			return true
		case <-grace:
		}
	}
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
	s.mu.Unlock()
	if w != nil {
		w.discard()
	}
	return nil
}

// hostCall answers a worker's call to the host. There is input, and what the
// policy lets through of it.
func (s *Session) hostCall(m *wire.Message) {
	s.mu.Lock()
	w := s.worker
	s.mu.Unlock()
	if w == nil {
		return
	}
	if m.Name != "input" || s.opts.Input == nil {
		_ = w.conn.Reply(wire.Answer{ID: m.ID, Error: s.refuse(m)})
		return
	}
	var asked struct {
		Prompt   string `json:"prompt"`
		Password bool   `json:"password"`
	}
	if err := json.Unmarshal(m.Arguments, &asked); err != nil {
		w.fail(&wire.ProtocolError{Rule: wire.RuleWrongType, Detail: "input: arguments"})
		return
	}
	if w.calls.Add(1) > wire.MaxHostCalls {
		w.fail(&wire.ProtocolError{Rule: wire.RuleTooMany, Detail: "host calls that wait for an answer"})
		return
	}
	go func() {
		defer w.calls.Add(-1)
		text, err := s.opts.Input(asked.Prompt, asked.Password)
		answer := wire.Answer{ID: m.ID, Value: text}
		if err != nil {
			answer = wire.Answer{ID: m.ID, Error: &wire.HostError{Type: "HostError", Code: "no-answer", Message: err.Error()}}
		}
		_ = w.conn.Reply(answer)
	}()
}

// refuse says why a host call is not carried out: the policy denies it, or there
// is no tool of this name.
func (s *Session) refuse(m *wire.Message) *wire.HostError {
	d := s.policy.DecideTool(policy.ToolOp{Session: s.name, Tool: m.Name, Role: "sandbox", Purpose: "interactive", Arguments: m.Arguments}, nil)
	if !d.Allowed() {
		return &wire.HostError{Type: "HostError", Code: "denied",
			Message: fmt.Sprintf("host call %q is not permitted: %s (%s)", m.Name, d.Reason, d.Rule)}
	}
	return &wire.HostError{Type: "HostError", Code: "unknown", Message: fmt.Sprintf("host call %q: there is no tool of this name", m.Name)}
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
	env = append(env, policy.Env{Pass: without(s.policy.Env.Pass, "TZ", "MPLBACKEND")}.Filter(os.Environ())...)
	env = append(env, s.policy.Env.Set...)
	for _, v := range s.opts.Env {
		if hasEqual(v) {
			env = append(env, v)
		} else if value, ok := os.LookupEnv(v); ok {
			env = append(env, v+"="+value)
		}
	}
	return env
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

func hasEqual(s string) bool {
	for i := range len(s) {
		if s[i] == '=' {
			return i > 0
		}
	}
	return false
}

// after is a timer's channel; never for no limit.
func after(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}
