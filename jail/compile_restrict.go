package jail

import (
	"strconv"

	"cellblock/jail/landlock"
	"cellblock/jail/plan"
)

// identity is what the worker takes itself for.
func (c *compiler) identity() {
	if c.spec.Network == NetNone {
		c.stage(plan.Step{Op: plan.OpLoopback, Reason: "servers and clients within the jail find each other"})
	}
	if c.spec.Hostname != "" {
		c.stage(plan.Step{Op: plan.OpHostname, Data: c.spec.Hostname, Reason: "the host's name stays the host's"})
	}
}

// restrict gives up everything. The order matters: the bounding set needs a
// capability, Landlock needs no_new_privs, and the filter refuses most of the
// calls before it.
func (c *compiler) restrict() {
	c.rlimits()
	c.stage(plan.Step{Op: plan.OpKeyring, Reason: "keys of the launcher's session stay out of reach"})
	c.stage(plan.Step{Op: plan.OpOOM, Num: 500, Reason: "when the host runs out of memory the jail goes first"})
	c.stage(plan.Step{Op: plan.OpCloseFDs, Reason: "no descriptor of the launcher's or of the set-up lives on"})
	c.stage(plan.Step{Op: plan.OpDropCaps, Names: []string{"bounding", "ambient", "inheritable", "permitted", "effective"},
		Reason: "no capability in any set, and none to be had again"})
	c.stage(plan.Step{Op: plan.OpNoNewPrivs, Reason: "no program can give rights: set-id bits and file capabilities mean nothing"})
	c.stage(plan.Step{Op: plan.OpUndumpable, Reason: "the worker cannot read or trace its pid 1"})
	c.landlock()
	for i, program := range c.spec.Seccomp.Programs {
		if c.host.Lacks(Seccomp) {
			break
		}
		insns := make([]plan.Insn, len(program))
		for j, in := range program {
			insns[j] = plan.Insn{Code: in.Code, Jt: in.JT, Jf: in.JF, K: in.K}
		}
		c.plan.Programs = append(c.plan.Programs, insns)
		c.plan.SeccompName, c.plan.SeccompDigest = c.spec.Seccomp.Name, c.spec.Seccomp.Digest
		c.stage(plan.Step{Op: plan.OpSeccomp, Slot: i,
			Path:   c.spec.Seccomp.Name + " " + strconv.Itoa(i+1) + "/" + strconv.Itoa(len(c.spec.Seccomp.Programs)) + ", " + strconv.Itoa(len(insns)) + " instructions",
			Reason: "system calls that the profile does not allow fail, on all threads; the newest program's refusal counts"})
	}
}

func (c *compiler) landlock() {
	abi := c.host.LandlockABI
	if abi == 0 {
		return
	}
	step := plan.Step{Op: plan.OpLandlock, Scoped: landlock.Scoped(abi),
		Reason: "abstract sockets and signals end at the jail"}
	if step.Scoped != 0 {
		step.Names = append(step.Names, "scope abstract-sockets, signals")
	}
	if c.spec.Tree == TreeReadOnly {
		step.Handled = landlock.Handled(abi)
		step.Names = append(step.Names, "writing only beneath the paths below")
		step.Reason = "a second wall behind the read-only mounts, and " + step.Reason
		paths := []string{"/tmp", "/dev"}
		for _, b := range c.spec.Binds {
			if b.Write && !below(b.Target, "/tmp") {
				paths = append(paths, b.Target)
			}
		}
		rights := landlock.Writable(abi)
		for _, p := range paths {
			step.Rules = append(step.Rules, plan.Rule{Path: p, Rights: rights, Names: landlock.Names(rights)})
		}
		// Names of threads, out-of-memory scores and the like are files of proc.
		rights = landlock.WriteFile | landlock.Truncate&step.Handled
		step.Rules = append(step.Rules, plan.Rule{Path: "/proc", Rights: rights, Names: landlock.Names(rights)})
	}
	if step.Handled == 0 && step.Scoped == 0 {
		return
	}
	c.stage(step)
}

// refused are the answers that a refused call may give.
var refused = []string{"EPERM", "EACCES", "ENOSYS"}

// witness lists the forbidden acts to try, each with the answers that prove it
// forbidden. An act stands here only if something in this plan forbids it.
func (c *compiler) witness() {
	check := func(name, act, arg, reason string, want ...string) {
		c.plan.Witness = append(c.plan.Witness, plan.Check{Name: name, Act: act, Arg: arg, Want: want, Reason: reason})
	}
	ids := c.plan.IDs
	four := func(id int) string {
		n := strconv.Itoa(id)
		return n + " " + n + " " + n + " " + n
	}
	const zero = "0000000000000000"
	check("uid", "status", "Uid", "the worker is the planned user", four(ids.InnerUID))
	check("gid", "status", "Gid", "the worker is in the planned group", four(ids.InnerGID))
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		check(set, "status", set, "no capability in this set", zero)
	}
	check("no-new-privs", "status", "NoNewPrivs", "no program can give rights", "1")
	check("pids", "pids", "", "only the stage is in view", "1")
	for _, ns := range []string{"user", "mnt", "pid", "ipc", "uts", "cgroup", "net"} {
		want := "other"
		if ns == "net" && c.spec.Network == NetHost {
			want = "same"
		}
		check("namespace-"+ns, "namespace", ns, "compared with the launcher's by the launcher", want)
	}
	check("setuid", "setuid", "", "root cannot be had", append([]string{"EINVAL"}, refused...)...)
	check("mount", "mount", "", "nothing can be mounted", refused...)
	if c.spec.Tree == TreeReadOnly {
		check("write-tree", "create", "/.cellblock-witness", "the tree is read-only", "EROFS")
		check("remount", "remount", "/", "and stays so", refused...)
		if c.host.LandlockABI > 0 {
			check("write-landlock", "create", "/run/cellblock/witness", "Landlock refuses where the mount would not", "EACCES")
		}
	}
	if c.spec.Network == NetNone {
		check("connect", "connect", "", "no way out of the network namespace", "ENETUNREACH", "EPERM", "EACCES")
	}
	if len(c.plan.Programs) > 0 {
		check("seccomp", "status", "Seccomp", "a filter is installed", "2")
		check("clone3", "clone3", "", "its flags cannot be filtered, so libc must fall back to clone", "ENOSYS")
		for _, act := range []string{"unshare-user", "bpf", "io_uring", "keyctl", "ptrace"} {
			check(act, act, "", "the filter refuses it", refused...)
		}
		check("socket-alg", "socket-alg", "", "this family writes to the page cache of read-only files (CVE-2026-31431)", append([]string{"EAFNOSUPPORT"}, refused...)...)
	}
	c.stage(plan.Step{Op: plan.OpWitness,
		Reason: "the jailed thread itself tries what is forbidden; the launcher compares and says go, or ends the start"})
}
