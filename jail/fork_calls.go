package jail

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// rawCall is a system call as a forked worker is told to make it: integers, bytes that are
// passed by address, and the kinds of argument below.
type rawCall struct {
	Number uintptr `json:"nr"`
	Args   []any   `json:"args"`
	// Try lets the list go on when the call fails.
	Try bool `json:"try,omitempty"`
	// name is for errors, object what the call was applied to.
	name, object string
}

// resultOf is what an earlier call of the list has returned.
type resultOf struct {
	Index int `json:"result"`
}

// vector is a list of strings, as execve(2) takes.
type vector struct {
	Strings []string `json:"strings"`
}

// bpf is a filter by address, struct sock_fprog.
type bpf struct {
	Program []byte `json:"program"`
}

// Descriptors of a child, beside its standard streams and the wire.
const (
	conversationFD = 4
	stageFD        = 5
	rulesetFD      = 6
	firstForeignFD = 7
)

const cwdFD = unix.AT_FDCWD

func text(s string) []byte { return append([]byte(s), 0) }

// writeCalls writes a file of proc or of a cgroup; first is the place in the list of the
// first of them.
func writeCalls(first int, path, value string) []rawCall {
	return []rawCall{
		{Number: unix.SYS_OPENAT, Args: []any{cwdFD, text(path), unix.O_WRONLY | unix.O_CLOEXEC, 0}, name: "open", object: path},
		{Number: unix.SYS_WRITE, Args: []any{resultOf{first}, []byte(value), len(value)}, name: "write", object: path},
		{Number: unix.SYS_CLOSE, Args: []any{resultOf{first}}, name: "close", object: path},
	}
}

// callsOf turns a step of the forked worker's into what it calls. The launcher itself does
// the witness.
func callsOf(p *plan.Plan, st plan.Step) ([]rawCall, error) {
	one := func(name, object string, number uintptr, args ...any) []rawCall {
		return []rawCall{{Number: number, Args: args, name: name, object: object}}
	}
	switch st.Op {
	case plan.OpCloseFDs:
		return one("close_range", "inherited descriptors", unix.SYS_CLOSE_RANGE, firstForeignFD, ^uint32(0), 0), nil
	case plan.OpJoin:
		calls := one("setns", "stage", unix.SYS_SETNS, stageFD, p.Namespaces)
		if p.SwitchIDs {
			calls = append(calls, rawCall{Number: unix.SYS_SETGROUPS, Args: []any{0, 0}, name: "setgroups", object: "none"})
		}
		gid, uid := p.IDs.InnerGID, p.IDs.InnerUID
		return append(calls,
			rawCall{Number: unix.SYS_SETRESGID, Args: []any{gid, gid, gid}, name: "setresgid", object: strconv.Itoa(gid)},
			rawCall{Number: unix.SYS_SETRESUID, Args: []any{uid, uid, uid}, name: "setresuid", object: strconv.Itoa(uid)},
			rawCall{Number: unix.SYS_UMASK, Args: []any{0o022}, name: "umask"}), nil
	case plan.OpRlimit:
		// The worker's are inherited from here.
		var now unix.Rlimit
		if err := unix.Getrlimit(int(st.Num), &now); err != nil {
			return nil, fmt.Errorf("getrlimit %s: %w", st.Names[0], err)
		}
		limit := binary.NativeEndian.AppendUint64(nil, min(st.Soft, now.Max))
		limit = binary.NativeEndian.AppendUint64(limit, min(st.Hard, now.Max))
		return one("prlimit64", st.Names[0], unix.SYS_PRLIMIT64, 0, st.Num, limit, 0), nil
	case plan.OpKeyring:
		calls := one("keyctl", "session keyring", unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0)
		calls[0].Try = true // a Linux without CONFIG_KEYS has none; the stage has found out
		return calls, nil
	case plan.OpDropCaps:
		return dropCalls()
	case plan.OpNoNewPrivs:
		return one("prctl PR_SET_NO_NEW_PRIVS", "worker", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), nil
	case plan.OpDumpable:
		return one("prctl PR_SET_DUMPABLE", "worker", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0), nil
	case plan.OpLandlock:
		return one("landlock_restrict_self", "worker", unix.SYS_LANDLOCK_RESTRICT_SELF, rulesetFD, 0), nil
	case plan.OpObserve:
		return one("seccomp", st.Path, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uint64(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|waitKillable), bpf{machine(p.Observer)}), nil
	case plan.OpSeccomp:
		return one("seccomp", st.Path, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, bpf{machine(p.Programs[st.Slot])}), nil
	}
	return nil, fmt.Errorf("step %s: not one of a forked worker", st.Op)
}

// waitKillable is SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, Linux 5.19.
const waitKillable = 1 << 5

// dropCalls empties all sets of capabilities; see the stage's dropCaps.
func dropCalls() ([]rawCall, error) {
	body, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return nil, err
	}
	last, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil || last < 0 || last > 63 {
		return nil, fmt.Errorf("/proc/sys/kernel/cap_last_cap: %q is no capability", body)
	}
	var calls []rawCall
	for c := 0; c <= last; c++ {
		calls = append(calls, rawCall{Number: unix.SYS_PRCTL, Args: []any{unix.PR_CAPBSET_DROP, c, 0, 0, 0}, name: "prctl PR_CAPBSET_DROP", object: strconv.Itoa(c)})
	}
	header := binary.NativeEndian.AppendUint32(nil, unix.LINUX_CAPABILITY_VERSION_3)
	return append(calls,
		rawCall{Number: unix.SYS_PRCTL, Args: []any{unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0}, name: "prctl PR_CAP_AMBIENT", object: "ambient set"},
		rawCall{Number: unix.SYS_CAPSET, Args: []any{append(header, 0, 0, 0, 0), make([]byte, 24)}, name: "capset", object: "none"}), nil
}

// machine is a program as Linux reads it, an array of struct sock_filter.
func machine(program []plan.Insn) []byte {
	var b []byte
	for _, in := range program {
		b = binary.NativeEndian.AppendUint16(b, in.Code)
		b = append(b, in.Jt, in.Jf)
		b = binary.NativeEndian.AppendUint32(b, in.K)
	}
	return b
}

// actCall is what the witness calls for an act, nil for one that is looked at otherwise.
// Each is what the stage does for the same act.
func actCall(c plan.Check) *rawCall {
	try := func(number uintptr, args ...any) *rawCall {
		return &rawCall{Number: number, Args: args, Try: true, name: c.Act, object: c.Arg}
	}
	switch c.Act {
	case "create":
		return try(unix.SYS_OPENAT, cwdFD, text(c.Arg), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	case "tell":
		return try(unix.SYS_MKDIRAT, cwdFD, text(c.Arg), 0o700)
	case "unshare-user":
		return try(unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	case "clone3":
		return try(unix.SYS_CLONE3, 0, 0)
	case "mount":
		return try(unix.SYS_MOUNT, text("none"), text("/tmp"), text("tmpfs"), 0, 0)
	case "remount":
		return try(unix.SYS_MOUNT, text("none"), text(c.Arg), 0, unix.MS_REMOUNT|unix.MS_BIND, 0)
	case "socket-alg":
		return try(unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET, 0)
	case "bpf":
		return try(unix.SYS_BPF, 0, 0, 0)
	case "io_uring":
		return try(unix.SYS_IO_URING_SETUP, 1, 0)
	case "keyctl":
		return try(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, -3, 0)
	case "ptrace":
		return try(unix.SYS_PTRACE, syscall.PTRACE_ATTACH, 1<<30, 0, 0)
	case "setuid":
		return try(unix.SYS_SETUID, 0)
	case "execute":
		return try(unix.SYS_EXECVE, text(c.Arg), vector{[]string{c.Arg}}, vector{nil})
	}
	return nil
}
