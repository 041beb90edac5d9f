package extension

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/jail/cgroup"
	"cellblock/jail/spawner"
	"cellblock/pyruntime"
)

// wireNumber is the worker's descriptor of its wire: the first of ExtraFiles.
const wireNumber = 3

// process is a worker's process, with all that it starts: a session and process
// group of its own, and a cgroup where one can be had.
type process struct {
	pid    int
	cmd    *exec.Cmd
	group  *cgroup.Group // nil for none
	exited chan struct{} // closed when it has ended; it is not reaped by then
	reaped sync.Once

	mu   sync.Mutex
	gone bool // reaped: its number, and its group's, may be somebody else's now
}

func startProcess(launch Launch, name string, wire, output *os.File, more ...string) (*process, error) {
	argv := append(pyruntime.ExtensionCommand(launch.Python, launch.Source, wireNumber), more...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/" // no workspace: what it holds is nothing that an interpreter should meet
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{wire}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	// Without one the process group has to do: a daemon of an extension outlives it.
	if group, err := cgroup.New("extension-"+name, cgroup.Limits{MemoryBytes: launch.Limits.MemoryBytes, Tasks: launch.Limits.Tasks}); err == nil {
		p.group = group
		if fd := group.Fd(); fd >= 0 {
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
		}
	}
	var err error
	if spawner.Do(func() { err = p.start(cmd) }); err != nil {
		p.release()
		return nil, err
	}
	p.pid = cmd.Process.Pid
	go p.watch()
	// Before the first request, without which no foreign code runs.
	if err := p.limit(launch.Limits); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

func (p *process) start(cmd *exec.Cmd) error {
	if p.group != nil {
		leave, err := p.group.Enter()
		if err == nil {
			err = cmd.Start()
		}
		return errors.Join(err, leave())
	}
	return cmd.Start()
}

func (p *process) limit(l Limits) error {
	memory := l.MemoryBytes
	if p.group != nil && p.group.Keeps("memory") != "" {
		memory = 0
	}
	for _, r := range []struct {
		name  string
		which int
		value int64
	}{{"memory", unix.RLIMIT_AS, memory}, {"open files", unix.RLIMIT_NOFILE, l.OpenFiles}, {"cpu", unix.RLIMIT_CPU, l.CPUSeconds}} {
		if r.value <= 0 {
			continue
		}
		limit := unix.Rlimit{Cur: uint64(r.value), Max: uint64(r.value)}
		if err := unix.Prlimit(p.pid, r.which, &limit, nil); err != nil {
			return fmt.Errorf("extension worker: limit of %s: %w", r.name, err)
		}
	}
	return nil
}

// watch waits for the end without reaping: until then the number of the process,
// and of its group, is nobody else's.
func (p *process) watch() {
	defer close(p.exited)
	for {
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// end ends the process and what it has started: SIGTERM, and SIGKILL for what is
// left after termTime.
func (p *process) end() {
	p.signal(unix.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(termTime):
	}
	p.reap()
	p.release()
}

// kill ends it at once.
func (p *process) kill() {
	if p.signal(unix.SIGKILL) && p.group != nil {
		_ = p.group.Kill() // what is left is swept by a later launcher
	}
}

// signal sends a signal to the process and what it has started; false when it has been
// reaped, whoever did so: the reader of the wire and the end may come long after.
func (p *process) signal(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	_ = unix.Kill(-p.pid, s) // it may have ended by itself
	return true
}

// reap ends what is left and takes the exit status. No signal goes out afterwards.
func (p *process) reap() {
	p.reaped.Do(func() {
		p.kill()
		<-p.exited
		p.mu.Lock()
		defer p.mu.Unlock()
		p.gone = true
		_ = p.cmd.Wait() // its state says how it ended
	})
}

func (p *process) release() {
	if p.group != nil {
		_ = p.group.Close() // what is left is swept by the next launcher
	}
}

// death says how a process whose wire has closed ended, in words. One that lives on
// is of no use, and is ended.
func (p *process) death() string {
	select {
	case <-p.exited:
	case <-time.After(reapTime):
	}
	p.reap()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return "killed by " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit code %d", p.cmd.ProcessState.ExitCode())
}
