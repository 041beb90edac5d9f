package stage

import (
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"cellblock/jail/plan"
)

type stage struct {
	plan    *plan.Plan
	slots   map[int]int // slot of a clone step to its descriptor
	devices []uint64    // of the private file systems
}

// operations has the function of each of the stage's operations.
var operations = map[plan.Op]func(*stage, *plan.Step) error{
	plan.OpClone:      (*stage).clone,
	plan.OpPrivate:    (*stage).private,
	plan.OpRoot:       (*stage).root,
	plan.OpAttach:     (*stage).attach,
	plan.OpMount:      (*stage).mount,
	plan.OpMkdir:      (*stage).mkdir,
	plan.OpSymlink:    (*stage).symlink,
	plan.OpFile:       (*stage).file,
	plan.OpHide:       (*stage).hide,
	plan.OpReadOnly:   (*stage).readonly,
	plan.OpSeal:       (*stage).seal,
	plan.OpDetach:     (*stage).detach,
	plan.OpLoopback:   (*stage).loopback,
	plan.OpHostname:   (*stage).hostname,
	plan.OpRlimit:     (*stage).rlimit,
	plan.OpKeyring:    (*stage).keyring,
	plan.OpOOM:        (*stage).oom,
	plan.OpCloseFDs:   (*stage).closeFDs,
	plan.OpUndumpable: (*stage).undumpable,
	plan.OpDropCaps:   (*stage).dropCaps,
	plan.OpNoNewPrivs: (*stage).noNewPrivs,
	plan.OpLandlock:   (*stage).landlock,
	plan.OpSeccomp:    (*stage).seccomp,
	plan.OpWitness:    (*stage).witness,
	plan.OpWorker:     (*stage).worker,
}

// Main is the whole life of the stage. It does not return.
func Main() {
	// Credentials, Landlock and the filter belong to a thread; the worker is
	// born from the one that has them all.
	runtime.LockOSThread()
	// Pid 1 gets only signals that it has a handler for. Go has one for each, and
	// would end on some: a channel that nobody reads lets them pass. Unlike
	// ignoring, it is not inherited by the worker.
	signal.Notify(make(chan os.Signal, 1))
	p, fds, err := receivePlan()
	if err != nil {
		os.Exit(70)
	}
	s := &stage{plan: p, slots: map[int]int{}}
	for i := range p.Steps {
		st := &p.Steps[i]
		if st.Side == plan.Launcher && st.Op == plan.OpClone {
			if len(fds) == 0 {
				s.fail(-1, &callError{"recvmsg", st.Source, syscall.EBADF})
			}
			s.slots[st.Slot], fds = fds[0], fds[1:]
		}
	}
	syscall.Umask(0o022)
	steps := p.StepsOf(plan.Stage)
	for i := range steps {
		run, ok := operations[steps[i].Op]
		if !ok {
			s.fail(i, &callError{"step " + string(steps[i].Op), steps[i].Path, syscall.ENOSYS})
		}
		if err := run(s, &steps[i]); err != nil {
			s.fail(i, err)
		}
	}
	// A plan without a worker step is no plan.
	s.fail(-1, &callError{"plan", "worker", syscall.EINVAL})
}

// fail reports the step that ended the set-up, and ends the jail.
func (s *stage) fail(index int, err error) {
	f := plan.Failed{Index: index, Text: err.Error()}
	if e, ok := err.(*callError); ok {
		f.Call, f.Object, f.Errno = e.call, e.object, int(e.errno)
	}
	_ = send(plan.KindFailed, plan.EncodeFailed(f))
	os.Exit(71)
}

// worker waits for the launcher's word, starts the worker and reaps until the
// worker has ended; with pid 1 everything else in the jail ends too.
func (s *stage) worker(*plan.Step) error {
	if err := awaitGo(); err != nil {
		os.Exit(72)
	}
	w := &s.plan.Worker
	if errno := inject("execve"); errno != 0 {
		return &callError{"execve", w.Argv[0], errno}
	}
	pidfd := -1
	pid, err := syscall.ForkExec(w.Argv[0], w.Argv, &syscall.ProcAttr{
		Dir: w.Dir, Env: w.Env, Files: []uintptr{0, 1, 2, wireFD},
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	if err != nil {
		errno, _ := err.(syscall.Errno)
		return &callError{"execve", w.Argv[0], errno}
	}
	var fds []int
	if pidfd >= 0 {
		fds = []int{pidfd}
	}
	if err := send(plan.KindBorn, plan.EncodeInt(pid), fds...); err != nil {
		os.Exit(72)
	}
	for _, fd := range append(fds, 0, 1, 2, wireFD) {
		_ = syscall.Close(fd)
	}
	go endWithLauncher()
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || got == pid {
			_ = send(plan.KindEnded, plan.EncodeInt(int(status)))
			os.Exit(0)
		}
	}
}

// endWithLauncher ends the jail when the launcher closes its end or dies. The
// launcher says nothing more after its go.
func endWithLauncher() {
	var b [1]byte
	for {
		n, err := syscall.Read(controlFD, b[:])
		if n == 0 && err == nil || err != nil && err != syscall.EINTR {
			os.Exit(73)
		}
	}
}

func utoa(v uint64) string { return strconv.FormatUint(v, 10) }
