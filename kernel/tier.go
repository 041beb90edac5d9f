package kernel

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"cellblock/jail/observe"
	"cellblock/jail/spawner"
)

// launch is what a tier needs to start a worker. The descriptors stay the
// caller's; the worker finds the wire at wireNumber.
type launch struct {
	argv, env    []string
	dir          string
	wire         *os.File
	stdout       *os.File
	stderr       *os.File
	temp         string
	source       string   // directory of the worker's source, in temp or elsewhere
	seen         string   // the same as the worker sees it
	needless     []string // absent paths that are to be denied, and that nobody can make
	interpreter  string
	skillRoots   []string
	startTimeout time.Duration
	told         func(observe.Event) // of what the worker asks Linux for; nil for nobody
	outlet       *outlet             // serves the network of the session; nil for none
}

const wireNumber = 3

// process is a worker that a tier has started, and everything below it.
type process interface {
	Signal(syscall.Signal) error
	SignalGroup(syscall.Signal) error // the worker and its process group
	Kill()
	Done() <-chan struct{}
	Exit() exitStatus // after Done
	Usage() Usage
	Pid() int           // on the host
	Standing() standing // what its start has shown
	// Settle returns when launch.told has heard of everything done until now, and
	// whether it hears of anything; the error is why it hears no more.
	Settle() (hears bool, err error)
	// Dial connects to a port on loopback of the worker's own network.
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// unjailed is tier process: no jail at all, for development.
type unjailed struct {
	cmd  *exec.Cmd
	done chan struct{}
	end  exitStatus
	kill sync.Once
}

func startUnjailed(_ context.Context, l launch) (process, error) {
	cmd := exec.Command(l.argv[0], l.argv[1:]...)
	cmd.Env, cmd.Dir = l.env, l.dir
	cmd.Stdout, cmd.Stderr = l.stdout, l.stderr
	cmd.ExtraFiles = []*os.File{l.wire}
	// Also one that computes, and reads nothing of its wire's end, ends with the launcher.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	var err error
	if spawner.Do(func() { err = cmd.Start() }); err != nil {
		return nil, err
	}
	p := &unjailed{cmd: cmd, done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case !ok:
			p.end.Err = err
		case status.Signaled():
			p.end.Signal = status.Signal()
		default:
			p.end.Code = status.ExitStatus()
		}
		// What it left behind in its session goes with it.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		close(p.done)
	}()
	return p, nil
}

func (p *unjailed) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

func (p *unjailed) SignalGroup(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

func (p *unjailed) Kill() {
	p.kill.Do(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		_ = p.cmd.Process.Kill()
	})
}

func (p *unjailed) Done() <-chan struct{} { return p.done }

func (p *unjailed) Exit() exitStatus { return p.end }

func (p *unjailed) Usage() Usage { return Usage{} }

func (p *unjailed) Pid() int { return p.cmd.Process.Pid }

func (p *unjailed) Settle() (bool, error) { return false, nil }

func (p *unjailed) Dial(context.Context, int) (net.Conn, error) {
	return nil, errors.New("tier process: the session has the host's network")
}

func (p *unjailed) Standing() standing { return standing{} }
