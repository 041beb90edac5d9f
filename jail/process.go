package jail

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/jail/cgroup"
	"cellblock/jail/observe"
	"cellblock/jail/plan"
)

// Process is a running jail. Its methods may be called from any goroutine.
type Process struct {
	plan     *plan.Plan
	group    *cgroup.Group
	control  *control
	observer *observe.Listener
	sockets  []*os.File
	forked   *forked // nil for a worker that was executed
	stage    int
	worker   int // pid on the host
	report   Report

	endsForked chan ending // how a forked worker has ended

	mu       sync.Mutex
	stagefd  int
	workerfd int
	attached bool // the room has been given away

	asking sync.Mutex // apart from mu, without which nothing can be killed
	asked  []chan int // for sockets, in the order of their requests

	done  chan struct{}
	exit  Exit
	stats Stats
}

// Exit is how a jail ended.
type Exit struct {
	// Code is the worker's exit code, when Signal is 0.
	Code   int
	Signal syscall.Signal
	// OOM is set when the memory limit ended a process of the jail, TasksHit
	// when a process or thread was refused because of the task limit.
	OOM, TasksHit bool
	// Err is set when the jail ended without a word about the worker: its first
	// process was killed from outside.
	Err error
}

// of takes a wait status over.
func (e *Exit) of(w syscall.WaitStatus) {
	if w.Signaled() {
		e.Signal = w.Signal()
	} else {
		e.Code = w.ExitStatus()
	}
}

// Cause says it in words that a person understands.
func (e Exit) Cause() string {
	switch {
	case e.OOM && (e.Signal == syscall.SIGKILL || e.Err != nil):
		return "memory limit"
	case e.Err != nil:
		return "killed"
	case e.Signal != 0:
		return "signal " + strconv.Itoa(int(e.Signal)) + " (" + unix.SignalName(e.Signal) + ")"
	}
	return "exit code " + strconv.Itoa(e.Code)
}

// Stats are what a jail has used. Zero where nothing counts.
type Stats struct {
	CPU        time.Duration
	MemoryPeak int64 // bytes
	MemoryNow  int64 // bytes
	Tasks      int64
}

// Report is what is known about a jail from its start on.
type Report struct {
	SpecDigest string `json:"specDigest"`
	PlanDigest string `json:"planDigest"`
	// Witness are the results, all of them as the plan wanted.
	Witness []plan.Result `json:"witness"`
	// Limits are the plan's, with the version of the cgroup hierarchy that keeps
	// each: "cgroup v1", "cgroup v2", "rlimit" or "tmpfs".
	Limits   []plan.Limit       `json:"limits"`
	Degraded []plan.Degradation `json:"degraded,omitempty"`
	IDs      plan.IDs           `json:"ids"`
	Cgroups  []string           `json:"cgroups,omitempty"`
}

// born makes the process of a start that went well.
func (s *starting) born(workerfd int) (*Process, error) {
	p := &Process{plan: s.plan, group: s.group, control: s.control, observer: s.listener, sockets: s.sockets, forked: s.forked, stage: s.pid, stagefd: s.pidfd, workerfd: workerfd,
		done: make(chan struct{})}
	worker, err := pidOf(workerfd)
	if err != nil {
		syscall.Close(workerfd)
		return nil, err
	}
	p.worker = worker
	p.report = Report{SpecDigest: s.plan.SpecDigest, PlanDigest: planDigest(s.plan), Witness: s.results, Limits: s.plan.Limits,
		Degraded: append(append([]plan.Degradation(nil), s.plan.Degraded...), s.degraded...), IDs: s.plan.IDs}
	if s.group != nil {
		p.report.Cgroups = s.group.Paths()
		p.report.Limits = append([]plan.Limit(nil), s.plan.Limits...)
		for i, l := range p.report.Limits {
			if version := s.group.Keeps(l.Name); l.By == "cgroup" && version != "" {
				p.report.Limits[i].By += " " + version
			}
		}
	}
	if p.forked != nil {
		p.endsForked = make(chan ending, 1)
		go p.watchForked()
	}
	go p.watch()
	return p, nil
}

// pidOf asks Linux for our number of the process behind a pidfd. A worker that
// has already ended has none, and 0 is returned.
func pidOf(pidfd int) (int, error) {
	f, err := os.Open("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0, fmt.Errorf("jail worker: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(text))
			return max(pid, 0), err
		}
	}
	return 0, &MissingFeatureError{PIDFD, "fdinfo shows no pid", remedies[PIDFD]}
}

// watch waits for the stage's last word and its end. Linux lets the first
// process of a pid namespace end only when all others are gone, so that after
// this nothing of the jail runs.
func (p *Process) watch() {
	ended := false
	for {
		kind, body, fd, err := p.control.receive()
		if err == nil && kind == plan.KindSocket {
			p.hand(fd)
			continue
		}
		if fd >= 0 {
			syscall.Close(fd)
		}
		if err != nil {
			break
		}
		if status, err := plan.DecodeInt(body); kind == plan.KindEnded && err == nil {
			ended = true
			p.exit.of(syscall.WaitStatus(status))
		}
	}
	// The stage is ending or dead; if it only closed its end, this makes it so.
	p.Kill()
	p.control.close()
	waitPid(p.stage)
	if p.forked != nil {
		if e := <-p.endsForked; e.known {
			ended = true
			p.exit.of(e.status)
		}
	}
	if p.observer != nil {
		p.observer.Stop()
	}
	closeFiles(p.Sockets())
	if !ended {
		p.exit.Err = fmt.Errorf("jail %s: ended from outside", p.plan.Name)
		p.exit.Signal = syscall.SIGKILL
	}
	if p.group != nil {
		last := p.group.Stats()
		p.exit.OOM, p.exit.TasksHit = last.OOMKills > 0, last.TasksHits > 0
		p.mu.Lock()
		p.stats = statsOf(last)
		p.mu.Unlock()
		_ = p.group.Kill()
		_ = p.group.Close()
	}
	p.mu.Lock()
	syscall.Close(p.stagefd)
	syscall.Close(p.workerfd)
	p.stagefd, p.workerfd = -1, -1
	p.mu.Unlock()
	close(p.done)
}

func statsOf(s cgroup.Stats) Stats {
	return Stats{CPU: s.CPU, MemoryPeak: int64(s.MemoryPeak), MemoryNow: int64(s.MemoryNow), Tasks: int64(s.Tasks)}
}

// Pid is the worker's number on the host; 0 if it ended at once.
func (p *Process) Pid() int { return p.worker }

// StagePid is the number of the jail's first process on the host.
func (p *Process) StagePid() int { return p.stage }

// Sockets hands over those of the spec, in its order: they are the caller's to close.
// Asked again it has none.
func (p *Process) Sockets() []*os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	files := p.sockets
	p.sockets = nil
	return files
}

// Signal sends a signal to the worker. os.ErrProcessDone when it has ended.
func (p *Process) Signal(sig syscall.Signal) error { return p.signal(&p.workerfd, sig, 0) }

// signalProcessGroup is PIDFD_SIGNAL_PROCESS_GROUP, which came with Linux 6.9.
const signalProcessGroup = 1 << 2

// SignalGroup sends a signal to the worker and to those of its descendants that
// have stayed in its process group, as a terminal does.
func (p *Process) SignalGroup(sig syscall.Signal) error {
	err := p.signal(&p.workerfd, sig, signalProcessGroup)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// The worker leads its group, and its number is not given out again while nobody
	// has waited for it: look that it is there, then use it. Between the two an executed
	// worker's end is for the stage to wait for, and a forked one's for its parent; then the
	// number could become another group's only by all numbers having been given out.
	if err := p.Signal(0); err != nil {
		return err
	}
	return syscall.Kill(-p.worker, sig)
}

func (p *Process) signal(fd *int, sig syscall.Signal, flags int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *fd < 0 {
		return os.ErrProcessDone
	}
	err := unix.PidfdSendSignal(*fd, sig, nil, flags)
	if err == unix.ESRCH {
		return os.ErrProcessDone
	}
	return err
}

// Kill ends every process of the jail at once and returns without waiting; see
// Done. It may be called more than once.
func (p *Process) Kill() {
	_ = p.signal(&p.stagefd, syscall.SIGKILL, 0)
}

// Done is closed when every process of the jail is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for Done and says how it ended.
func (p *Process) Wait() Exit {
	<-p.done
	return p.exit
}

// Settle returns when everything that the jail's processes have done until now has
// been told; see StartOptions.Told. It is false where nothing is: without an
// observer, or after one's end, which the error gives the reason of; the calls to be
// told of fail then, with ENOSYS.
func (p *Process) Settle() (hears bool, err error) {
	if p.observer == nil {
		return false, nil
	}
	p.observer.Settle()
	err = p.observer.Err()
	return err == nil, err
}

// Stats are the jail's use until now, or until its end.
func (p *Process) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group == nil || p.stagefd < 0 {
		return p.stats
	}
	return statsOf(p.group.Stats())
}

// Used is what Stats says of CPU, MemoryPeak and Tasks, read in fewer steps.
func (p *Process) Used() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group == nil || p.stagefd < 0 {
		return p.stats
	}
	used := p.group.Used()
	return Stats{CPU: used.CPU, MemoryPeak: int64(used.MemoryPeak), Tasks: int64(used.Tasks)}
}

// Report is what the start found out.
func (p *Process) Report() Report { return p.report }

// Sweep removes the cgroups that launchers left behind which were killed. It
// returns how many there were.
func Sweep() (int, error) { return cgroup.Sweep() }
