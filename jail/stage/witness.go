package stage

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// acts are the forbidden acts that the witness knows. Each returns the name of
// the errno that stopped it, "done" when nothing did, or a value that it read.
var acts = map[string]func(arg string) string{
	"write":     actWrite,
	"unshare":   func(string) string { return outcome(syscall.SYS_UNSHARE, syscall.CLONE_NEWUSER, 0, 0) },
	"mount":     actMount,
	"clone3":    func(string) string { return outcome(unix.SYS_CLONE3, 0, 0, 0) },
	"bpf":       func(string) string { return outcome(unix.SYS_BPF, 0, 0, 0) },
	"ptrace":    func(string) string { return outcome(syscall.SYS_PTRACE, syscall.PTRACE_TRACEME, 0, 0) },
	"setuid":    func(string) string { return outcome(syscall.SYS_SETUID, 0, 0, 0) },
	"socket":    actSocket,
	"connect":   actConnect,
	"status":    actStatus,
	"pids":      actPids,
	"namespace": actNamespace,
}

// witness tries every check of the plan on the thread that the worker is born
// from, after all restrictions stand and before any foreign code.
func (s *stage) witness(*plan.Step) error {
	results := make([]plan.Result, 0, len(s.plan.Witness))
	for _, c := range s.plan.Witness {
		act, ok := acts[c.Act]
		if !ok {
			return &callError{"witness", c.Act, syscall.ENOSYS}
		}
		results = append(results, plan.Result{Name: c.Name, Got: act(c.Arg)})
	}
	if err := send(plan.KindWitnessed, plan.EncodeResults(results)); err != nil {
		os.Exit(72)
	}
	return nil
}

func outcome(trap, a, b, c uintptr) string {
	_, _, errno := syscall.RawSyscall6(trap, a, b, c, 0, 0, 0)
	return name(errno)
}

func name(errno syscall.Errno) string {
	if errno == 0 {
		return "done"
	}
	if n := unix.ErrnoName(errno); n != "" {
		return n
	}
	return strconv.Itoa(int(errno))
}

// actWrite opens for writing and changes nothing: a directory by a nameless
// file, anything else as it is.
func actWrite(path string) string {
	flags := syscall.O_WRONLY | syscall.O_CLOEXEC | syscall.O_NONBLOCK
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		errno, _ := err.(syscall.Errno)
		return name(errno)
	}
	if stat.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		flags = unix.O_TMPFILE | syscall.O_RDWR | syscall.O_CLOEXEC
	}
	fd, err := syscall.Open(path, flags, 0o600)
	if err != nil {
		errno, _ := err.(syscall.Errno)
		return name(errno)
	}
	syscall.Close(fd)
	return "done"
}

func actMount(string) string {
	target, fstype := cstr("/tmp"), cstr("tmpfs")
	_, _, errno := syscall.RawSyscall6(syscall.SYS_MOUNT, uintptr(unsafe.Pointer(fstype)), uintptr(unsafe.Pointer(target)),
		uintptr(unsafe.Pointer(fstype)), 0, 0, 0)
	return name(errno)
}

func actSocket(arg string) string {
	family, _ := strconv.Atoi(arg)
	fd, err := syscall.Socket(family, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		errno, _ := err.(syscall.Errno)
		return name(errno)
	}
	syscall.Close(fd)
	return "done"
}

// actConnect asks for a route to an address of RFC 5737. No packet is sent: a
// datagram socket's connect only looks the route up.
func actConnect(string) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		defer syscall.Close(fd)
		err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})
	}
	errno, _ := err.(syscall.Errno)
	return name(errno)
}

// actStatus reads one field of the thread's own status (proc(5)).
func actStatus(field string) string {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return "unreadable"
	}
	for _, line := range bytes.Split(text, []byte("\n")) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && key == field {
			return strings.TrimSpace(value)
		}
	}
	return "absent"
}

// actPids lists the processes in view.
func actPids(string) string {
	dir, err := os.Open("/proc")
	if err != nil {
		return "unreadable"
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return "unreadable"
	}
	var pids []string
	for _, n := range names {
		if _, err := strconv.Atoi(n); err == nil {
			pids = append(pids, n)
		}
	}
	return strings.Join(pids, ",")
}

// actNamespace compares a namespace with the launcher's: "user user:[4026531837]".
func actNamespace(arg string) string {
	kind, outer, _ := strings.Cut(arg, " ")
	link, err := os.Readlink("/proc/self/ns/" + kind)
	switch {
	case err != nil:
		return "unreadable"
	case outer == "" || link == outer:
		return "same"
	}
	return "other"
}
