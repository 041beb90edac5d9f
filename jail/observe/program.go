package observe

import (
	"runtime"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// What open(2) can change something by. __O_TMPFILE is the bit of O_TMPFILE that
// is not O_DIRECTORY's.
const (
	tmpfileBit = unix.O_TMPFILE &^ unix.O_DIRECTORY
	writing    = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | tmpfileBit
)

// Offsets in struct seccomp_data (seccomp(2)); both architectures are little-endian.
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArg  = 16
)

var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Program is the filter whose listener [Listen] takes, for this machine's
// architecture. It allows everything: what it does not tell of by itself, and
// what it tells of when the listener says so. Calls of other architectures pass,
// since another filter refuses them. With reads it also tells of files and
// directories opened for reading alone, which are so many that it slows programs
// down noticeably.
func Program(reads bool) []plan.Insn {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		bits  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	allow, tell := insn(ret, 0, 0, unix.SECCOMP_RET_ALLOW), insn(ret, 0, 0, unix.SECCOMP_RET_USER_NOTIF)
	low := func(arg int) plan.Insn { return insn(load, 0, 0, uint32(offsetArg+8*arg)) }
	high := func(arg int) plan.Insn { return insn(load, 0, 0, uint32(offsetArg+8*arg+4)) }
	p := []plan.Insn{
		insn(load, 0, 0, offsetArch),
		insn(equal, 1, 0, auditArch[runtime.GOARCH]),
		allow,
		insn(load, 0, 0, offsetNr),
	}
	// when adds a block that is entered for one call and returns.
	when := func(nr int, block ...plan.Insn) {
		p = append(p, insn(equal, 0, uint8(len(block)), uint32(nr)))
		p = append(p, block...)
	}
	for _, o := range openers {
		if reads {
			when(o.nr, tell)
			continue
		}
		when(o.nr, low(o.flags), insn(bits, 0, 1, writing), tell, allow)
	}
	// Code of a file: most mappings are of none, or not to be executed.
	when(unix.SYS_MMAP, low(2), insn(bits, 0, 3, unix.PROT_EXEC), low(3), insn(bits, 1, 0, unix.MAP_ANONYMOUS), tell, allow)
	for _, nr := range []int{unix.SYS_MPROTECT, unix.SYS_PKEY_MPROTECT} {
		when(nr, low(2), insn(bits, 0, 1, unix.PROT_EXEC), tell, allow)
	}
	when(unix.SYS_IOCTL, low(1), insn(equal, 2, 0, unix.FS_IOC_SETFLAGS), insn(equal, 1, 0, fsSetVersion), insn(equal, 0, 1, fsSetXattr), tell, allow)
	when(unix.SYS_SENDTO, low(4), insn(equal, 0, 2, 0), high(4), insn(equal, 1, 0, 0), tell, allow)
	for _, nr := range watched {
		when(nr, tell)
	}
	return append(p, allow)
}

func insn(code uint16, jt, jf uint8, k uint32) plan.Insn {
	return plan.Insn{Code: code, Jt: jt, Jf: jf, K: k}
}
