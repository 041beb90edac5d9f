package jail

import (
	"net/netip"
	"slices"
	"strconv"

	"cellblock/jail/landlock"
	"cellblock/jail/observe"
	"cellblock/jail/plan"
)

// identity is what the worker takes itself for.
func (c *compiler) identity() {
	if c.spec.Network == NetNone {
		c.stage(plan.Step{Op: plan.OpLoopback, Reason: "servers and clients within the jail find each other"})
	}
	c.local()
	c.sockets()
	if c.spec.Hostname != "" {
		c.stage(plan.Step{Op: plan.OpHostname, Data: c.spec.Hostname, Reason: "the host's name stays the host's"})
	}
}

// restrict gives up everything. The order matters: the bounding set needs a
// capability, Landlock needs no_new_privs, and the filter refuses most of the
// calls before it.
func (c *compiler) restrict() {
	c.restricting = len(c.plan.Steps)
	c.rlimits()
	c.stage(plan.Step{Op: plan.OpKeyring, Reason: "keys of the launcher's session stay out of reach"})
	c.stage(plan.Step{Op: plan.OpCloseFDs, Reason: "no descriptor of the launcher's or of the set-up lives on"})
	c.stage(plan.Step{Op: plan.OpDropCaps, Names: []string{"bounding", "ambient", "inheritable", "permitted", "effective"},
		Reason: "no capability in any set, and none to be had again"})
	c.stage(plan.Step{Op: plan.OpNoNewPrivs, Reason: "no program can give rights: set-id bits and file capabilities mean nothing"})
	c.stage(plan.Step{Op: plan.OpUndumpable, Reason: "the worker cannot read or trace its pid 1"})
	c.landlock()
	if !c.spec.Forked {
		c.observe() // else nothing that runs here is to be told of
	}
	c.refuse()
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
		c.stage(plan.Step{Op: plan.OpSeccomp, Slot: len(c.plan.Programs) - 1,
			Path:   c.spec.Seccomp.Name + " " + strconv.Itoa(i+1) + "/" + strconv.Itoa(len(c.spec.Seccomp.Programs)) + ", " + strconv.Itoa(len(insns)) + " instructions",
			Reason: "system calls that the profile does not allow fail, on all threads; the newest program's refusal counts"})
	}
}

// observed reports whether the launcher is told of the worker's calls.
func (c *compiler) observed() bool { return c.spec.Observe && !c.host.Lacks(SeccompNotify) }

// observe comes before the filter, which refuses listeners, and after all else: what
// is told of has to be answered.
func (c *compiler) observe() {
	if !c.observed() {
		return
	}
	program := observe.Program(c.spec.ObserveReads)
	c.plan.Observer = program
	what := "changes, programs and connections"
	if c.spec.ObserveReads {
		what = "reads, " + what
	}
	c.stage(plan.Step{Op: plan.OpObserve, Path: strconv.Itoa(len(program)) + " instructions",
		Reason: "the launcher is told of " + what + " before they come about, and lets them go on"})
}

// toldPath is where the witness makes a call for the launcher to be told of; proc(5)
// takes no directories.
const toldPath = "/proc/.cellblock-witness"

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
	var paths []string
	rights := map[string]uint64{}
	add := func(path string, set uint64) {
		if _, ok := rights[path]; !ok {
			paths = append(paths, path)
		}
		rights[path] |= set & step.Handled
	}
	if c.spec.Tree == TreeReadOnly {
		step.Handled |= landlock.Handled(abi)
		step.Names = append(step.Names, "writing only beneath the paths below")
		step.Reason = "a second wall behind the read-only mounts, and " + step.Reason
	}
	if c.spec.ExecListed {
		step.Handled |= landlock.Execute
		step.Names = append(step.Names, "executing only what is below")
		step.Reason = "programs are executed from a list, and " + step.Reason
	}
	if c.spec.Tree == TreeReadOnly {
		add("/tmp", landlock.Writable(abi))
		add("/dev", landlock.Writable(abi))
		for _, b := range c.spec.Binds {
			if b.Write && !below(b.Target, "/tmp") && !c.granted(b.Target) {
				add(b.Target, landlock.Writable(abi))
			}
		}
		if c.spec.Room != "" {
			// Linux asks the directories above a mount point, not what is mounted there.
			add(c.spec.Room, landlock.Writable(abi))
		}
	}
	for _, g := range c.spec.Grants {
		set := landlock.Parts(abi, g.Modify, g.Create, g.Remove)
		if g.Exec {
			set |= landlock.Execute
		}
		if set&step.Handled != 0 {
			add(g.Path, set)
		}
	}
	if c.spec.Tree == TreeReadOnly {
		// Names of threads, out-of-memory scores and the like are files of proc.
		add("/proc", landlock.WriteFile|landlock.Truncate)
	}
	for _, p := range paths {
		step.Rules = append(step.Rules, plan.Rule{Path: p, Rights: rights[p], Names: landlock.Names(rights[p])})
	}
	if step.Handled == 0 && step.Scoped == 0 {
		return
	}
	c.stage(step)
}

// granted reports whether a grant speaks of the changes at a bind's target.
func (c *compiler) granted(target string) bool {
	for _, g := range c.spec.Grants {
		if g.Path == target && (g.Modify || g.Create || g.Remove || !g.Exec) {
			return true
		}
	}
	return false
}

// refused are the answers that a refused call may give.
var refused = []string{"EPERM", "EACCES", "ENOSYS"}

// fourTimes is an id as proc(5) shows it: real, effective, saved, of files.
func fourTimes(id int) string {
	n := strconv.Itoa(id)
	return n + " " + n + " " + n + " " + n
}

// witness lists the forbidden acts to try, each with the answers that prove it
// forbidden. An act stands here only if something in this plan forbids it.
func (c *compiler) witness() {
	check := func(name, act, arg, reason string, want ...string) {
		c.plan.Witness = append(c.plan.Witness, plan.Check{Name: name, Act: act, Arg: arg, Want: want, Reason: reason})
	}
	ids := c.plan.IDs
	const zero = "0000000000000000"
	check("uid", "status", "Uid", "the worker is the planned user", fourTimes(ids.InnerUID))
	check("gid", "status", "Gid", "the worker is in the planned group", fourTimes(ids.InnerGID))
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
	if c.spec.Room != "" && c.spec.Tree == TreeReadOnly {
		check("room", "create", c.spec.Room+"/.cellblock-witness", "beside the directory that is attached later nothing can be made", "EROFS")
	}
	c.witnessShadow(check)
	// What is not there, or out of the user's reach, is no way in.
	absent := []string{"ENOENT", "ENOTDIR", "EACCES", "ELOOP"}
	for _, h := range c.spec.Hide {
		want := []string{"yes"}
		if !h.Inside {
			want = append(want, absent...)
		}
		check("hidden "+h.Path, "covered", h.Path, "nothing is there but the cover", want...)
	}
	for _, g := range c.spec.Guards {
		want := []string{"yes"}
		if !g.Inside {
			want = append(want, absent...)
		}
		if g.ReadOnly {
			check("read-only "+g.Path, "read-only", g.Path, "the mount refuses changes", want...)
		}
		if g.NoExec {
			check("no-exec "+g.Path, "no-exec", g.Path, "the mount refuses programs", want...)
		}
	}
	if c.spec.ExecListed {
		check("exec-list", "execute", unlisted, "it is on no list; without Landlock it would be no program (ENOEXEC)", "EACCES")
	}
	if c.spec.Network == NetNone {
		if !slices.ContainsFunc(c.spec.Local, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr("192.0.2.1")) }) {
			check("connect", "connect", "", "no way out of the network namespace", "ENETUNREACH", "EPERM", "EACCES")
		}
		check("routes", "routes", "", "no interface but lo leads anywhere", "lo")
	}
	if c.observed() && !c.spec.Forked {
		check("told", "tell", toldPath, "the launcher is told of changes", "told")
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
