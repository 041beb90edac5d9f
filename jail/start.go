package jail

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/jail/cgroup"
	"cellblock/jail/observe"
	"cellblock/jail/plan"
)

// StartOptions are the worker's descriptors and the launcher's log.
type StartOptions struct {
	// Wire becomes descriptor 3 of the worker; nil for none.
	Wire *os.File
	// Stdin, Stdout and Stderr become 0, 1 and 2; nil for /dev/null. The caller
	// keeps its own copies and closes them after Start.
	Stdin, Stdout, Stderr *os.File
	// Told hears of what the worker and its descendants ask Linux for, before it comes
	// about, where the plan observes; nil for nobody. It is called from one goroutine,
	// and delays who asked.
	Told func(observe.Event)
	// Log gets a line for each degradation found at the start; nil for none.
	Log io.Writer
	// Parent forks the worker, where the plan wants that; ParentSource is the directory of
	// its source as the worker sees it.
	Parent       *Parent
	ParentSource string
	// stageEnv is added to the stage's environment by the fault test.
	stageEnv []string
	// failCall is the number of a forked worker's call, from 1, that the fault test has
	// fail; 0 for none.
	failCall int
}

// startTimeout ends a start that hangs; an ordinary one takes milliseconds.
const startTimeout = 30 * time.Second

// starting is a jail between its spawn and its birth.
type starting struct {
	plan     *plan.Plan
	opt      StartOptions
	group    *cgroup.Group
	control  *control
	pid      int // of the stage
	pidfd    int
	listener *observe.Listener
	ruleset  int // the stage's, for a worker that is forked
	forked   *forked
	within   bool // a process of the parent's may be in the jail
	sockets  []*os.File
	degraded []plan.Degradation
	results  []plan.Result
}

// Start carries out a plan. It returns when the worker runs, witnessed, or with
// the error that ended the start, in which case nothing of the jail is left and
// no foreign code has run. Errors are *MissingFeatureError, *StepError,
// *WitnessError, ErrStageGone or the context's.
func Start(ctx context.Context, p *plan.Plan, opt StartOptions) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if p.Forked != (opt.Parent != nil) {
		return nil, errors.New("jail start: a plan with a forked worker goes with a warm parent, and no other does")
	}
	s := &starting{plan: p, opt: opt, pidfd: -1, ruleset: -1}
	defer func() {
		if s.ruleset >= 0 {
			syscall.Close(s.ruleset)
		}
	}()
	process, err := s.run(ctx)
	if err != nil {
		s.abandon()
		if ctx.Err() != nil {
			err = fmt.Errorf("jail start: %w", context.Cause(ctx))
		}
		return nil, err
	}
	return process, nil
}

func (s *starting) run(ctx context.Context) (*Process, error) {
	encoded := s.plan.Encode()
	if err := s.makeGroup(); err != nil {
		return nil, err
	}
	if err := s.spawnStage(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, s.control.abort)
	defer stop()
	// While the stage boots, the trees that only we can copy are copied.
	fds, degraded, err := clones(s.plan)
	if err != nil {
		return nil, err
	}
	s.degraded = append(s.degraded, degraded...)
	err = s.control.send(plan.KindPlan, encoded, fds)
	closeAll(fds)
	if err != nil {
		return nil, s.orFailure(err)
	}
	if err := s.takeSockets(); err != nil {
		return nil, err
	}
	if err := s.takeRuleset(); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	body, err := s.expectBody(plan.KindWitnessed)
	if err != nil {
		return nil, err
	}
	if s.results, err = plan.DecodeResults(body); err != nil {
		return nil, err
	}
	if err := s.judge(0, ownChecks(s.plan)); err != nil {
		return nil, err
	}
	if err := s.leftReadOnly(); err != nil {
		return nil, err
	}
	if s.listener != nil {
		s.listener.Begin(s.opt.Told)
	}
	if err := s.control.send(plan.KindGo, nil, nil); err != nil {
		return nil, s.orFailure(err)
	}
	if s.plan.Forked {
		return s.forkWorker(ctx)
	}
	_, worker, err := s.expect(plan.KindBorn)
	if err != nil {
		return nil, err
	}
	if worker < 0 {
		return nil, ErrStageGone
	}
	s.tellDegraded()
	return s.born(worker)
}

func (s *starting) tellDegraded() {
	if s.opt.Log != nil {
		for _, d := range s.degraded {
			fmt.Fprintf(s.opt.Log, "jail degraded: %s: %s\n", d.Feature, d.Why)
		}
	}
}

// takeRuleset receives the stage's ruleset of Landlock, by which a forked worker is to
// restrict itself.
func (s *starting) takeRuleset() error {
	for _, st := range s.plan.StepsOf(plan.Fork) {
		if st.Op != plan.OpLandlock {
			continue
		}
		_, fd, err := s.expect(plan.KindRuleset)
		if err != nil {
			return err
		}
		if fd < 0 {
			return ErrStageGone
		}
		s.ruleset = fd
	}
	return nil
}

// takeSockets receives the sockets that the stage makes in its network namespace.
func (s *starting) takeSockets() error {
	for _, st := range s.plan.StepsOf(plan.Stage) {
		if st.Op != plan.OpSocket {
			continue
		}
		_, fd, err := s.expect(plan.KindSocket)
		if err != nil {
			return err
		}
		if fd < 0 {
			return ErrStageGone
		}
		s.sockets = append(s.sockets, os.NewFile(uintptr(fd), st.Names[0]+" "+st.Path))
	}
	return nil
}

// listen takes the observer's listener over from the stage, where the plan has one.
func (s *starting) listen() error {
	observed := false
	for _, st := range s.plan.StepsOf(plan.Stage) {
		observed = observed || st.Op == plan.OpObserve
	}
	if !observed {
		return nil
	}
	body, err := s.expectBody(plan.KindListener)
	if err != nil {
		return err
	}
	theirs, err := plan.DecodeInt(body)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdGetfd(s.pidfd, theirs, 0)
	if err != nil {
		return s.orLastWord(&MissingFeatureError{SeccompNotify, "pidfd_getfd: " + err.Error(), remedies[SeccompNotify]})
	}
	// Its tree stands; only restrictions are to come.
	root, err := unix.Open("/proc/"+strconv.Itoa(s.pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		syscall.Close(fd)
		return s.orLastWord(fmt.Errorf("observer: root of the jail: %w", err))
	}
	s.listener, err = observe.Listen(fd, root)
	return err
}

// makeGroup makes the cgroup. A limit that it cannot keep, although the probe
// thought so, ends the start when required and is noted otherwise.
func (s *starting) makeGroup() error {
	for _, st := range s.plan.StepsOf(plan.Launcher) {
		if st.Op != plan.OpCgroup {
			continue
		}
		var limits cgroup.Limits
		for _, l := range st.Limits {
			switch l.Name {
			case "memory":
				limits.MemoryBytes = l.Value
			case "tasks":
				limits.Tasks = l.Value
			}
		}
		group, err := cgroup.New(st.Path, limits)
		if ranOut(err) {
			return fmt.Errorf("cgroup: %w", err) // the host has it, and the next start may get it
		}
		if err != nil {
			if len(st.Limits) > 0 {
				return &MissingFeatureError{Cgroup, err.Error(), remedies[Cgroup]}
			}
			s.degraded = append(s.degraded, plan.Degradation{Feature: string(Cgroup),
				Why: err.Error() + ": the pid namespace alone ends the jail", Remedy: remedies[Cgroup]})
			return nil
		}
		s.group = group
		for _, u := range group.Unenforced() {
			if ranOut(u.Why) {
				return fmt.Errorf("cgroup: %s: %w", u.What, u.Why)
			}
			if u.What == "memory" || u.What == "tasks" {
				return &MissingFeatureError{Cgroup, u.What + ": " + u.Why.Error(), remedies[Cgroup]}
			}
		}
	}
	return nil
}

// ranOut says of an error that this process or the host has run out of something, which
// is no word on what the host can do.
func ranOut(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// stageCaps are what the set-up needs: mounts, loopback, bounding set.
var stageCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP}

// overlayCaps are what overlayfs needs of who mounts it, in his own user namespace
// and so over files of his own alone: its work directory is closed even to its
// owner, and copies keep their mode.
var overlayCaps = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID}

func capsOf(p *plan.Plan) []uintptr {
	caps := slices.Clone(stageCaps)
	var overlay, port bool
	for _, st := range p.StepsOf(plan.Stage) {
		overlay = overlay || st.Op == plan.OpOverlay
		port = port || st.Op == plan.OpSocket && st.Num < 1024
	}
	if overlay {
		caps = append(caps, overlayCaps...)
	}
	if port {
		caps = append(caps, unix.CAP_NET_BIND_SERVICE) // of its own network alone
	}
	return caps
}

func (s *starting) spawnStage() error {
	stage, err := image()
	if err != nil {
		return err
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	defer syscall.Close(pair[1])
	if s.control, err = newControl(pair[0]); err != nil {
		syscall.Close(pair[0])
		return err
	}
	argv := []string{"cellblock-stage"}
	files := []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(pair[1]), null.Fd(), stage.Fd()}
	for i, f := range []*os.File{s.opt.Stdin, s.opt.Stdout, s.opt.Stderr} {
		if f != nil {
			files[i] = f.Fd()
		}
	}
	if s.opt.Wire != nil {
		files[4] = s.opt.Wire.Fd()
		argv = append(argv, plan.WireArgument)
	}
	ids := s.plan.IDs
	sys := &syscall.SysProcAttr{
		Cloneflags:  uintptr(s.plan.Namespaces),
		UidMappings: []syscall.SysProcIDMap{{ContainerID: ids.InnerUID, HostID: ids.OuterUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: ids.InnerGID, HostID: ids.OuterGID, Size: 1}},
		AmbientCaps: capsOf(s.plan),
		Pdeathsig:   syscall.SIGKILL,
		Setsid:      true,
		PidFD:       &s.pidfd,
	}
	if s.plan.SwitchIDs {
		// The groups of the launcher are dropped with its id.
		sys.GidMappingsEnableSetgroups = true
		sys.Credential = &syscall.Credential{Uid: uint32(ids.InnerUID), Gid: uint32(ids.InnerGID)}
	}
	env := append([]string{"GOMAXPROCS=1", "GOGC=off"}, s.opt.stageEnv...)
	s.pid, err = spawn("/proc/self/fd/5", argv, &syscall.ProcAttr{Dir: "/", Env: env, Files: files, Sys: sys}, s.group)
	if err != nil {
		s.pid = 0
		return s.explainSpawn(err)
	}
	return s.asStep(plan.OpOOM, raiseOOM(s.pid))
}

func (s *starting) explainSpawn(err error) error {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EACCES) {
		found := ExplainUserNamespace(err)
		return &MissingFeatureError{UserNamespace, found.Why, found.Remedy}
	}
	if errors.Is(err, syscall.EAGAIN) {
		err = fmt.Errorf("%w: no more processes may be made: end some, or raise the limit of this user (ulimit -u) or of this service (TasksMax= of a systemd unit)", err)
	}
	return s.asStep(plan.OpSpawn, err)
}

// asStep is the error of a step of the launcher's own; nil for none.
func (s *starting) asStep(op plan.Op, err error) error {
	for _, st := range s.plan.StepsOf(plan.Launcher) {
		if st.Op == op && err != nil {
			return &StepError{st, err}
		}
	}
	return err
}

// expect reads the next message, which must be of this kind or a failure.
func (s *starting) expect(kind plan.Kind) (body []byte, fd int, err error) {
	got, body, fd, err := s.control.receive()
	if err != nil {
		return nil, -1, s.orFailure(err)
	}
	if got != kind && fd >= 0 {
		syscall.Close(fd)
	}
	if got == plan.KindFailed {
		return nil, -1, s.failure(body)
	}
	if got != kind {
		return nil, -1, fmt.Errorf("jail stage: message %q, want %q: rebuild launcher and stage together", got, kind)
	}
	return body, fd, nil
}

// expectBody is expect for a message that carries no descriptor.
func (s *starting) expectBody(kind plan.Kind) ([]byte, error) {
	body, fd, err := s.expect(kind)
	if fd >= 0 {
		syscall.Close(fd)
	}
	return body, err
}

// orFailure looks for the stage's own word on why its end is gone.
func (s *starting) orFailure(err error) error {
	kind, body, fd, e := s.control.receive()
	if fd >= 0 {
		syscall.Close(fd)
	}
	if e == nil && kind == plan.KindFailed {
		return s.failure(body)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return ErrStageGone
	}
	return err
}

// orLastWord is orFailure where the stage may be ending just now, which takes from it
// what the launcher was about to look at.
func (s *starting) orLastWord(err error) error {
	_ = s.control.file.SetReadDeadline(time.Now().Add(time.Second))
	return s.orFailure(err)
}

// failure turns the stage's report into the error of a step, or of a feature
// where the step shows that the host lacks one.
func (s *starting) failure(body []byte) error {
	f, err := plan.DecodeFailed(body)
	if err != nil {
		return err
	}
	cause := error(syscall.Errno(f.Errno))
	if f.Errno == 0 {
		cause = errors.New(f.Text)
	}
	cause = fmt.Errorf("%s %s: %w", f.Call, f.Object, cause)
	steps := s.plan.StepsOf(plan.Stage)
	if f.Index < 0 || f.Index >= len(steps) {
		return fmt.Errorf("jail stage: %w", cause)
	}
	step := steps[f.Index]
	switch {
	case step.Op == plan.OpMount && step.FSType == "proc" && f.Errno == int(syscall.EPERM):
		return &MissingFeatureError{FreshProc, cause.Error(), remedies[FreshProc]}
	case step.Op == plan.OpPrivate && f.Errno == int(syscall.EPERM), step.Op == plan.OpPrivate && f.Errno == int(syscall.EACCES):
		found := ExplainUserNamespace(syscall.Errno(f.Errno))
		return &MissingFeatureError{UserNamespace, found.Why, found.Remedy}
	}
	return &StepError{step, cause}
}

// judge compares the witness's report with the plan: every check of those from first to
// end, in order, with one of the wanted results.
func (s *starting) judge(first, end int) error {
	for i, c := range s.plan.Witness[:end] {
		if i < first {
			continue
		}
		if i >= len(s.results) || s.results[i].Name != c.Name {
			return &WitnessError{Check: c}
		}
		got := s.results[i].Got
		if c.Act == "namespace" && !c.Forked {
			ours, err := os.Readlink("/proc/self/ns/" + c.Arg)
			if err != nil {
				return &WitnessError{Check: c, Got: err.Error()}
			}
			if got == ours {
				got = "same"
			} else if len(got) > len(c.Arg)+3 && got[:len(c.Arg)+2] == c.Arg+":[" {
				got = "other"
			}
			s.results[i].Got = got
		}
		if c.Act == "tell" && s.listener != nil && s.listener.Seen(c.Arg) {
			got = "told"
			s.results[i].Got = got
		}
		ok := false
		for _, want := range c.Want {
			ok = ok || got == want
		}
		if !ok {
			return &WitnessError{Check: c, Got: got}
		}
	}
	return nil
}

// ownChecks is how many of the plan's checks the stage itself makes; they come first.
func ownChecks(p *plan.Plan) int {
	n := 0
	for n < len(p.Witness) && !p.Witness[n].Forked {
		n++
	}
	return n
}

// abandon ends whatever the failed start has made.
func (s *starting) abandon() {
	if s.control != nil {
		s.control.close()
	}
	if s.pid > 0 {
		_ = syscall.Kill(s.pid, syscall.SIGKILL)
		if s.within {
			s.opt.Parent.unblock(s.pidfd)
		}
		waitPid(s.pid)
	}
	if s.pidfd >= 0 {
		syscall.Close(s.pidfd)
	}
	if s.group != nil {
		_ = s.group.Kill()
		_ = s.group.Close()
	}
	if s.listener != nil {
		s.listener.Stop()
	}
	closeFiles(s.sockets)
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func waitPid(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// planDigest is the SHA-256 of the plan as the stage reads it.
func planDigest(p *plan.Plan) string {
	sum := sha256.Sum256(p.Encode())
	return hex.EncodeToString(sum[:])
}
