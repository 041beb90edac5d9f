package jail

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cellblock/jail/observe"
	"cellblock/jail/plan"
)

// forked is a worker between its fork and the moment in which it becomes one: it does
// what it is told here, and runs nothing else. Only what it tells of itself is trusted
// less than what is looked at from outside; it has run no foreign code.
type forked struct {
	start  *starting
	conn   *net.UnixConn
	lines  *bufio.Reader
	made   int // calls
	pid    int
	pidfd  int
	own    int // the same, for who waits for its end
	status chan syscall.WaitStatus
}

// forkWorker has the parent fork the worker of a jail that stands, and confines it.
func (s *starting) forkWorker(ctx context.Context) (*Process, error) {
	if _, err := s.expectBody(plan.KindBorn); err != nil {
		return nil, err
	}
	ours, theirs, err := conversation("forked worker")
	if err != nil {
		return nil, err
	}
	f := &forked{start: s, conn: ours, lines: bufio.NewReaderSize(ours, 64<<10), pidfd: -1}
	defer ours.Close()
	defer context.AfterFunc(ctx, func() { _ = ours.SetDeadline(past) })()
	err = f.fork(ctx, theirs)
	theirs.Close()
	if err == nil {
		err = f.confine()
	}
	if err == nil {
		err = f.judge()
	}
	if err == nil {
		if s.listener != nil {
			s.listener.Begin(s.opt.Told)
		}
		err = f.send(map[string]any{"begin": true, "argv": s.plan.Worker.Argv, "directory": s.plan.Worker.Dir, "source": s.opt.ParentSource})
	}
	if err != nil {
		if f.status != nil {
			s.opt.Parent.forget(f.pid, f.status)
		}
		if f.pidfd >= 0 {
			unix.Close(f.pidfd)
		}
		return nil, err
	}
	if f.own, err = unix.FcntlInt(uintptr(f.pidfd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		unix.Close(f.pidfd)
		return nil, err
	}
	s.forked = f
	s.tellDegraded()
	process, err := s.born(f.pidfd)
	if err != nil {
		s.opt.Parent.forget(f.pid, f.status)
		unix.Close(f.own)
	}
	return process, err
}

// fork makes the child, which is outside of the jail, and has it enter the jail's group.
func (f *forked) fork(ctx context.Context, theirs *os.File) error {
	s := f.start
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	var fds []int
	for _, file := range []*os.File{s.opt.Stdin, s.opt.Stdout, s.opt.Stderr, s.opt.Wire} {
		if file == nil {
			file = null
		}
		fds = append(fds, int(file.Fd()))
	}
	fds = append(fds, int(theirs.Fd()), s.pidfd)
	if s.ruleset >= 0 {
		fds = append(fds, s.ruleset)
	}
	s.within = true
	if err := s.opt.Parent.fork(ctx, fds); err != nil || s.group == nil {
		return err
	}
	var calls []rawCall
	for _, file := range s.group.Entrances() {
		calls = append(calls, writeCalls(len(calls), file, "0")...)
	}
	_, err = f.call(calls)
	return s.asStep(plan.OpFork, err)
}

// confine goes through the steps of the plan. The first of them are done by the child,
// then by the one that it has forked into the jail's pid namespace.
func (f *forked) confine() error {
	for _, st := range f.start.plan.StepsOf(plan.Fork) {
		if st.Op == plan.OpWitness {
			return f.witness()
		}
		calls, err := callsOf(f.start.plan, st)
		if err != nil {
			return &StepError{st, err}
		}
		results, err := f.call(calls)
		if st.Op == plan.OpObserve && errors.Is(err, unix.EINVAL) {
			calls[0].Args[1] = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER // Linux before 5.19
			results, err = f.call(calls)
		}
		if err == nil {
			switch st.Op {
			case plan.OpJoin:
				err = f.joined()
			case plan.OpObserve:
				err = f.listen(results[0].value)
			}
		}
		if err != nil {
			return &StepError{st, err}
		}
	}
	return nil
}

// joined has the child fork once more: a pid namespace takes whom its members' children
// are (setns(2)).
func (f *forked) joined() error {
	var reply struct {
		PID int `json:"pid"`
	}
	if err := f.send(map[string]any{"fork": true}); err != nil {
		return err
	}
	if err := f.receive(&reply); err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(reply.PID, 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	f.pid, f.pidfd = reply.PID, pidfd
	f.status = f.start.opt.Parent.expect(f.pid)
	return nil
}

func (f *forked) listen(theirs int) error {
	fd, err := unix.PidfdGetfd(f.pidfd, theirs, 0)
	if err != nil {
		return fmt.Errorf("pidfd_getfd: %w", err)
	}
	root, err := unix.Open("/proc/"+strconv.Itoa(f.start.pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("root of the jail: %w", err)
	}
	if f.start.listener, err = observe.Listen(fd, root); err != nil {
		return err
	}
	// Held there too it would outlive the launcher's.
	_, err = f.call([]rawCall{{Number: unix.SYS_CLOSE, Args: []any{theirs}, name: "close", object: "listener"}})
	return err
}

// witness tries the acts, and looks from outside at what is seen there.
func (f *forked) witness() error {
	s := f.start
	var calls []rawCall
	for _, c := range s.plan.Witness {
		if call := actCall(c); c.Forked && call != nil {
			calls = append(calls, *call)
		}
	}
	tried, err := f.call(calls)
	if err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(f.pid) + "/status")
	if err != nil {
		return err
	}
	for _, c := range s.plan.Witness {
		if !c.Forked {
			continue
		}
		got := ""
		switch {
		case c.Act == "status":
			got = statusField(string(status), c.Arg)
		case c.Act == "namespace":
			got = f.namespace(c.Arg)
		default:
			if got = tried[0].errno; got == "" {
				got = "done"
			}
			tried = tried[1:]
		}
		s.results = append(s.results, plan.Result{Name: c.Name, Got: got})
	}
	return nil
}

func (f *forked) judge() error {
	s := f.start
	return s.judge(ownChecks(s.plan), len(s.plan.Witness))
}

// namespace says whether the worker is in the one of the stage, which the stage's own
// witness has shown to be another one than ours, or the same where the plan wants that.
func (f *forked) namespace(name string) string {
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(f.pid) + "/ns/" + name)
	if err != nil {
		return err.Error()
	}
	stage, err := os.Readlink("/proc/" + strconv.Itoa(f.start.pid) + "/ns/" + name)
	if err != nil {
		return err.Error()
	}
	if theirs == stage {
		return "the stage's"
	}
	return theirs
}

// statusField returns the words of one line of a status file, proc(5).
func statusField(status, name string) string {
	for line := range strings.SplitSeq(status, "\n") {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return "no such line"
}

// callResult is what a call came to; errno is its name, or empty.
type callResult struct {
	value int
	errno string
}

func (r *callResult) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&r.value, &r.errno})
}

// noSuchCall is what a test has made instead of a call: ENOSYS.
const noSuchCall = 1 << 20

// call has the worker make these calls. An error of one that is not to be tried is the
// error, by its number.
func (f *forked) call(calls []rawCall) ([]callResult, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	for i := range calls {
		if f.made++; f.made == f.start.opt.failCall && !calls[i].Try {
			calls[i].Number = noSuchCall
		}
	}
	if err := f.send(map[string]any{"calls": calls}); err != nil {
		return nil, err
	}
	var reply struct {
		Results []callResult `json:"results"`
	}
	if err := f.receive(&reply); err != nil {
		return nil, err
	}
	for i, r := range reply.Results {
		if i < len(calls) && r.errno != "" && !calls[i].Try {
			return nil, fmt.Errorf("%s %s: %w", calls[i].name, calls[i].object, errnoOf(r.errno))
		}
	}
	if len(reply.Results) != len(calls) {
		return nil, fmt.Errorf("%d results of %d calls", len(reply.Results), len(calls))
	}
	return reply.Results, nil
}

// errnoOf is the error of a name such as EPERM.
func errnoOf(name string) error {
	for e := syscall.Errno(1); e < 200; e++ {
		if unix.ErrnoName(e) == name {
			return e
		}
	}
	return errors.New(name)
}

func (f *forked) send(message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if _, err := f.conn.Write(append(line, '\n')); err != nil {
		return errSilent
	}
	return nil
}

func (f *forked) receive(into any) error {
	line, err := f.lines.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		return errSilent
	}
	return json.Unmarshal(line, into)
}
