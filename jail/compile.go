package jail

import (
	"path"
	"strconv"
	"strings"
	"syscall"

	"cellblock/jail/plan"
)

// compiler gathers the plan. It is made for one call of Compile.
type compiler struct {
	spec  Spec
	host  Features
	plan  *plan.Plan
	slots int
	// deferred are copied trees that wait for their place.
	deferred []attached
	// restricting is where the steps begin by which the stage gives everything up.
	restricting int
}

// Compile turns an intent into the steps for a host with these features. It is
// pure: the same spec and features give the same plan, and nothing is read,
// made or started. Errors are *SpecError and *MissingFeatureError.
func Compile(spec Spec, host Features) (*plan.Plan, error) {
	c := &compiler{spec: spec, host: host, plan: &plan.Plan{Version: plan.Version, Name: spec.Name}}
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := c.features(); err != nil {
		return nil, err
	}
	c.unshadowed()
	c.plan.SpecDigest = spec.Digest()
	c.ids()
	c.limits()
	c.spawn()
	c.trees()
	c.ownMounts()
	c.cover()
	c.identity()
	c.restrict()
	c.witness()
	c.plan.Worker = plan.Worker{Argv: spec.Argv, Env: spec.Env, Dir: spec.Dir}
	if spec.Forked {
		c.forked()
	} else {
		c.stage(plan.Step{Op: plan.OpWorker, Path: spec.Argv[0],
			Reason: "the worker is born from the restricted thread, in a session of its own, with its named descriptors and no others"})
	}
	c.room()
	if c.slots > maxSlots {
		return nil, &SpecError{"mounts", strconv.Itoa(c.slots), "more than " + strconv.Itoa(maxSlots) + " trees to pass on: bind fewer paths"}
	}
	return c.plan, nil
}

// maxSlots is below SCM_MAX_FD (253), the most descriptors one message carries.
const maxSlots = 250

func (c *compiler) stage(s plan.Step) {
	s.Side = plan.Stage
	c.plan.Steps = append(c.plan.Steps, s)
}

func (c *compiler) launcher(s plan.Step) {
	s.Side = plan.Launcher
	c.plan.Steps = append(c.plan.Steps, s)
}

// check refuses what no host can do, so that no step fails for a reason that
// the spec already shows.
func (c *compiler) check() error {
	s := &c.spec
	if s.Name == "" {
		return &SpecError{"name", `""`, "empty: give the jail a name"}
	}
	if len(s.Argv) == 0 || !path.IsAbs(s.Argv[0]) {
		return &SpecError{"command", strings.Join(s.Argv, " "), "the first word must be an absolute path"}
	}
	if s.Tree != TreeReadOnly && s.Tree != TreeWritable && s.Tree != TreeShadow {
		return &SpecError{"tree", string(s.Tree), `want "read-only", "writable" or "shadow"`}
	}
	if s.Network != NetNone && s.Network != NetHost {
		return &SpecError{"network", string(s.Network), `want "none" or "host"`}
	}
	if err := c.checkSockets(); err != nil {
		return err
	}
	paths := map[string]string{"directory": s.Dir}
	for _, b := range s.Binds {
		paths["bind source "+b.Source], paths["bind target "+b.Target] = b.Source, b.Target
	}
	for _, h := range s.Hide {
		paths["hidden path "+h.Path] = h.Path
	}
	for _, g := range s.Guards {
		paths["guarded path "+g.Path] = g.Path
	}
	for _, g := range s.Grants {
		paths["grant "+g.Path] = g.Path
	}
	for _, l := range s.Links {
		paths["link "+l.Path] = l.Path
	}
	for _, f := range s.Files {
		paths["file "+f.Path] = f.Path
	}
	for _, d := range s.Dirs {
		paths["private directory "+d.Path] = d.Path
	}
	for _, s := range s.Shadow {
		paths["shadowed directory "+s.Path], paths["layer of "+s.Path] = s.Path, s.Layer
	}
	if s.Room != "" {
		paths["room"] = s.Room
	}
	for what, p := range paths {
		if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
			return &SpecError{what, strconv.Quote(p), "not a clean absolute path"}
		}
	}
	for _, text := range append(append([]string{s.Hostname}, s.Argv...), s.Env...) {
		if strings.ContainsRune(text, 0) {
			return &SpecError{"text", strconv.Quote(text), "holds a zero byte"}
		}
	}
	if err := c.checkShadow(); err != nil {
		return err
	}
	if err := c.checkRoom(); err != nil {
		return err
	}
	return c.checkPlaces()
}

// own are the places that the jail mounts itself, and that a bind may lie in
// but not cover.
var own = []string{"/tmp", "/run", "/dev", "/dev/shm", "/proc", "/sys"}

// private are those of them that something can be made in.
var private = []string{"/tmp", "/run", "/dev/shm"}

func (c *compiler) checkPlaces() error {
	for _, b := range c.spec.Binds {
		for _, o := range own {
			if below(o, b.Target) {
				return &SpecError{"bind target", b.Target, "would cover the jail's own " + o + ": choose a directory below it or elsewhere"}
			}
		}
		for _, o := range []string{"/proc", "/sys"} {
			if below(b.Target, o) {
				return &SpecError{"bind target", b.Target, "lies in the jail's own " + o + ": choose another place"}
			}
		}
		if below(b.Target, "/dev") && !below(b.Target, "/dev/shm") {
			return &SpecError{"bind target", b.Target, "lies in the jail's own /dev: choose another place"}
		}
	}
	for _, d := range c.spec.Dirs {
		if !inAny(d.Path, private) {
			return &SpecError{"private directory", d.Path, "must lie below /tmp, /run or /dev/shm"}
		}
	}
	return nil
}

// below reports whether p is dir or lies in it.
func below(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

func inAny(p string, dirs []string) bool {
	for _, d := range dirs {
		if below(p, d) {
			return true
		}
	}
	return false
}

// features refuses a host that cannot keep what the spec asks for, and notes
// what may be missing. An answer of "could not tell" goes on: Start finds out.
func (c *compiler) features() error {
	need := []Feature{UserNamespace, MountNamespace, PIDNamespace, IPCNamespace, UTSNamespace, CgroupNamespace,
		FreshProc, MountSetattr, MemfdExec, PIDFD, CloseRange, Seccomp, Landlock}
	if c.spec.Network == NetNone {
		need = append(need, NetworkNamespace)
	}
	if c.spec.Tree == TreeShadow {
		need = append(need, Overlay)
	}
	if c.spec.Observe {
		need = append(need, SeccompNotify)
	}
	for _, f := range need {
		found := c.host.Get(f)
		if !found.No() {
			continue
		}
		if !c.spec.optional(f) || !canDegrade[f] {
			return &MissingFeatureError{f, found.Why, found.Remedy}
		}
		c.degrade(f, found.Why, found.Remedy)
	}
	if len(c.spec.Seccomp.Programs) == 0 && !c.host.Lacks(Seccomp) {
		if !c.spec.optional(Seccomp) {
			return &SpecError{"seccomp", `""`, "no filter given: load a profile, or list seccomp as optional"}
		}
		c.degrade(Seccomp, "no filter was given", "choose a profile with a seccomp filter")
	}
	if c.host.LandlockABI == 0 {
		// A part of what a path allows has no second mechanism.
		what := ""
		for _, g := range c.spec.Grants {
			if c.spec.Tree == TreeReadOnly && !(g.Modify && g.Create && g.Remove) && (g.Modify || g.Create || g.Remove) {
				what = "some of the changes alone are allowed beneath " + g.Path
			}
		}
		if c.spec.ExecListed {
			what = "programs are executed from a list"
		}
		if what != "" {
			return &MissingFeatureError{Landlock, what + ", and there is no Landlock here", remedies[Landlock]}
		}
	}
	for _, f := range c.spec.Required {
		if found := c.host.Get(f); !found.Yes() {
			return &MissingFeatureError{f, found.Why, found.Remedy}
		}
	}
	return nil
}

// canDegrade lists what a jail can do without and still be one.
var canDegrade = map[Feature]bool{Landlock: true, Seccomp: true, SeccompNotify: true}

func (c *compiler) degrade(f Feature, why, remedy string) {
	c.plan.Degraded = append(c.plan.Degraded, plan.Degradation{Feature: string(f), Why: why, Remedy: remedy})
}

func (c *compiler) ids() {
	uid, gid := c.spec.IDs.UID, c.spec.IDs.GID
	if uid == 0 {
		uid = DefaultID
	}
	if gid == 0 {
		gid = DefaultID
	}
	ids := plan.IDs{InnerUID: uid, InnerGID: gid, OuterUID: uid, OuterGID: gid}
	if c.host.Privileged {
		c.plan.SwitchIDs = true
	} else {
		// A single-id map needs no right at all, but can only name the
		// launcher's own ids. Root of a surrounding container is not root inside.
		ids.OuterUID, ids.OuterGID = c.host.UID, c.host.GID
		if c.host.UID != 0 {
			ids.InnerUID = c.host.UID
		}
		if c.host.GID != 0 {
			ids.InnerGID = c.host.GID
		}
	}
	c.plan.IDs = ids
}

func (c *compiler) spawn() {
	flags := uint64(syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
		syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP)
	names := []string{"user", "mount", "pid", "ipc", "uts", "cgroup"}
	if c.spec.Network == NetNone {
		flags |= syscall.CLONE_NEWNET
		names = append(names, "net")
	}
	c.plan.Namespaces = flags
	c.launcher(plan.Step{Op: plan.OpSpawn, Names: names,
		Reason: "one clone makes the stage in all namespaces and in its cgroup at once; the stage dies with the launcher"})
	c.launcher(plan.Step{Op: plan.OpOOM, Num: oomScore, Reason: "when the host runs out of memory the jail goes first; by the launcher, which may be able to make it final"})
}
