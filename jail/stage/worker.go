package stage

import (
	"runtime"
	"syscall"
	"unsafe"

	"cellblock/jail/plan"
)

// worker starts the worker from this thread, whose restrictions it inherits,
// and then waits for the end of every process of the jail.
func (s *stage) worker(*plan.Step) error {
	if !s.allowed {
		// A plan whose witness was lost starts nothing.
		return &callError{"witness", "launcher's go", syscall.EPERM}
	}
	w := s.plan.Worker
	streams, err := s.setStreamsAside()
	if err != nil {
		return err
	}
	files := streams
	if s.hasWire {
		files = append(files, wireFD)
	}
	// Before the birth, so that no signal of the worker's comes too early.
	if err := ignoreSignals(); err != nil {
		return err
	}
	pidfd := -1
	attr := &syscall.ProcAttr{Dir: w.Dir, Env: w.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}}
	if errno := inject("fork"); errno != 0 {
		return &callError{"fork", w.Argv[0], errno}
	}
	pid, err := syscall.ForkExec(w.Argv[0], w.Argv, attr)
	if err != nil {
		errno, _ := err.(syscall.Errno)
		return &callError{"exec", w.Argv[0], errno}
	}
	// A pipe must end with the last process of the worker, not with the stage.
	for _, fd := range streams {
		syscall.Close(int(fd))
	}
	syscall.Close(wireFD)
	if err := s.sendBorn(pid, pidfd); err != nil {
		return err
	}
	go s.watchLauncher()
	s.reap(pid)
	return nil
}

// setStreamsAside moves the worker's streams out of the stage's own first three
// descriptors, before the worker is born: whatever fails here ends the start
// without one.
func (s *stage) setStreamsAside() ([]uintptr, error) {
	null, err := call("open", "/dev/null", syscall.SYS_OPENAT, atFDCWD, uintptr(unsafe.Pointer(cstr("/dev/null"))), syscall.O_RDWR|syscall.O_CLOEXEC, 0, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(null)
	var aside []uintptr
	for fd := uintptr(0); fd < 3; fd++ {
		to, err := call("fcntl F_DUPFD", "worker's streams", syscall.SYS_FCNTL, fd, syscall.F_DUPFD_CLOEXEC, wireFD+1, 0, 0)
		if err != nil {
			return nil, err
		}
		aside = append(aside, uintptr(to))
		if _, err := call("dup3", "/dev/null", syscall.SYS_DUP3, uintptr(null), fd, syscall.O_CLOEXEC, 0, 0); err != nil {
			return nil, err
		}
	}
	return aside, nil
}

// sendBorn passes a descriptor of the worker, not its number: the launcher sees
// other numbers, and a descriptor cannot come to mean another process.
func (s *stage) sendBorn(pid, pidfd int) error {
	if pidfd < 0 {
		return &callError{"clone", "pidfd", syscall.ENOSYS}
	}
	if err := s.pass(plan.KindBorn, plan.EncodeInt(pid), pidfd); err != nil {
		return err
	}
	return syscall.Close(pidfd)
}

// watchLauncher ends the stage when the other end of the control socket is gone or
// says anything but that it wants a socket.
func (s *stage) watchLauncher() {
	message := make([]byte, plan.HeaderSize+1)
	for n := 1; ; n++ {
		for got := 0; got < len(message); {
			n, err := syscall.Read(controlFD, message[got:])
			if err == syscall.EINTR {
				continue
			}
			if n <= 0 {
				syscall.Exit(1)
			}
			got += n
		}
		kind, size, err := plan.ParseHeader(message)
		if err != nil || kind != plan.KindSocket || size != 1 {
			syscall.Exit(1)
		}
		family, err := plan.DecodeInt(message[plan.HeaderSize:])
		if err != nil {
			syscall.Exit(1)
		}
		sendSocket(family)
		if n%1024 == 0 {
			runtime.GC() // which is off, see the launcher's spawn
		}
	}
}

// sendSocket makes a TCP socket and passes it, or a message without one where Linux
// gives none. The launcher connects it: here nothing is reached.
func sendSocket(family int) {
	empty := plan.AppendMessage(nil, plan.KindSocket, nil)
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Sendmsg(controlFD, empty, syscall.UnixRights(fd), nil, 0)
		syscall.Close(fd)
	}
	if err != nil {
		if _, err := syscall.Write(controlFD, empty); err != nil {
			syscall.Exit(1)
		}
	}
}

// reap collects every orphan of the jail, and ends with the worker: what it
// leaves behind is killed by Linux when the first process of the namespace ends.
func (s *stage) reap(worker int) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			syscall.Exit(1)
		}
		if pid == worker && (status.Exited() || status.Signaled()) {
			_ = s.send(plan.KindEnded, plan.EncodeInt(int(status)))
			syscall.Exit(0)
		}
	}
}
