package stage

import (
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// witness tries every forbidden act of the plan on this thread, the one the
// worker is born from, reports, and waits for the launcher's decision. The
// stage decides nothing: it may be the part that is broken.
func (s *stage) witness(*plan.Step) error {
	var results []plan.Result
	status := readFile("/proc/thread-self/status")
	for _, c := range s.plan.Witness {
		if !c.Forked {
			results = append(results, plan.Result{Name: c.Name, Got: try(c, status)})
		}
	}
	if err := s.send(plan.KindWitnessed, plan.EncodeResults(results)); err != nil {
		return err
	}
	head := make([]byte, plan.HeaderSize)
	for got := 0; got < len(head); {
		n, err := s.read(head[got:])
		if err != nil {
			return err
		}
		got += n
	}
	if kind, size, err := plan.ParseHeader(head); err != nil || kind != plan.KindGo || size != 0 {
		return &callError{"read", "launcher's go", syscall.EBADMSG}
	}
	if s.listener > 0 {
		// Held here too, it would outlive the launcher's, and who waits for an answer
		// would wait for ever.
		syscall.Close(s.listener)
	}
	s.allowed = true
	return nil
}

// try makes one forbidden act. None of them does lasting harm when it is not
// refused, except to a stage whose start has then failed anyway.
func try(c plan.Check, status string) string {
	switch c.Act {
	case "create":
		fd, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, atFDCWD, uintptr(unsafe.Pointer(cstr(c.Arg))),
			syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, 0o600, 0, 0)
		if errno == 0 {
			syscall.Close(int(fd))
			_ = syscall.Unlink(c.Arg)
		}
		return outcome(errno)
	case "tell":
		return raw(syscall.SYS_MKDIRAT, atFDCWD, uintptr(unsafe.Pointer(cstr(c.Arg))), 0o700, 0)
	case "unshare-user":
		return raw(syscall.SYS_UNSHARE, syscall.CLONE_NEWUSER, 0, 0, 0)
	case "clone3":
		return raw(unix.SYS_CLONE3, 0, 0, 0, 0)
	case "mount":
		return raw(syscall.SYS_MOUNT, uintptr(unsafe.Pointer(cstr("none"))), uintptr(unsafe.Pointer(cstr("/tmp"))),
			uintptr(unsafe.Pointer(cstr("tmpfs"))), 0)
	case "remount":
		return raw(syscall.SYS_MOUNT, uintptr(unsafe.Pointer(cstr("none"))), uintptr(unsafe.Pointer(cstr(c.Arg))),
			0, syscall.MS_REMOUNT|syscall.MS_BIND)
	case "socket-alg":
		fd, _, errno := syscall.Syscall(syscall.SYS_SOCKET, unix.AF_ALG, syscall.SOCK_SEQPACKET, 0)
		if errno == 0 {
			syscall.Close(int(fd))
		}
		return outcome(errno)
	case "bpf":
		return raw(unix.SYS_BPF, 0, 0, 0, 0)
	case "io_uring":
		return raw(unix.SYS_IO_URING_SETUP, 1, 0, 0, 0)
	case "keyctl":
		return raw(syscall.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2), 0, 0)
	case "ptrace":
		return raw(syscall.SYS_PTRACE, syscall.PTRACE_ATTACH, 1<<30, 0, 0)
	case "setuid":
		return raw(syscall.SYS_SETUID, 0, 0, 0, 0)
	case "connect":
		return connect()
	case "routes":
		return routes()
	case "covered":
		return mountState(c.Arg, func(s *syscall.Statfs_t) bool { return s.Type == unix.TMPFS_MAGIC && s.Flags&unix.ST_RDONLY != 0 })
	case "shadowed":
		return shadowed(c.Arg)
	case "read-only":
		return mountState(c.Arg, func(s *syscall.Statfs_t) bool { return s.Flags&unix.ST_RDONLY != 0 })
	case "no-exec":
		return mountState(c.Arg, func(s *syscall.Statfs_t) bool { return s.Flags&unix.ST_NOEXEC != 0 })
	case "execute":
		argv := [2]*byte{cstr(c.Arg)}
		return raw(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(argv[0])), uintptr(unsafe.Pointer(&argv)), uintptr(unsafe.Pointer(&argv[1])), 0)
	case "status":
		return field(status, c.Arg)
	case "pids":
		return pids()
	case "namespace":
		buf := make([]byte, 64)
		n, err := syscall.Readlink("/proc/thread-self/ns/"+c.Arg, buf)
		if err != nil {
			return err.Error()
		}
		return string(buf[:n])
	}
	return "unknown act " + c.Act
}

//go:uintptrescapes
func raw(trap, a1, a2, a3, a4 uintptr) string {
	_, _, errno := syscall.Syscall6(trap, a1, a2, a3, a4, 0, 0)
	return outcome(errno)
}

// outcome names an errno; "done" is an act that was not refused.
func outcome(errno syscall.Errno) string {
	if errno == 0 {
		return "done"
	}
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return "errno " + utoa(uint64(errno))
}

// connect asks for a way to 192.0.2.1, an address set aside for documentation.
// Connecting a datagram socket looks up the route and sends nothing.
func connect() string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return outcome(err.(syscall.Errno))
	}
	defer syscall.Close(fd)
	err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})
	if err == nil {
		return "done"
	}
	return outcome(err.(syscall.Errno))
}

// mountState asks for the flags of the mount at a path, which are what refuses.
func mountState(path string, want func(*syscall.Statfs_t) bool) string {
	var s syscall.Statfs_t
	err := syscall.Statfs(path, &s)
	switch errno, _ := err.(syscall.Errno); {
	case err != nil:
		return outcome(errno)
	case want(&s):
		return "yes"
	}
	return "no"
}

func readFile(path string) string {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	buf := make([]byte, 8192)
	n, err := syscall.Read(fd, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// field returns the words of one line of a status file.
func field(status, name string) string {
	for line := range strings.SplitSeq(status, "\n") {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return "no such line"
}

// pids lists the processes in view.
func pids() string {
	fd, err := syscall.Open("/proc", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	defer syscall.Close(fd)
	var found []string
	buf := make([]byte, 8192)
	for {
		n, err := syscall.ReadDirent(fd, buf)
		if err != nil {
			return err.Error()
		}
		if n <= 0 {
			return strings.Join(found, " ")
		}
		_, _, names := syscall.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if name[0] >= '1' && name[0] <= '9' {
				found = append(found, name)
			}
		}
	}
}
