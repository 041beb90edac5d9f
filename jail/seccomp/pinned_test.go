package seccomp

import (
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// pin is one call whose answer is part of what the profiles promise.
type pin struct {
	call string
	args [6]uint64
	want uint32
}

const high = 1 << 32 // a bit that Linux does not read of an int

var (
	eperm  = refuse(unix.EPERM)
	enosys = refuse(unix.ENOSYS)
)

// pinnedBoth holds in both profiles on both architectures.
func pinnedBoth() []pin {
	pins := []pin{
		{"clone3", [6]uint64{}, enosys},
		{"openat2", [6]uint64{}, enosys},
		{"clone", [6]uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID}, retAllow}, // pthread_create
		{"clone", [6]uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, retAllow},                                                                                                                                   // posix_spawn
		{"clone", [6]uint64{unix.CLONE_CHILD_CLEARTID | unix.CLONE_CHILD_SETTID | uint64(unix.SIGCHLD)}, retAllow},                                                                                                                // fork
		{"seccomp", [6]uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER}, eperm},
		{"seccomp", [6]uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | high}, eperm},
		{"personality", [6]uint64{0}, retAllow},
		{"personality", [6]uint64{0xffffffff}, retAllow},
		{"personality", [6]uint64{0x0040000}, eperm}, // ADDR_NO_RANDOMIZE
		{"personality", [6]uint64{0x0400000}, eperm}, // READ_IMPLIES_EXEC
		{"personality", [6]uint64{0x0400000 | high}, eperm},
		{"personality", [6]uint64{8}, eperm}, // PER_LINUX32
		{"ioctl", [6]uint64{0, unix.TCGETS}, retAllow},
		{"ioctl", [6]uint64{0, unix.TIOCGWINSZ}, retAllow},
		{"ioctl", [6]uint64{0, unix.TIOCSCTTY}, retAllow},
		{"memfd_create", [6]uint64{}, retAllow},
		{"prctl", [6]uint64{unix.PR_SET_NAME}, retAllow},
		{"prctl", [6]uint64{unix.PR_SET_PDEATHSIG}, retAllow},
		{"prctl", [6]uint64{unix.PR_SET_NO_NEW_PRIVS, 1}, retAllow},
		{"prctl", [6]uint64{unix.PR_SET_MM}, eperm},
		{"prctl", [6]uint64{unix.PR_SET_PTRACER, 1<<64 - 1}, eperm},
		{"prctl", [6]uint64{unix.PR_SET_MM | high}, eperm},
		{"prctl", [6]uint64{unix.PR_CAPBSET_DROP}, eperm},
		{"prctl", [6]uint64{unix.PR_SET_SYSCALL_USER_DISPATCH}, eperm},
		{"fcntl", [6]uint64{0, unix.F_SETLEASE}, eperm},
		{"fcntl", [6]uint64{0, unix.F_SETLK}, retAllow},
		{"mknodat", [6]uint64{0, 0, unix.S_IFIFO | 0o600}, retAllow},
		{"clone", [6]uint64{unix.CLONE_PARENT | uint64(unix.SIGCHLD)}, eperm},
		{"clone", [6]uint64{unix.CLONE_PARENT | uint64(unix.SIGCHLD) | high}, eperm},
		{"mknodat", [6]uint64{0, 0, unix.S_IFSOCK | 0o600}, retAllow},
		{"mknodat", [6]uint64{0, 0, unix.S_IFREG | 0o600}, retAllow},
		{"mknodat", [6]uint64{0, 0, unix.S_IFCHR | 0o600}, eperm},
		{"mknodat", [6]uint64{0, 0, unix.S_IFBLK | 0o600 | high}, eperm},
		{"fchmodat", [6]uint64{0, 0, 0o755}, retAllow},
		{"fchmodat", [6]uint64{0, 0, 0o1777}, retAllow},
		{"fchmodat", [6]uint64{0, 0, 0o4755}, eperm},
		{"fchmod", [6]uint64{0, 0o4755}, eperm},
		{"openat", [6]uint64{0, 0, unix.O_CREAT | unix.O_WRONLY, 0o666}, retAllow},
		{"openat", [6]uint64{0, 0, unix.O_CREAT | unix.O_WRONLY, 0o4755}, eperm},
		{"openat", [6]uint64{0, 0, unix.O_CREAT | unix.O_WRONLY, 0o2755}, eperm},
		{"openat", [6]uint64{0, 0, unix.O_RDONLY, 0o4755}, retAllow}, // no file is made, the mode is not read
	}
	for _, flag := range []uint64{unix.CLONE_NEWNS, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWCGROUP, unix.CLONE_NEWTIME} {
		pins = append(pins,
			pin{"clone", [6]uint64{flag}, eperm},
			pin{"clone", [6]uint64{flag | uint64(unix.SIGCHLD) | unix.CLONE_VM}, eperm},
			pin{"clone", [6]uint64{flag | 0xdead<<32}, eperm},
			pin{"unshare", [6]uint64{flag}, eperm})
	}
	for _, request := range []uint64{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD, unix.TIOCCONS, 0xb701, 0xb702} {
		pins = append(pins, pin{"ioctl", [6]uint64{0, request}, eperm}, pin{"ioctl", [6]uint64{0, request | high}, eperm})
	}
	for _, call := range []string{
		"unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig",
		"fsmount", "fspick", "mount_setattr", "open_by_handle_at", "name_to_handle_at", "ptrace", "process_vm_readv",
		"process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp", "migrate_pages", "move_pages",
		"bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "init_module", "finit_module",
		"delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd",
		"syslog", "sethostname", "setdomainname", "vhangup", "nfsservctl", "settimeofday", "clock_settime", "clock_adjtime",
		"adjtimex", "fanotify_init", "fanotify_mark", "lookup_dcookie", "memfd_secret", "remap_file_pages", "sched_setattr",
	} {
		pins = append(pins, pin{call, [6]uint64{}, eperm})
	}
	for _, call := range []string{"io_uring_setup", "io_uring_enter", "io_uring_register", "io_setup", "io_submit"} {
		pins = append(pins, pin{call, [6]uint64{}, enosys})
	}
	return append(pins, pinnedSockets()...)
}

func pinnedSockets() []pin {
	const stream, dgram, cloexec = unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	pins := []pin{
		{"socketpair", [6]uint64{unix.AF_UNIX, stream | cloexec}, retAllow},
		{"socketpair", [6]uint64{unix.AF_TIPC, stream}, eperm},
		{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, retAllow},
		{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW | cloexec, unix.NETLINK_ROUTE}, retAllow},
		{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, eperm},
		{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, eperm},
		{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, eperm},
		{"socket", [6]uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, eperm},
		{"socket", [6]uint64{unix.AF_ALG | high, unix.SOCK_SEQPACKET}, eperm},
		{"socket", [6]uint64{unix.AF_VSOCK, stream}, eperm}, // the second refused value of one argument
	}
	for family := uint64(0); family < 64; family++ {
		switch family {
		case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK:
			continue
		}
		pins = append(pins, pin{"socket", [6]uint64{family, stream}, eperm}, pin{"socket", [6]uint64{family, dgram | cloexec}, eperm})
	}
	for _, family := range []uint64{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range []uint64{0, unix.IPPROTO_TCP} {
			pins = append(pins, pin{"socket", [6]uint64{family, stream | cloexec, protocol}, retAllow})
		}
		for _, protocol := range []uint64{0, unix.IPPROTO_UDP} {
			pins = append(pins, pin{"socket", [6]uint64{family, dgram | cloexec, protocol}, retAllow})
		}
		for _, protocol := range []uint64{unix.IPPROTO_MPTCP, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP, 256 /* SMC */, unix.IPPROTO_MPTCP | high} {
			pins = append(pins, pin{"socket", [6]uint64{family, stream, protocol}, eperm})
		}
		for _, kind := range []uint64{unix.SOCK_RAW, unix.SOCK_RDM, unix.SOCK_SEQPACKET, unix.SOCK_DCCP, unix.SOCK_PACKET} {
			pins = append(pins, pin{"socket", [6]uint64{family, kind, 0}, eperm})
		}
		pins = append(pins, pin{"socket", [6]uint64{family, dgram, unix.IPPROTO_UDPLITE}, eperm})
	}
	const tcpULP, udpEncap = 31, 100
	return append(pins,
		pin{"setsockopt", [6]uint64{3, unix.SOL_SOCKET, unix.SO_REUSEADDR}, retAllow},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_TCP, unix.TCP_NODELAY}, retAllow},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}, retAllow},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_TCP, tcpULP}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_TCP | high, tcpULP | high}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_UDP, udpEncap}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_UDPLITE, udpEncap}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_TCP, unix.TCP_REPAIR}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_TCP, unix.TCP_MD5SIG}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_BPF}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_IP, unix.IP_XFRM_POLICY}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.IPPROTO_IP, 64 /* IPT_SO_SET_REPLACE */}, eperm},
		pin{"setsockopt", [6]uint64{3, unix.SOL_ALG, 1}, eperm},
	)
}

// pinnedAMD64 are the older names that only amd64 has.
func pinnedAMD64() []pin {
	return []pin{
		{"chmod", [6]uint64{0, 0o4755}, eperm},
		{"open", [6]uint64{0, unix.O_CREAT, 0o4755}, eperm},
		{"open", [6]uint64{0, unix.O_CREAT, 0o644}, retAllow},
		{"creat", [6]uint64{0, 0o4755}, eperm},
		{"mknod", [6]uint64{0, unix.S_IFIFO | 0o600}, retAllow},
		{"mknod", [6]uint64{0, unix.S_IFBLK | 0o600}, eperm},
		{"iopl", [6]uint64{3}, eperm},
		{"ioperm", [6]uint64{}, eperm},
		{"modify_ldt", [6]uint64{}, eperm},
		{"uselib", [6]uint64{}, eperm},
		{"fork", [6]uint64{}, retAllow},
		{"vfork", [6]uint64{}, retAllow},
	}
}

// pinnedOnly are where the two profiles differ.
var pinnedOnly = map[string][]pin{
	"compatible": {
		{"execveat", [6]uint64{}, retAllow},
		{"splice", [6]uint64{}, retAllow},
		{"shmget", [6]uint64{}, retAllow},
		{"setuid", [6]uint64{}, retAllow},
		{"seccomp", [6]uint64{unix.SECCOMP_SET_MODE_FILTER}, retAllow},
		{"landlock_create_ruleset", [6]uint64{}, retAllow},
		{"sched_setscheduler", [6]uint64{0, unix.SCHED_NORMAL}, retAllow},
		{"sched_setscheduler", [6]uint64{0, unix.SCHED_FIFO}, eperm},
		{"sched_setscheduler", [6]uint64{0, unix.SCHED_RR | unix.SCHED_RESET_ON_FORK}, eperm},
		{"ioprio_set", [6]uint64{1, 0, 2 << 13}, retAllow},
		{"ioprio_set", [6]uint64{1, 0, 1 << 13}, eperm},
		{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, retAllow},
		{"fchmod", [6]uint64{0, 0o2755}, retAllow},
	},
	"strict": {
		{"execveat", [6]uint64{}, enosys},
		{"splice", [6]uint64{}, eperm},
		{"vmsplice", [6]uint64{}, eperm},
		{"shmget", [6]uint64{}, eperm},
		{"mq_open", [6]uint64{}, eperm},
		{"setgroups", [6]uint64{}, eperm},
		{"capset", [6]uint64{}, eperm},
		{"seccomp", [6]uint64{unix.SECCOMP_SET_MODE_FILTER}, eperm},
		{"sched_setscheduler", [6]uint64{0, unix.SCHED_FIFO}, eperm},
		{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, eperm},
		{"ioctl", [6]uint64{0, 0x89f0 /* SIOCDEVPRIVATE */}, eperm},
		{"fchmod", [6]uint64{0, 0o2755}, eperm},
	},
}

func TestPinnedAnswers(t *testing.T) {
	for _, name := range sourceNames(t) {
		for _, arch := range bothArches {
			m := machineOf(t, precompiled(t, name, arch))
			pins := append(pinnedBoth(), pinnedOnly[name]...)
			if arch == "amd64" {
				pins = append(pins, pinnedAMD64()...)
			}
			target, err := libseccomp.GetArchFromString(arch)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pins {
				nr, err := libseccomp.GetSyscallFromNameByArch(p.call, target)
				if err != nil || nr < 0 {
					t.Errorf("%s: no such call on %s", p.call, arch)
					continue
				}
				if got := m.answer(t, uint32(nr), p.args); got != p.want {
					t.Errorf("%s on %s: %s %#x: %s, want %s", name, arch, p.call, p.args, show(got), show(p.want))
				}
			}
		}
	}
}
