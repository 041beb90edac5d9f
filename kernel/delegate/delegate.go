// Package delegate asks the program that answers Rego for decisions on host calls.
//
//	d, err := delegate.Start("/usr/local/bin/cellblock-rego", *policy.Tools.Rego)
//	defer d.Close()
//	decision := policy.DecideTool(op, d)
//
// It is a process of its own, see policy/rego/ADR.md. Every decision has a time limit;
// what comes late, is too long or is not what an answer is ends the process, and is an
// error, which is a denial. The next decision starts another one.
//
// # Limitations
//
// One decision is made at a time.
package delegate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"cellblock/policy"
)

// Bounds of one exchange.
const (
	decisionLimit = time.Second
	startLimit    = 30 * time.Second // of a process's start with the compilation of its modules
	testLimit     = 2 * time.Minute  // of all tests together
	maxInput      = 1 << 20          // bytes of a call
	maxAnswer     = 4 << 20          // bytes
)

// These are the lines of policy/rego, which this package does not
// link: it would cost every process the engine's start. A test compares them.
type (
	request struct {
		Load         *load               `json:"load,omitempty"`
		Call         *policy.ToolOp      `json:"call,omitempty"`
		Tests        []policy.RegoSource `json:"tests,omitempty"`
		Milliseconds int                 `json:"milliseconds,omitempty"`
	}
	load struct {
		Query   string              `json:"query"`
		Modules []policy.RegoSource `json:"modules"`
	}
	response struct {
		Error       string              `json:"error"`
		Effect      policy.Effect       `json:"effect"`
		Reasons     []string            `json:"reasons"`
		Obligations []policy.Obligation `json:"obligations"`
		Outcomes    []Outcome           `json:"outcomes"`
	}
)

// Outcome is what became of one test of a module.
type Outcome struct {
	File       string  `json:"file"`
	Line       int     `json:"line"`
	Name       string  `json:"name"`
	Passed     bool    `json:"passed"`
	Skipped    bool    `json:"skipped"`
	Why        string  `json:"why"`
	DurationMs float64 `json:"durationMs"`
}

// Delegate is a policy's query, ready to be asked. It is a policy.Evaluator.
type Delegate struct {
	program string
	load    load

	mu     sync.Mutex
	live   *process
	closed bool
}

var errClosed = errors.New("closed")

// Start starts the program and has it compile the query. The error says what is wrong
// with the modules, or that the program cannot be started.
func Start(program string, r policy.Rego) (*Delegate, error) {
	d := &Delegate{program: program, load: load{Query: r.Query, Modules: r.Sources}}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d, d.ensure()
}

// ensure has a process that has loaded the query. The caller holds the lock.
func (d *Delegate) ensure() error {
	if d.closed {
		return errClosed
	}
	if d.live != nil {
		return nil
	}
	p, err := start(d.program)
	if err != nil {
		return err
	}
	answer, err := p.ask(request{Load: &d.load, Milliseconds: int(startLimit.Milliseconds())}, startLimit)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		p.end()
		return err
	}
	d.live = p
	return nil
}

// Evaluate asks about one call.
func (d *Delegate) Evaluate(op policy.ToolOp) (policy.Effect, []string, []policy.Obligation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(op.Arguments) + len(op.Action); n > maxInput {
		return policy.Deny, nil, nil, fmt.Errorf("the call has %d bytes, at most %d are looked at", n, maxInput)
	}
	if err := d.ensure(); err != nil {
		return policy.Deny, nil, nil, err
	}
	answer, err := d.live.ask(request{Call: &op, Milliseconds: int(decisionLimit.Milliseconds())}, decisionLimit+decisionLimit/4)
	if err != nil {
		d.live.end()
		d.live = nil
		return policy.Deny, nil, nil, err
	}
	if answer.Error != "" {
		return policy.Deny, nil, nil, errors.New(answer.Error)
	}
	return answer.Effect, answer.Reasons, answer.Obligations, nil
}

// Close ends the process. A decision that waits is denied.
func (d *Delegate) Close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.live != nil {
		d.live.end()
		d.live = nil
	}
}

// Test runs the tests of modules.
func Test(program string, modules []policy.RegoSource) ([]Outcome, error) {
	p, err := start(program)
	if err != nil {
		return nil, err
	}
	defer p.end()
	answer, err := p.ask(request{Tests: modules, Milliseconds: int(testLimit.Milliseconds())}, testLimit+startLimit)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer.Outcomes, err
}

// process is one run of the program.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	ended sync.Once
}

func start(program string) (*process, error) {
	cmd := exec.Command(program)
	// Nothing of the operator's environment: what a decision rests on is its input. It
	// ends when its input does, and so with the launcher.
	cmd.Env, cmd.Dir = []string{}, "/"
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("rego: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("rego: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("rego: %w: cellblock-rego is installed beside cellblock", err)
	}
	return &process{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

func (p *process) end() {
	p.ended.Do(func() {
		p.in.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
}

// ask sends one line and waits for the one that answers it. After an error nothing
// more may be asked.
func (p *process) ask(r request, limit time.Duration) (response, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return response{}, err
	}
	late := time.AfterFunc(limit, func() { _ = p.cmd.Process.Kill() })
	if _, err = p.in.Write(append(line, '\n')); err == nil {
		line, err = p.answer()
	}
	switch {
	case !late.Stop():
		return response{}, fmt.Errorf("no answer within %v", limit)
	case err != nil:
		return response{}, fmt.Errorf("the program that evaluates it has ended: %w", err)
	}
	var got response
	if err := json.Unmarshal(line, &got); err != nil {
		return response{}, fmt.Errorf("its answer: %w", err)
	}
	return got, nil
}

// answer reads a line within its bound.
func (p *process) answer() ([]byte, error) {
	var line []byte
	for {
		part, err := p.out.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxAnswer:
			return nil, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
