package stage

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

func (s *stage) loopback(*plan.Step) error {
	fd, err := call("socket", "lo", syscall.SYS_SOCKET, syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0, 0, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	// struct ifreq: 16 bytes of name, then the flags.
	var req [40]byte
	copy(req[:], "lo")
	req[16] = syscall.IFF_UP | syscall.IFF_RUNNING
	_, err = call("ioctl SIOCSIFFLAGS", "lo", syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&req)), 0, 0)
	return err
}

func (s *stage) hostname(st *plan.Step) error {
	_, err := call("sethostname", st.Data, syscall.SYS_SETHOSTNAME, uintptr(unsafe.Pointer(cstr(st.Data))), uintptr(len(st.Data)), 0, 0, 0)
	return err
}

// rlimit never raises a limit: where the launcher's own is lower, that one stays.
// For open files package syscall has to be told, since it would otherwise put
// back the limit that the stage began with before it executes the worker.
func (s *stage) rlimit(st *plan.Step) error {
	var now syscall.Rlimit
	if _, err := call("prlimit64", st.Names[0], unix.SYS_PRLIMIT64, 0, uintptr(st.Num), 0, uintptr(unsafe.Pointer(&now)), 0); err != nil {
		return err
	}
	lim := syscall.Rlimit{Cur: min(st.Soft, now.Max), Max: min(st.Hard, now.Max)}
	if st.Num == syscall.RLIMIT_NOFILE {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
			return &callError{"setrlimit", st.Names[0], err.(syscall.Errno)}
		}
	}
	_, err := call("prlimit64", st.Names[0], unix.SYS_PRLIMIT64, 0, uintptr(st.Num), uintptr(unsafe.Pointer(&lim)), 0, 0)
	return err
}

// keyring leaves the launcher's session keyring, which is inherited over clone
// and exec whatever the user namespace.
func (s *stage) keyring(*plan.Step) error {
	_, err := call("keyctl", "session keyring", syscall.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if isErrno(err, syscall.ENOSYS) {
		// A Linux without CONFIG_KEYS has nothing to leave.
		return nil
	}
	return err
}

func (s *stage) closeFDs(*plan.Step) error {
	return closeFrom(wireFD + 1)
}

func closeFrom(first int) error {
	_, err := call("close_range", "inherited descriptors", unix.SYS_CLOSE_RANGE, uintptr(first), uintptr(^uint32(0)), 0, 0, 0)
	return err
}

func (s *stage) undumpable(*plan.Step) error {
	_, err := call("prctl PR_SET_DUMPABLE", "stage", syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0, 0, 0)
	return err
}

// dropCaps empties the bounding set first, which needs CAP_SETPCAP, and the
// ambient set by itself, since capset would only cut it down.
func (s *stage) dropCaps(*plan.Step) error {
	for c := uintptr(0); c < 64; c++ {
		_, err := call("prctl PR_CAPBSET_DROP", "bounding set", syscall.SYS_PRCTL, syscall.PR_CAPBSET_DROP, c, 0, 0, 0)
		if c > 0 && isErrno(err, syscall.EINVAL) {
			break // one past the last capability of this Linux
		}
		if err != nil {
			return err
		}
	}
	if _, err := call("prctl PR_CAP_AMBIENT", "ambient set", syscall.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return callAll("capset", syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0, 0, 0)
}

func (s *stage) noNewPrivs(*plan.Step) error {
	return callAll("prctl PR_SET_NO_NEW_PRIVS", syscall.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// Rights that a rule on a file may name: execute, write, read, truncate and
// ioctl on devices. Linux refuses the others there.
const fileRights = 1<<0 | 1<<1 | 1<<2 | 1<<14 | 1<<15

func (s *stage) landlock(st *plan.Step) error {
	attr := [3]uint64{st.Handled, 0, st.Scoped}
	size := unsafe.Sizeof(attr)
	if st.Scoped == 0 {
		size = 8 // an older ABI knows only this much of the structure
	}
	ruleset, err := call("landlock_create_ruleset", "ruleset", unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0, 0, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(ruleset)
	for i := range st.Rules {
		if err := addRule(ruleset, &st.Rules[i]); err != nil {
			return err
		}
	}
	if s.plan.Forked {
		// The worker is to restrict itself by the same one.
		if err := s.pass(plan.KindRuleset, nil, ruleset); err != nil {
			return err
		}
	}
	return callAll("landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0, 0, 0)
}

func addRule(ruleset int, r *plan.Rule) error {
	fd, err := call("open", r.Path, syscall.SYS_OPENAT, atFDCWD, uintptr(unsafe.Pointer(cstr(r.Path))), unix.O_PATH|syscall.O_CLOEXEC, 0, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	mode, err := modeOf(fd, r.Path)
	if err != nil {
		return err
	}
	// struct landlock_path_beneath_attr is packed: 8 bytes of rights, 4 of fd.
	var attr struct {
		rights [2]uint32
		fd     int32
	}
	rights := r.Rights
	if mode&syscall.S_IFMT != syscall.S_IFDIR {
		rights &= fileRights
	}
	attr.rights = [2]uint32{uint32(rights), uint32(rights >> 32)}
	attr.fd = int32(fd)
	_, err = call("landlock_add_rule", r.Path, unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0)
	return err
}

// seccomp installs one program on all threads at once: the worker is born from
// this one, and none of the others may stay outside.
func (s *stage) seccomp(st *plan.Step) error {
	r, err := install(st, s.plan.Programs[st.Slot], unix.SECCOMP_FILTER_FLAG_TSYNC)
	if err == nil && r != 0 {
		// The id of a thread that could not be brought along.
		return &callError{"seccomp", "all threads", syscall.ESRCH}
	}
	return err
}

// install adds a filter to this thread, or with TSYNC to all, and returns what
// seccomp(2) does.
func install(st *plan.Step, prog []plan.Insn, flags uintptr) (int, error) {
	if len(prog) == 0 || len(prog) > 0xffff {
		return -1, &callError{"seccomp", st.Path, syscall.EINVAL}
	}
	fprog := struct {
		n    uint16
		prog *plan.Insn
	}{uint16(len(prog)), &prog[0]}
	return call("seccomp", st.Path, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)), 0, 0)
}
