package jail

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/jail/spawner"
)

// Parent is a warm program outside of any jail, from which workers are forked: they share
// its memory until they write to it, and so its address layout and all that was drawn by
// chance before they were forked. It must never run foreign code. It has no capability;
// that its user owns the user namespaces of the jails is what lets its children join them
// (user_namespaces(7)).
//
// It is two processes. The one that is started is the reaper, which makes the other, is
// a child subreaper (PR_SET_CHILD_SUBREAPER(2const)), and waits for all that come to it. The other
// forks. Both speak by lines of JSON, on descriptor 5 and 3, of which the first is
// {"ready":pid}. With {"fork":true} come the descriptors that are to be 0, 1, 2 and 3 of
// the worker, one of a conversation, a pidfd of the stage and a ruleset of Landlock, where
// there is one; the answer is {"child":pid}. The reaper says {"pid":n,"status":s} of every
// process that it has waited for, in the words of wait(2). In the conversation the child is
// told what to call of Linux; see forked. A parent that forks no more ends by itself with
// the last of its workers. The methods may be called from any goroutine.
type Parent struct {
	cmd   *exec.Cmd // the reaper
	said  tail
	forks *net.UnixConn
	ends  *net.UnixConn
	warm  int // pid of the process that forks

	turn     chan struct{} // held by who waits for a fork's answer
	children chan child

	mu       sync.Mutex
	warmfd   int // of the process that forks; -1 where there is none
	waits    map[int]chan syscall.WaitStatus
	released bool

	done chan struct{} // it forks no more
	gone chan struct{} // of no end is told any more
}

type child struct {
	PID   int    `json:"child"`
	Error string `json:"error"`
}

// ParentOptions say what a parent is started by.
type ParentOptions struct {
	// Argv is its program, an absolute path, and its arguments; descriptors 3 and 5 are
	// what it is spoken to on, and descriptor 4 is the directory Source.
	Argv []string
	// Env is its environment, and that of the workers.
	Env []string
	// Source is the directory that it is shown, by number and so without its name.
	Source string
}

// maxLine bounds a line of a parent's or of a child's.
const maxLine = 1 << 20

// parentWait bounds the wait for a parent's word: on a fork, and on a worker that has ended. It
// takes milliseconds, so that one which says nothing has been stopped, and is ended.
const parentWait = 5 * time.Second

// StartParent starts a parent and waits until it is ready to fork. It ends with this
// process.
func StartParent(ctx context.Context, opt ParentOptions) (*Parent, error) {
	p, err := newParent(ctx, opt)
	if err != nil {
		return nil, fmt.Errorf("warm parent: %w", err)
	}
	return p, nil
}

func newParent(ctx context.Context, opt ParentOptions) (*Parent, error) {
	source, err := os.Open(opt.Source)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	forks, theirForks, err := conversation("forks")
	if err != nil {
		return nil, err
	}
	ends, theirEnds, err := conversation("ends")
	if err != nil {
		forks.Close()
		theirForks.Close()
		return nil, err
	}
	p := &Parent{forks: forks, ends: ends, warmfd: -1, turn: make(chan struct{}, 1), children: make(chan child, 1),
		waits: map[int]chan syscall.WaitStatus{}, done: make(chan struct{}), gone: make(chan struct{})}
	p.cmd = exec.Command(opt.Argv[0], opt.Argv[1:]...)
	p.cmd.Env, p.cmd.Dir, p.cmd.Stderr = opt.Env, "/", &p.said
	p.cmd.ExtraFiles = []*os.File{theirForks, source, theirEnds}
	p.cmd.WaitDelay = time.Second // for what it has printed, which a process that it left could hold up
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	spawner.Do(func() { err = p.cmd.Start() })
	theirForks.Close() // so that their ends are seen
	theirEnds.Close()
	if err != nil {
		forks.Close()
		ends.Close()
		return nil, err
	}
	ready := make(chan int, 1)
	go p.readForks(ready)
	go p.readEnds()
	select {
	case p.warm = <-ready:
		if err := p.befriend(); err != nil {
			_ = p.Close()
			return nil, err
		}
		return p, nil
	case <-p.done:
		_ = p.Close()
		return nil, fmt.Errorf("ended before it was ready: %s", p.said.text())
	case <-ctx.Done():
		_ = p.Close()
		return nil, context.Cause(ctx)
	}
}

// befriend takes hold of the process that forks. Its workers inherit how willingly Linux
// ends them when memory runs out.
func (p *Parent) befriend() error {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.warm) + "/status")
	if err != nil || statusField(string(status), "PPid") != strconv.Itoa(p.cmd.Process.Pid) {
		return fmt.Errorf("process %d is none of its own", p.warm)
	}
	fd, err := unix.PidfdOpen(p.warm, 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	p.mu.Lock()
	p.warmfd = fd
	p.mu.Unlock()
	return raiseOOM(p.warm)
}

// Release lets the parent end when the workers that it has forked have ended, of which
// only it can say how. It is not waited for. Nothing is forked by it afterwards.
func (p *Parent) Release() {
	p.mu.Lock()
	again := p.released
	p.released = true
	p.mu.Unlock()
	if again {
		return
	}
	_ = p.forks.CloseWrite()
	time.AfterFunc(parentWait, p.killWarm)
}

// killWarm ends the process that forks.
func (p *Parent) killWarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.warmfd >= 0 {
		_ = unix.PidfdSendSignal(p.warmfd, unix.SIGKILL, nil, 0)
	}
}

// Close ends the parent and waits for its end. Workers that it has forked go on; how they
// end is known no more, and where no other process waits for orphans, their jails do not end.
func (p *Parent) Close() error {
	_ = p.cmd.Process.Kill()
	p.forks.Close() // which others may hold open, if it is no such program
	p.ends.Close()
	<-p.gone
	<-p.done
	return nil
}

// Done is closed when the parent forks no more.
func (p *Parent) Done() <-chan struct{} { return p.done }

// Ended says whether Done is closed.
func (p *Parent) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Gone is closed when the parent has ended as a whole.
func (p *Parent) Gone() <-chan struct{} { return p.gone }

// Pids are the numbers of its processes: of the one that waits, and of the one that forks.
func (p *Parent) Pids() [2]int { return [2]int{p.cmd.Process.Pid, p.warm} }

// readForks takes the answers of the process that forks until it ends.
func (p *Parent) readForks(ready chan<- int) {
	defer close(p.done)
	lines := bufio.NewScanner(p.forks)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var said struct {
			child
			Ready int `json:"ready"`
		}
		if json.Unmarshal(lines.Bytes(), &said) != nil {
			break
		}
		if said.Ready > 0 {
			select {
			case ready <- said.Ready:
			default:
			}
			continue
		}
		select {
		case p.children <- said.child:
		default: // nobody has asked
		}
	}
	p.forks.Close()
	p.killWarm()
}

// readEnds takes what the reaper says until it ends.
func (p *Parent) readEnds() {
	defer close(p.gone)
	lines := bufio.NewScanner(p.ends)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var said struct {
			PID    int `json:"pid"`
			Status int `json:"status"`
		}
		if json.Unmarshal(lines.Bytes(), &said) != nil {
			break
		}
		p.mu.Lock()
		if to := p.waits[said.PID]; to != nil {
			to <- syscall.WaitStatus(said.Status)
			delete(p.waits, said.PID)
		}
		p.mu.Unlock()
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.ends.Close()
	p.killWarm()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.warmfd >= 0 {
		unix.Close(p.warmfd)
	}
	p.warmfd = -1
}

// fork has a child made that gets these descriptors.
func (p *Parent) fork(ctx context.Context, fds []int) error {
	select {
	case p.turn <- struct{}{}:
	case <-p.done:
		return p.ended()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	released := p.released
	p.mu.Unlock()
	if released {
		<-p.turn
		return errors.New("warm parent: released")
	}
	if _, _, err := p.forks.WriteMsgUnix([]byte("{\"fork\":true}\n"), unix.UnixRights(fds...), nil); err != nil {
		<-p.turn
		p.killWarm() // it has ended, or is of no use
		<-p.done
		return p.ended()
	}
	answered := make(chan error, 1)
	go func() {
		// Even if nobody waits for it any more: it must not be taken for the next one's. The
		// child ends by itself then, since nobody speaks to it.
		answered <- p.answer()
		<-p.turn
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answer waits for the answer to a fork.
func (p *Parent) answer() error {
	late := time.NewTimer(parentWait)
	defer late.Stop()
	made := func(c child) error {
		if c.PID <= 0 {
			return fmt.Errorf("warm parent: fork: %s", c.Error)
		}
		return nil
	}
	select {
	case c := <-p.children:
		return made(c)
	case <-p.done:
		select {
		case c := <-p.children: // its last word
			return made(c)
		default:
			return p.ended()
		}
	case <-late.C:
		p.killWarm()
		<-p.done
		return fmt.Errorf("warm parent: no answer within %s", parentWait)
	}
}

func (p *Parent) ended() error { return fmt.Errorf("warm parent: has ended: %s", p.said.text()) }

// expect has the status of a process kept for who waits. The process must be there.
func (p *Parent) expect(pid int) chan syscall.WaitStatus {
	status := make(chan syscall.WaitStatus, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.waits[pid]; old != nil {
		close(old) // its number is another's: it has ended, and was not told of
	}
	p.waits[pid] = status
	return status
}

// forget takes back what expect has asked for.
func (p *Parent) forget(pid int, status chan syscall.WaitStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits[pid] == status {
		delete(p.waits, pid)
	}
}

// unblock waits for the end of a stage that was killed, which Linux holds up until an ended
// worker was waited for, and ends a reaper that does not: whoever waits for orphans does then.
func (p *Parent) unblock(stagefd int) {
	ends := []unix.PollFd{{Fd: int32(stagefd), Events: unix.POLLIN}}
	until := time.Now().Add(parentWait)
	for {
		n, err := unix.Poll(ends, int(max(0, time.Until(until).Milliseconds())))
		if err == unix.EINTR {
			continue
		}
		if n == 0 && err == nil {
			_ = p.cmd.Process.Kill()
		}
		return
	}
}

// conversation makes two ends of a stream socket, of which theirs is to be passed on.
func conversation(name string) (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), name)
	file := os.NewFile(uintptr(fds[0]), name)
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// tail keeps the end of what was written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	t.last = t.last[max(0, len(t.last)-2000):]
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(string(t.last)); text != "" {
		return text
	}
	return "it wrote nothing"
}

var _ io.Writer = (*tail)(nil)

// errSilent is a child whose end of the conversation is gone.
var errSilent = errors.New("the forked worker has ended")
