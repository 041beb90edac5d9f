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
// It is spoken to by lines of JSON on its descriptor 3. With {"fork":true} come the
// descriptors that are to be 0, 1, 2 and 3 of the worker, one of a conversation, a pidfd
// of the stage and a ruleset of Landlock, where there is one; it answers {"child":pid}.
// For every process that it has waited for it says {"pid":n,"status":s}, in the words of
// wait(2). In the conversation the child is told what to call of Linux; see forked. The
// methods may be called from any goroutine.
type Parent struct {
	conn *net.UnixConn
	cmd  *exec.Cmd
	said tail

	forking  sync.Mutex
	children chan child

	mu       sync.Mutex
	waits    map[int]chan syscall.WaitStatus
	released bool
	live     int // workers that were forked and are waited for

	done chan struct{}
}

type child struct {
	PID   int    `json:"child"`
	Error string `json:"error"`
}

// ParentOptions say what a parent is started by.
type ParentOptions struct {
	// Argv is its program, an absolute path, and its arguments; descriptor 3 is its
	// control and descriptor 4 the directory Source.
	Argv []string
	// Env is its environment, and that of the workers.
	Env []string
	// Source is the directory that it is shown, by number and so without its name.
	Source string
}

// maxLine bounds a line of a parent's or of a child's.
const maxLine = 1 << 20

// StartParent starts a parent and waits until it is ready to fork. It ends with this
// process.
func StartParent(ctx context.Context, opt ParentOptions) (*Parent, error) {
	source, err := os.Open(opt.Source)
	if err != nil {
		return nil, fmt.Errorf("warm parent: %w", err)
	}
	defer source.Close()
	ours, theirs, err := conversation("parent")
	if err != nil {
		return nil, fmt.Errorf("warm parent: %w", err)
	}
	p := &Parent{conn: ours, children: make(chan child, 1), waits: map[int]chan syscall.WaitStatus{}, done: make(chan struct{})}
	cmd := exec.Command(opt.Argv[0], opt.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stderr = opt.Env, "/", &p.said
	cmd.ExtraFiles = []*os.File{theirs, source}
	cmd.WaitDelay = time.Second // for what it has printed, which a process that it left could hold up
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	spawner.Do(func() { err = cmd.Start() })
	theirs.Close() // so that its end is seen
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("warm parent: %w", err)
	}
	p.cmd = cmd
	ready := make(chan struct{})
	go p.read(ready)
	select {
	case <-ready:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("warm parent: ended before it was ready: %s", p.said.text())
	case <-ctx.Done():
		_ = p.Close()
		return nil, fmt.Errorf("warm parent: %w", context.Cause(ctx))
	}
}

// Release lets the parent end when the workers that it has forked have ended, of which
// only it can say how. It is not waited for. Nothing is forked by it afterwards.
func (p *Parent) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	p.endUnused()
}

// endUnused ends a released parent that nobody needs. The lock is held.
func (p *Parent) endUnused() {
	if p.released && p.live == 0 {
		_ = p.cmd.Process.Kill()
	}
}

// Close ends the parent and waits for its end. Workers that it has forked go on; how they
// end is known no more.
func (p *Parent) Close() error {
	_ = p.cmd.Process.Kill()
	<-p.done
	return nil
}

// Done is closed when the parent has ended.
func (p *Parent) Done() <-chan struct{} { return p.done }

// Pid is the parent's number.
func (p *Parent) Pid() int { return p.cmd.Process.Pid }

// read takes what the parent says until it ends.
func (p *Parent) read(ready chan<- struct{}) {
	defer close(p.done)
	lines := bufio.NewScanner(p.conn)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var said struct {
			child
			Ready  bool `json:"ready"`
			Ended  int  `json:"pid"`
			Status int  `json:"status"`
		}
		if json.Unmarshal(lines.Bytes(), &said) != nil {
			break
		}
		switch {
		case said.Ready:
			close(ready)
		case said.Ended != 0:
			p.mu.Lock()
			if to := p.waits[said.Ended]; to != nil {
				to <- syscall.WaitStatus(said.Status)
				delete(p.waits, said.Ended)
				p.live--
				p.endUnused()
			}
			p.mu.Unlock()
		default:
			p.children <- said.child
		}
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.conn.Close()
}

// fork has a child made that gets these descriptors.
func (p *Parent) fork(ctx context.Context, fds []int) error {
	p.forking.Lock()
	answered := true
	defer func() {
		if answered {
			p.forking.Unlock()
		}
	}()
	p.mu.Lock()
	released := p.released
	p.mu.Unlock()
	if released {
		return errors.New("warm parent: released")
	}
	if _, _, err := p.conn.WriteMsgUnix([]byte("{\"fork\":true}\n"), unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("warm parent: %w", err)
	}
	select {
	case c := <-p.children:
		if c.PID <= 0 {
			return fmt.Errorf("warm parent: fork: %s", c.Error)
		}
		return nil
	case <-p.done:
		return fmt.Errorf("warm parent: has ended: %s", p.said.text())
	case <-ctx.Done():
		// Its answer must not be taken for the next one's. The child ends by itself, since
		// nobody speaks to it; other workers of this parent are left alone.
		answered = false
		go func() {
			defer p.forking.Unlock()
			select {
			case <-p.children:
			case <-p.done:
			}
		}()
		return context.Cause(ctx)
	}
}

// expect has the status of a process kept for who waits. The process must be there.
func (p *Parent) expect(pid int) chan syscall.WaitStatus {
	status := make(chan syscall.WaitStatus, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.waits[pid]; old != nil {
		close(old) // its number is another's: it has ended, and was not told of
		p.live--
	}
	p.waits[pid] = status
	p.live++
	return status
}

// forget takes back what expect has asked for.
func (p *Parent) forget(pid int, status chan syscall.WaitStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits[pid] == status {
		delete(p.waits, pid)
		p.live--
		p.endUnused()
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
