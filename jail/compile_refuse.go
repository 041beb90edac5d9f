package jail

import (
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// refusal refuses one call by a bit of one argument.
type refusal struct {
	nr, arg int
	bit     uint32
	set     bool // it is refused where the bit is set, else where it is not
	errno   unix.Errno
}

// mfdNoexecSeal is MFD_NOEXEC_SEAL (linux/memfd.h), Linux 6.3.
const mfdNoexecSeal = 0x8

// sealed has memory with a name be none that can be executed: no path leads to it that
// a list of programs could have, and Landlock asks for none (it passes over file systems
// that nobody can mount). Linux does the same with vm.memfd_noexec at 2, which only
// root can set. Before Linux 6.3 there is no such memory, so that all of it is refused.
var sealed = refusal{unix.SYS_MEMFD_CREATE, 1, mfdNoexecSeal, false, unix.EACCES}

// refusals are what this jail refuses beside its profile, and why.
func (c *compiler) refusals() (list []refusal, why string) {
	if c.spec.ExecListed {
		list = append(list, sealed)
		why = "programs are executed from a list: memory is none"
	}
	// Where the tree may be changed with root's rights the bit would add nothing, and a layer
	// is looked through before it goes over; directories that are shared have it.
	if c.plan.SwitchIDs && c.spec.Tree == TreeReadOnly {
		for _, r := range changesMode {
			list = append(list, refusal{r.nr, r.arg, unix.S_ISGID, true, unix.EPERM})
		}
		if why != "" {
			why += "; "
		}
		why += "files belong to root's group on the host: a program with set-group-ID would have its rights there"
	}
	return list, why
}

// refuse stacks the refusals under the profile's programs, which may refuse the call that
// installs one. What they allow is allowed by the number alone, so that Linux asks this
// program no more (seccomp_cache_prepare, Linux 5.11).
func (c *compiler) refuse() {
	list, why := c.refusals()
	if len(list) == 0 || c.host.Lacks(Seccomp) {
		return
	}
	program := refuseProgram(list)
	c.plan.Programs = append(c.plan.Programs, program)
	c.stage(plan.Step{Op: plan.OpSeccomp, Slot: len(c.plan.Programs) - 1,
		Path: "own, " + strconv.Itoa(len(program)) + " instructions", Reason: why})
}

// refuseProgram is for this machine's architecture; the profile kills others.
func refuseProgram(list []refusal) []plan.Insn {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		bits  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
		// Offsets in struct seccomp_data (seccomp(2)), little-endian.
		nr, arch, arg = 0, 4, 16
	)
	machine := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	allow := plan.Insn{Code: ret, K: unix.SECCOMP_RET_ALLOW}
	p := []plan.Insn{{Code: load, K: arch}, {Code: equal, Jt: 1, K: machine}, allow, {Code: load, K: nr}}
	for _, r := range list {
		jump := plan.Insn{Code: bits, Jf: 1, K: r.bit}
		if !r.set {
			jump = plan.Insn{Code: bits, Jt: 1, K: r.bit}
		}
		p = append(p, plan.Insn{Code: equal, Jf: 4, K: uint32(r.nr)}, plan.Insn{Code: load, K: uint32(arg + 8*r.arg)},
			jump, plan.Insn{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(r.errno)}, allow)
	}
	return append(p, allow)
}
