package integration

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAttacksOnLinux: system calls that no session may use, in every mode.
func TestAttacksOnLinux(t *testing.T) { runAttacks(t, linuxAttacks(), everyMode) }

// linuxAttacks are all of this file that concern this machine's architecture.
func linuxAttacks() []attack {
	rows := slices.Concat(namespaceAttacks(), mountAttacks, callAttacks, schedulingAttacks, tighteningAttacks)
	if runtime.GOARCH == "amd64" {
		rows = slices.Concat(rows, amd64Attacks, otherABIs())
	}
	return rows
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
		attack{name: "unshare of several at once", refused: no, code: call(unix.SYS_UNSHARE, fmt.Sprintf(", %d", unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWPID|unix.CLONE_NEWNET))},
		attack{name: "clone user with bits that Linux leaves out", refused: no, code: fmt.Sprintf(`
def clone():
    if raw(%d, %d | 1 << 40 | signal.SIGCHLD, 0, 0, 0, 0) == 0: os._exit(0)
verdict = in_child(clone)`, unix.SYS_CLONE, unix.CLONE_NEWUSER)},
		attack{name: "setns by a process's descriptor", where: namespaced, refused: no, code: fmt.Sprintf(`
verdict = in_child(lambda: raw(%d, raw(%d, os.getpid(), 0), %d))`, unix.SYS_SETNS, unix.SYS_PIDFD_OPEN, unix.CLONE_NEWUTS)},
		attack{name: "the owner of a namespace", refused: no, code: `
import fcntl
verdict = in_child(lambda: fcntl.ioctl(os.open("/proc/self/ns/uts", os.O_RDONLY), 0xb701))`},
		attack{name: "a child for the parent", refused: no, code: fmt.Sprintf(`
def sibling():
    if raw(%d, %d, 0, 0, 0, 0) == 0: os._exit(0)
verdict = in_child(sibling)`, unix.SYS_CLONE, unix.CLONE_PARENT|int(unix.SIGCHLD))},
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
	{name: "fsconfig", refused: no, code: call(unix.SYS_FSCONFIG, `, -1, 0, 0, 0, 0`)},
	{name: "fsmount", where: namespaced, refused: no, code: call(unix.SYS_FSMOUNT, `, -1, 0, 0`)},
	{name: "fspick", where: namespaced, refused: no, code: call(unix.SYS_FSPICK, `, -100, b"/proc", 0`)},
	{name: "statmount", refused: no, code: call(457, `, 0, 0, 0, 0`)},
	{name: "listmount", refused: no, code: call(458, `, 0, 0, 0, 0`)},
	{name: "open_tree_attr", refused: no, code: call(467, `, -1, b"", 0, 0, 0`)},
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
	{name: "name_to_handle_at", refused: no, code: call(unix.SYS_NAME_TO_HANDLE_AT, `, -100, b"/", struct.pack("Ii", 128, 0) + bytes(128), ctypes.create_string_buffer(8), 0`)},
	{name: "a child of its own traced", refused: no, code: fmt.Sprintf(`
def trace():
    child = os.fork()
    if child == 0: signal.pause()
    try: raw(%d, 0x4206, child, 0, 0)
    finally: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
verdict = in_child(trace)`, unix.SYS_PTRACE)},
	{name: "process_vm_readv", refused: no, code: call(unix.SYS_PROCESS_VM_READV, `, os.getpid(), 0, 0, 0, 0, 0`)},
	{name: "process_vm_writev", refused: no, code: call(unix.SYS_PROCESS_VM_WRITEV, `, os.getpid(), 0, 0, 0, 0, 0`)},
	{name: "process_madvise", refused: no, code: call(unix.SYS_PROCESS_MADVISE, `, -1, 0, 0, 0, 0`)},
	{name: "process_mrelease", refused: no, code: call(unix.SYS_PROCESS_MRELEASE, `, -1, 0`)},
	{name: "a descriptor taken from a process", refused: no, code: fmt.Sprintf(`verdict = in_child(lambda: raw(%d, raw(%d, os.getpid(), 0), 1, 0))`, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_OPEN)},
	{name: "kcmp", refused: no, code: call(unix.SYS_KCMP, `, os.getpid(), os.getpid(), 0, 0, 0`)},
	{name: "move_pages", refused: no, code: call(unix.SYS_MOVE_PAGES, `, 0, 0, 0, 0, 0, 0`)},
	{name: "migrate_pages", refused: no, code: call(unix.SYS_MIGRATE_PAGES, `, 0, 0, 0, 0`)},
	{name: "secret memory", refused: no, code: call(unix.SYS_MEMFD_SECRET, `, 1 << 20`)},
	{name: "fanotify_mark", refused: no, code: call(unix.SYS_FANOTIFY_MARK, `, -1, 1, 0, -100, 0`)},
	{name: "quotactl_fd", refused: no, code: call(unix.SYS_QUOTACTL_FD, `, -1, 0, 0, 0`)},
	{name: "kexec_file_load", where: asRoot, refused: no, code: call(unix.SYS_KEXEC_FILE_LOAD, `, -1, -1, 0, 0, 0`)},
	{name: "clock_settime", refused: no, code: call(unix.SYS_CLOCK_SETTIME, `, 0, 0`)},
	{name: "adjtimex", refused: no, code: call(unix.SYS_ADJTIMEX, `, 0`)},
	{name: "clock_adjtime", refused: no, code: call(unix.SYS_CLOCK_ADJTIME, `, 0, 0`)},
	{name: "its own memory map rewritten", where: asRoot, needs: []string{needResource}, refused: no, code: call(unix.SYS_PRCTL, `, 35, 99, 0, 0, 0`)},
	{name: "a tracer let in", refused: no, code: call(unix.SYS_PRCTL, `, 0x59616d61, -1, 0, 0, 0`)},
	{name: "a capability raised", where: asRoot, refused: no, code: call(unix.SYS_CAPSET, `, struct.pack("Ii", 0x20080522, 0), struct.pack("6I", 1 << 21, 1 << 21, 0, 0, 0, 0)`)},
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
	{name: "personality with executable data", refused: no, code: call(unix.SYS_PERSONALITY, `, 0x0400000`)},
	{name: "personality of another Linux", refused: no, code: call(unix.SYS_PERSONALITY, `, 0x0020000`)},
	{name: "personality of 32 bits", refused: no, code: call(unix.SYS_PERSONALITY, `, 8`)},
	{name: "a seccomp filter with a listener", refused: append([]string{"EACCES"}, no...), code: `
def listen():
    raw(157, 38, 1, 0, 0, 0)
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
    raw(317, 1, 8, ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(program))))
verdict = in_child(listen)`},
	{name: "setuid 0", where: namespaced, refused: []string{"EPERM", "EINVAL"}, code: `verdict = in_child(os.setuid, 0)`},
	{name: "setgid 0", where: namespaced, refused: []string{"EPERM", "EINVAL"}, code: `verdict = in_child(os.setgid, 0)`},
	{name: "setresuid to root", where: namespaced, refused: []string{"EPERM", "EINVAL"}, code: `verdict = in_child(os.setresuid, 0, 0, 0)`},
	{name: "setgroups", where: asRoot, refused: []string{"EPERM"}, code: `verdict = in_child(os.setgroups, [0])`},
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
	{name: "a terminal's line discipline", refused: no, code: `
import fcntl
boss, worker = os.openpty()
verdict = in_child(fcntl.ioctl, worker, 0x5423, struct.pack("i", 0))`},
	{name: "a console's selection", refused: no, code: fmt.Sprintf(`
boss, worker = os.openpty()
verdict = in_child(raw, %d, worker, 0x541C, b"\x02")`, unix.SYS_IOCTL)},
}

// schedulingAttacks ask for more of the processors than others get.
var schedulingAttacks = []attack{
	{name: "negative niceness", where: asRoot, refused: append([]string{"EACCES"}, no...), code: `verdict = in_child(os.setpriority, os.PRIO_PROCESS, 0, -5)`},
	{name: "real-time scheduling", where: asRoot, refused: no, code: `verdict = in_child(os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1))`},
	{name: "real-time scheduling, first come first served", where: asRoot, refused: no, code: `verdict = in_child(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))`},
	{name: "scheduling by deadlines", refused: no, code: call(unix.SYS_SCHED_SETATTR, `, 0, 0, 0`)},
	{name: "real-time input and output", where: asRoot, refused: no, code: call(unix.SYS_IOPRIO_SET, `, 1, 0, 1 << 13`)},
}

// tighteningAttacks add walls of their own, which must take none of ours away.
var tighteningAttacks = []attack{
	{name: "a host's name, behind a filter that allows everything", where: namespaced, refused: no, code: fmt.Sprintf(`
def go():
    raw(%d, 38, 1, 0, 0, 0)
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
    raw(%d, 1, 0, ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(program))))
    socket.sethostname("elsewhere")
verdict = in_child(go)`, unix.SYS_PRCTL, unix.SYS_SECCOMP)},
	{name: "a host's name, by a program that has just begun", where: namespaced, refused: no, code: `
import subprocess
said = subprocess.run([sys.executable, "-c", "import socket\ntry: socket.sethostname('elsewhere'); print('done')\nexcept OSError as problem: print({1: 'EPERM', 38: 'ENOSYS'}.get(problem.errno))"], capture_output=True, text=True)
verdict = said.stdout.strip()`},
	{name: "a host's name, by a program without a file", where: namespaced, refused: no, code: fmt.Sprintf(`
import subprocess
def go():
    program = raw(%d, b"program", 0)
    with open(sys.executable, "rb") as python: os.write(program, python.read())
    said = subprocess.run([sys.executable, "-c", "import socket; socket.sethostname('elsewhere')"], executable="/proc/self/fd/%%d" %% program, pass_fds=[program], capture_output=True)
    if said.returncode: raise OSError(errno.EPERM, "refused")
verdict = attempt(go)`, unix.SYS_MEMFD_CREATE)},
}

// amd64Attacks are calls that this architecture alone has.
var amd64Attacks = []attack{
	{name: "iopl", refused: no, code: call(172, ", 0")},
	{name: "ioperm", refused: no, code: call(173, ", 0x80, 1, 0")},
	{name: "modify_ldt", refused: no, code: call(154, ", 0, ctypes.create_string_buffer(16), 16")},
	{name: "sysfs", refused: no, code: call(139, ", 3, 0, 0")},
	{name: "ustat", refused: no, code: call(136, ", -1, 0")},
}

// otherABIs are calls by the gates that 32-bit programs use. A Linux without
// the 32-bit gate answers it with SIGSEGV, inside and outside alike.
func otherABIs() []attack {
	var rows []attack
	for _, c := range []struct {
		name   string
		number byte
	}{{"getpid", 20}, {"socketcall", 102}, {"ipc", 117}, {"ptrace", 26}} {
		rows = append(rows, attack{name: "int 0x80 for " + c.name, refused: []string{"killed by 31", "killed by 11"}, code: fmt.Sprintf(`
import mmap
def gate():
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x%02x\x00\x00\x00\xcd\x80\xc3")
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
verdict = in_child(gate)`, c.number)})
	}
	for _, c := range []struct {
		name   string
		number int
	}{{"getpid", 39}, {"openat", 257}, {"socket", 41}, {"ptrace", 521}} {
		rows = append(rows, attack{name: "x32 for " + c.name, refused: []string{"killed by 31"}, code: fmt.Sprintf(`
verdict = in_child(raw, %d | 0x40000000)
if verdict == "ENOSYS": verdict = "Linux answered"`, c.number)})
	}
	return rows
}
