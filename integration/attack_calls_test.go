package integration

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAttacksOnLinux: system calls that no session may use, in every mode.
func TestAttacksOnLinux(t *testing.T) {
	rows := append(namespaceAttacks(), mountAttacks...)
	rows = append(rows, callAttacks...)
	if runtime.GOARCH == "amd64" {
		rows = append(rows, otherABIs...)
	}
	runAttacks(t, rows, everyMode)
}

var no = []string{"EPERM", "ENOSYS"}

func call(number int, args string) string {
	return fmt.Sprintf("verdict = in_child(raw, %d%s)", number, args)
}

// namespaceAttacks makes each kind of namespace by unshare and by clone.
func namespaceAttacks() []attack {
	var rows []attack
	for _, ns := range []struct {
		name string
		flag int
	}{
		{"user", unix.CLONE_NEWUSER}, {"mount", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP}, {"time", unix.CLONE_NEWTIME},
	} {
		where := namespaced
		if ns.name == "user" {
			where = plain
		}
		rows = append(rows, attack{name: "unshare " + ns.name, where: where, refused: no,
			code: call(unix.SYS_UNSHARE, fmt.Sprintf(", %d", ns.flag))})
		if ns.name == "time" {
			continue // shares its bits with the exit signal of clone
		}
		rows = append(rows, attack{name: "clone " + ns.name, where: where, refused: no, code: fmt.Sprintf(`
def clone():
    if raw(%d, %d | signal.SIGCHLD, 0, 0, 0, 0) == 0: os._exit(0)
verdict = in_child(clone)`, unix.SYS_CLONE, ns.flag)})
	}
	return append(rows,
		attack{name: "clone3 of any kind", refused: []string{"ENOSYS"}, code: call(435, ", 0, 0")},
		attack{name: "setns", where: namespaced, refused: no, code: fmt.Sprintf(`
verdict = in_child(lambda: raw(%d, os.open("/proc/self/ns/uts", os.O_RDONLY), 0))`, unix.SYS_SETNS)},
	)
}

var mountAttacks = []attack{
	{name: "mount tmpfs", where: namespaced, refused: no, code: call(unix.SYS_MOUNT, `, b"tmpfs", b"/mnt", b"tmpfs", 0, 0`)},
	{name: "remount the root writable", where: namespaced, refused: no, code: call(unix.SYS_MOUNT, fmt.Sprintf(`, 0, b"/", 0, %d, 0`, unix.MS_REC|unix.MS_PRIVATE))},
	{name: "umount", where: namespaced, refused: no, code: call(unix.SYS_UMOUNT2, `, b"/proc", 2`)},
	{name: "chroot", where: namespaced, refused: no, code: `verdict = in_child(os.chroot, "/")`},
	{name: "pivot_root", where: namespaced, refused: no, code: call(unix.SYS_PIVOT_ROOT, `, b"/nonexistent", b"/nonexistent"`)},
	{name: "fsopen", where: namespaced, refused: no, code: call(unix.SYS_FSOPEN, `, b"tmpfs", 0`)},
	{name: "open_tree clone", where: namespaced, refused: no, code: call(unix.SYS_OPEN_TREE, `, -100, b"/", 1`)},
	{name: "move_mount", where: namespaced, refused: no, code: call(unix.SYS_MOVE_MOUNT, `, -100, b"/nonexistent", -100, b"/mnt", 0`)},
	{name: "mount_setattr", where: namespaced, refused: no, code: call(unix.SYS_MOUNT_SETATTR, `, -100, b"/", 0, ctypes.create_string_buffer(32), 32`)},
}

// callAttacks are single calls; where the control is not "done", it is another
// errno than the refusal, which shows that the call reached Linux.
var callAttacks = []attack{
	{name: "bpf", where: asRoot, refused: no, code: call(unix.SYS_BPF, `, 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(64), 72`)},
	{name: "io_uring_setup", refused: no, code: call(unix.SYS_IO_URING_SETUP, `, 1, ctypes.create_string_buffer(256)`)},
	{name: "userfaultfd", refused: no, code: call(unix.SYS_USERFAULTFD, `, 1`)},
	{name: "perf_event_open", where: asRoot, refused: no, code: call(unix.SYS_PERF_EVENT_OPEN, `, struct.pack("IIQ", 1, 128, 0) + bytes(112), 0, -1, -1, 0`)},
	{name: "keyctl", refused: no, code: call(unix.SYS_KEYCTL, `, 0, -3, 1`)},
	{name: "add_key", refused: no, code: call(unix.SYS_ADD_KEY, `, b"user", b"canary", b"x", 1, -2`)},
	{name: "request_key", refused: no, code: call(unix.SYS_REQUEST_KEY, `, b"user", b"canary", 0, -2`)},
	{name: "ptrace itself be traced", refused: no, code: call(unix.SYS_PTRACE, `, 0, 0, 0, 0`)},
	{name: "fanotify_init", where: asRoot, refused: no, code: call(unix.SYS_FANOTIFY_INIT, `, 0, 0`)},
	{name: "open_by_handle_at", where: asRoot, refused: no, code: call(unix.SYS_OPEN_BY_HANDLE_AT, `, -100, struct.pack("Ii", 8, 1) + bytes(8), 0`)},
	{name: "quotactl", where: asRoot, refused: no, code: call(unix.SYS_QUOTACTL, `, 0x7fffff00, b"/nonexistent", 0, 0`)},
	{name: "acct", where: asRoot, refused: no, code: call(unix.SYS_ACCT, `, b"/nonexistent"`)},
	{name: "swapon", where: asRoot, refused: no, code: call(unix.SYS_SWAPON, `, b"/nonexistent", 0`)},
	{name: "swapoff", where: asRoot, refused: no, code: call(unix.SYS_SWAPOFF, `, b"/nonexistent"`)},
	{name: "reboot", where: asRoot, refused: no, code: call(unix.SYS_REBOOT, `, 0, 0, 0, 0`)},
	{name: "init_module", where: asRoot, refused: no, code: call(unix.SYS_INIT_MODULE, `, b"no module", 9, b""`)},
	{name: "finit_module", where: asRoot, refused: no, code: call(unix.SYS_FINIT_MODULE, `, -1, b"", 0`)},
	{name: "delete_module", where: asRoot, refused: no, code: call(unix.SYS_DELETE_MODULE, `, b"no_such_module", 0`)},
	{name: "kexec_load", where: asRoot, refused: no, code: call(unix.SYS_KEXEC_LOAD, `, 0, 99, 0, 0x12340000`)},
	{name: "settimeofday", where: asRoot, refused: no, code: call(unix.SYS_SETTIMEOFDAY, `, 0, 0`)},
	{name: "sethostname", where: namespaced, refused: no, code: `verdict = in_child(socket.sethostname, "elsewhere")`},
	{name: "setdomainname", where: namespaced, refused: no, code: call(unix.SYS_SETDOMAINNAME, `, b"elsewhere", 9`)},
	{name: "syslog", where: asRoot, refused: no, code: call(unix.SYS_SYSLOG, `, 10, 0, 0`)},
	{name: "personality without address randomisation", refused: no, code: call(unix.SYS_PERSONALITY, `, 0x0040000`)},
	{name: "a seccomp filter with a listener", refused: append([]string{"EACCES"}, no...), code: `
def listen():
    raw(157, 38, 1, 0, 0, 0)
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
    raw(317, 1, 8, ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(program))))
verdict = in_child(listen)`},
	{name: "setuid 0", where: namespaced, refused: []string{"EPERM", "EINVAL"}, code: `verdict = in_child(os.setuid, 0)`},
	{name: "setgroups", where: asRoot, refused: []string{"EPERM"}, code: `verdict = in_child(os.setgroups, [0])`},
	{name: "negative niceness", where: asRoot, refused: append([]string{"EACCES"}, no...), code: `verdict = in_child(os.setpriority, os.PRIO_PROCESS, 0, -5)`},
	{name: "real-time scheduling", where: asRoot, refused: no, code: `verdict = in_child(os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1))`},
	{name: "core dumps switched on", where: asRoot, refused: no, code: call(unix.SYS_PRLIMIT64, `, 0, 4, struct.pack("QQ", 1 << 30, 1 << 30), 0`)},
	{name: "a block device made in the session directory", where: asRoot, refused: no, code: `verdict = in_child(os.mknod, "dev", 0o60600, os.makedev(254, 0))`},
	{name: "a terminal's input forged", refused: no, code: `
import fcntl, pty
def forge():
    os.setsid()
    boss, worker = os.openpty()
    fcntl.ioctl(worker, 0x540E, 0)
    fcntl.ioctl(worker, 0x5412, b"x")
verdict = in_child(forge)`},
	{name: "a terminal's input forged with high bits", refused: no, code: fmt.Sprintf(`
import fcntl, pty
def forge():
    os.setsid()
    boss, worker = os.openpty()
    fcntl.ioctl(worker, 0x540E, 0)
    raw(%d, worker, 0x5412 | 1 << 32, b"x")
verdict = in_child(forge)`, unix.SYS_IOCTL)},
	{name: "a console's selection", refused: no, code: fmt.Sprintf(`
boss, worker = os.openpty()
verdict = in_child(raw, %d, worker, 0x541C, b"\x02")`, unix.SYS_IOCTL)},
}

// otherABIs are calls by the gates that 32-bit programs use. A Linux without
// the 32-bit gate answers it with SIGSEGV, inside and outside alike.
var otherABIs = []attack{
	{name: "int 0x80", refused: []string{"killed by 31", "killed by 11"}, code: `
import mmap
def gate():
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
verdict = in_child(gate)`},
	{name: "x32", refused: []string{"killed by 31"}, code: `verdict = in_child(raw, 39 | 0x40000000)
if verdict == "ENOSYS": verdict = "Linux answered"`},
}
