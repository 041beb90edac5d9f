package stage

import (
	"syscall"
	"unsafe"

	"cellblock/jail/plan"
)

// The stage's descriptors, see the package comment.
const (
	controlFD = 3
	wireFD    = 4
)

type stage struct {
	plan    *plan.Plan
	slots   map[int]int
	devices []uint64 // of the file systems that the stage mounted itself
	hasWire bool
	// listener is the observer's, until the launcher has it.
	listener int
	// allowed is set by the launcher's go, after the witness.
	allowed bool
}

// Main runs the stage and never returns. The caller must have locked the main
// thread, since most of what a jail is made of belongs to a thread in Linux.
func Main(args []string) {
	s := &stage{slots: map[int]int{}, hasWire: len(args) > 1 && args[1] == plan.WireArgument}
	index := -1
	if err := s.receive(); err != nil {
		s.fail(index, err)
	}
	for i := range s.plan.Steps {
		st := &s.plan.Steps[i]
		if st.Side != plan.Stage {
			continue
		}
		index++
		do := steps[st.Op]
		if do == nil {
			s.fail(index, &callError{string(st.Op), "unknown step", syscall.ENOSYS})
		}
		if err := do(s, st); err != nil {
			s.fail(index, err)
		}
	}
	// A plan without a worker step is refused by Compile; this is the seat belt.
	syscall.Exit(1)
}

var steps = map[plan.Op]func(*stage, *plan.Step) error{
	plan.OpPrivate:    (*stage).private,
	plan.OpClone:      (*stage).clone,
	plan.OpOverlay:    (*stage).overlay,
	plan.OpRoot:       (*stage).root,
	plan.OpAttach:     (*stage).attach,
	plan.OpMount:      (*stage).mount,
	plan.OpMkdir:      (*stage).mkdir,
	plan.OpSymlink:    (*stage).symlink,
	plan.OpFile:       (*stage).file,
	plan.OpHide:       (*stage).hide,
	plan.OpEmpty:      (*stage).empty,
	plan.OpRestrict:   (*stage).restrict,
	plan.OpSeal:       (*stage).seal,
	plan.OpDetach:     (*stage).detach,
	plan.OpLoopback:   (*stage).loopback,
	plan.OpLocal:      (*stage).local,
	plan.OpSocket:     (*stage).socket,
	plan.OpHostname:   (*stage).hostname,
	plan.OpRlimit:     (*stage).rlimit,
	plan.OpKeyring:    (*stage).keyring,
	plan.OpCloseFDs:   (*stage).closeFDs,
	plan.OpUndumpable: (*stage).undumpable,
	plan.OpDropCaps:   (*stage).dropCaps,
	plan.OpNoNewPrivs: (*stage).noNewPrivs,
	plan.OpLandlock:   (*stage).landlock,
	plan.OpObserve:    (*stage).observe,
	plan.OpSeccomp:    (*stage).seccomp,
	plan.OpWitness:    (*stage).witness,
	plan.OpWorker:     (*stage).worker,
	plan.OpAdopt:      (*stage).adopt,
}

// receive closes what was inherited by mistake, then reads the plan and the
// slots that came with its first byte.
func (s *stage) receive() error {
	if err := closeFrom(wireFD + 1); err != nil {
		return err
	}
	for _, fd := range []uintptr{controlFD, wireFD} {
		if _, err := call("fcntl", "control and wire", syscall.SYS_FCNTL, fd, syscall.F_SETFD, syscall.FD_CLOEXEC, 0, 0); err != nil {
			return err
		}
	}
	if _, err := call("umask", "stage", syscall.SYS_UMASK, 0o022, 0, 0, 0, 0); err != nil {
		return err
	}
	head := make([]byte, plan.HeaderSize)
	oob := make([]byte, 2048) // room for 253 descriptors, the most Linux passes
	n, oobn, _, _, err := recvmsg(controlFD, head, oob)
	if err != nil {
		return err
	}
	if n == 0 {
		syscall.Exit(1) // the launcher is gone
	}
	for got := n; got < len(head); got += n {
		if n, err = s.read(head[got:]); err != nil {
			return err
		}
	}
	kind, size, err := plan.ParseHeader(head)
	if err != nil || kind != plan.KindPlan {
		return &callError{"read", "plan", syscall.EBADMSG}
	}
	body := make([]byte, size)
	for got := 0; got < size; {
		n, err := s.read(body[got:])
		if err != nil {
			return err
		}
		got += n
	}
	if s.plan, err = plan.Decode(body); err != nil {
		return &callError{"decode", "plan", syscall.EBADMSG}
	}
	return s.takeSlots(oob[:oobn])
}

// takeSlots gives the received descriptors the slots of the launcher's clone
// steps, in order.
func (s *stage) takeSlots(oob []byte) error {
	var fds []int
	if len(oob) > 0 {
		msgs, err := syscall.ParseSocketControlMessage(oob)
		if err != nil {
			return &callError{"recvmsg", "slots", syscall.EBADMSG}
		}
		for i := range msgs {
			got, err := syscall.ParseUnixRights(&msgs[i])
			if err != nil {
				return &callError{"recvmsg", "slots", syscall.EBADMSG}
			}
			fds = append(fds, got...)
		}
	}
	for i := range s.plan.Steps {
		st := &s.plan.Steps[i]
		if st.Side != plan.Launcher || st.Op != plan.OpClone && st.Op != plan.OpOverlay {
			continue
		}
		if len(fds) == 0 {
			return &callError{"recvmsg", "slots", syscall.EBADMSG}
		}
		// A socket stands for an optional tree that is not there.
		if isSocket(fds[0]) {
			syscall.Close(fds[0])
		} else {
			s.slots[st.Slot] = fds[0]
		}
		fds = fds[1:]
	}
	return nil
}

// isSocket is false for a mount of a socket's path, whose descriptor is no socket.
func isSocket(fd int) bool {
	_, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE)
	return err == nil
}

func recvmsg(fd int, p, oob []byte) (n, oobn, flags int, from syscall.Sockaddr, err error) {
	if errno := inject("recvmsg"); errno != 0 {
		return 0, 0, 0, nil, &callError{"recvmsg", "launcher", errno}
	}
	for {
		n, oobn, flags, from, err = syscall.Recvmsg(fd, p, oob, syscall.MSG_CMSG_CLOEXEC)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		err = &callError{"recvmsg", "launcher", err.(syscall.Errno)}
	}
	return
}

// read reads from the launcher; its end is ours.
func (s *stage) read(p []byte) (int, error) {
	for {
		n, err := call("read", "launcher", syscall.SYS_READ, controlFD, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), 0, 0)
		if isErrno(err, syscall.EINTR) {
			continue
		}
		if n == 0 && err == nil {
			syscall.Exit(1)
		}
		return n, err
	}
}

func (s *stage) send(kind plan.Kind, body []byte) error {
	b := plan.AppendMessage(nil, kind, body)
	for len(b) > 0 {
		n, err := call("write", "launcher", syscall.SYS_WRITE, controlFD, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0)
		if isErrno(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// fail reports and ends the stage, and with it every process of the jail. The
// report itself is written past the choke point: it must come through in the
// test that lets calls fail.
func (s *stage) fail(index int, err error) {
	f := plan.Failed{Index: index, Text: err.Error()}
	if e, ok := err.(*callError); ok {
		f = plan.Failed{Index: index, Call: e.call, Object: e.object, Errno: int(e.errno)}
	}
	b := plan.AppendMessage(nil, plan.KindFailed, f.Encode())
	for len(b) > 0 {
		n, err := syscall.Write(controlFD, b)
		if err != nil && err != syscall.EINTR {
			break
		}
		b = b[max(n, 0):]
	}
	syscall.Exit(1)
}

func utoa(v uint64) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + v%10)
		if v /= 10; v == 0 {
			return string(b[i:])
		}
	}
}
