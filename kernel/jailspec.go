package kernel

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"cellblock/jail"
	"cellblock/jail/plan"
	"cellblock/jail/seccomp"
	"cellblock/policy"
	"cellblock/profiles"
	"cellblock/pyruntime"
)

// This file, jailrules.go and layer.go alone turn one policy, one profile and the facts
// of a session into a jail.Spec. Others that speak of both policy and jail only tell of
// what came of it: watch.go, info.go, policycheck.go.

// profileOf reads the session's profile and the seccomp filter that it names.
func (s *Session) profileOf() (profiles.Profile, seccomp.Filter, error) {
	if known, ok := knownProfiles.Load(s.opts.Profile); ok {
		return known.(knownProfile).profile, known.(knownProfile).filter, nil
	}
	profile, err := profiles.Get(s.opts.Profile)
	if err != nil {
		return profile, seccomp.Filter{}, err
	}
	document, err := profiles.Seccomp(profile.Seccomp.Profile)
	if err != nil {
		return profile, seccomp.Filter{}, err
	}
	filter, err := seccomp.Load(profile.Seccomp.Profile, document)
	if err == nil {
		knownProfiles.Store(s.opts.Profile, knownProfile{profile, filter})
	}
	return profile, filter, err
}

// knownProfiles are those that a session has asked for; they come with the product.
var knownProfiles sync.Map // name → knownProfile

type knownProfile struct {
	profile profiles.Profile
	filter  seccomp.Filter
}

// jailTier returns how workers of this session are started in a jail.
func (s *Session) jailTier() (func(context.Context, launch) (process, error), error) {
	profile, filter, err := s.profileOf()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, l launch) (process, error) {
		spec, err := s.jailSpec(profile, filter, l)
		if err != nil {
			return nil, err
		}
		if s.stocked != "" {
			spec = inStock(spec, s.stocked, s.dir)
		}
		spec.Forked = s.parent != nil
		p, err := jail.Compile(spec, jail.Probe())
		if err != nil {
			return nil, err
		}
		started, err := jail.Start(ctx, p, jail.StartOptions{
			Wire: l.wire, Stdout: l.stdout, Stderr: l.stderr, Log: s.opts.Log, Told: l.told,
			Parent: s.parent, ParentSource: l.seen})
		if err != nil {
			return nil, err
		}
		if l.outlet != nil {
			l.outlet.observed = len(p.Observer) > 0
		}
		if err := l.outlet.serve(started.Sockets()); err != nil {
			started.Kill()
			<-started.Done()
			return nil, err
		}
		return &jailed{Process: started, plan: p}, nil
	}, nil
}

// Plan returns the plan by which a session with these options starts here.
func Plan(opts Options) (*plan.Plan, error) { return PlanFor(opts, jail.Probe()) }

// PlanFor returns the plan by which a session with these options would start on
// a host with these features. Nothing is started or made; the temp directory in
// it is a placeholder.
func PlanFor(opts Options, host jail.Features) (*plan.Plan, error) {
	opts.Tier = TierJail
	s, err := newSession(opts)
	if err != nil {
		return nil, err
	}
	profile, filter, err := s.profileOf()
	if err != nil {
		return nil, err
	}
	python, err := interpreter(s.opts.PythonBin, s.places())
	if err != nil {
		return nil, err
	}
	temp := filepath.Join(os.TempDir(), "pi-py-kernel-0")
	source := filepath.Join(temp, "runtime")
	spec, err := s.jailSpec(profile, filter, launch{
		argv: pyruntime.Command(python, source, wireNumber), env: s.environment(), dir: s.dir,
		temp: temp, source: source, interpreter: python, skillRoots: s.opts.SkillRoots})
	if err != nil {
		return nil, err
	}
	return jail.Compile(spec, host)
}

// hostname is what a session takes its host for: the real one is not its business.
const hostname = "cellblock"

func (s *Session) jailSpec(profile profiles.Profile, filter seccomp.Filter, l launch) (jail.Spec, error) {
	limits := s.policy.Limits
	spec := jail.Spec{
		Name: s.name, Argv: l.argv, Env: l.env, Dir: l.dir,
		Tree: jail.TreeWritable, Network: jail.NetHost, Hostname: hostname, Seccomp: filter,
		Limits: jail.Limits{MemoryBytes: limits.MemoryBytes, Tasks: limits.Tasks, OpenFiles: limits.OpenFiles,
			FileSizeBytes: limits.FileSizeBytes, CPUSeconds: limits.CPUSeconds, TmpBytes: limits.TmpBytes},
		IDs:   jail.IDs{UID: s.opts.HostUID, GID: s.opts.HostGID},
		Binds: []jail.Bind{ownBind(l.temp, "full outputs, which a cell can read")},
		Dirs:  []jail.Dir{{Path: "/tmp/home", Mode: 0o700, Reason: "a home of the session's own: caches and settings can be written"}},
	}
	if !policy.Within(l.temp, l.source) {
		bind := ownBind(filepath.Join(l.temp, "runtime"), "the worker's source, read-only")
		bind.Source = l.source
		spec.Binds = append(spec.Binds, bind)
	}
	if s.policy.WriteDefault.Enforced {
		spec.Tree = jail.TreeReadOnly
	}
	if s.shadowed() {
		s.shadowTree(&spec)
	}
	spec.Observe = s.policy.Mode != policy.Off
	spec.ObserveReads = spec.Observe && s.policy.TellsReads()
	if s.policy.Network.Enforced {
		spec.Network = jail.NetNone
	}
	if s.hasOutlet() {
		spec.Local = directFor(s.policy.Network).local
	}
	for _, socket := range s.outletSockets() {
		spec.Sockets = append(spec.Sockets, jail.Socket{Network: socket.network, Addr: socket.addr, Reason: socket.reason})
	}
	for _, o := range profile.Optional {
		spec.Optional = append(spec.Optional, jail.Feature(o.Feature))
	}
	if err := s.pathRules(&spec, l); err != nil {
		return jail.Spec{}, err
	}
	for _, root := range l.skillRoots {
		if real, err := filepath.EvalSymlinks(root); err == nil {
			spec.Binds = append(spec.Binds, ownBind(real, "skills, read-only"))
		}
	}
	covered := []string{"/tmp", "/run", "/dev"}
	for _, h := range spec.Hide {
		covered = append(covered, h.Path)
	}
	for _, path := range interpreterPaths(l.interpreter, covered) {
		spec.Binds = append(spec.Binds, ownBind(path, "the interpreter, read-only"))
	}
	spec.Files = append(append(spec.Files, s.opts.ownFiles()...), s.resolver()...)
	return spec, nil
}

func ownBind(path, reason string) jail.Bind {
	return jail.Bind{Source: path, Target: path, OwnerUID: os.Geteuid(), OwnerGID: os.Getegid(), Reason: reason}
}

// workerIDs are the host's ids that a worker runs as.
func (o Options) workerIDs() (uid, gid int) {
	if os.Geteuid() != 0 {
		return os.Geteuid(), os.Getegid()
	}
	uid = o.HostUID
	if uid == 0 {
		uid = jail.DefaultID
	}
	gid = o.HostGID
	if gid == 0 {
		gid = uid
	}
	return uid, gid
}

// ownFiles are files of the host's that a session sees in a version of its own.
func (o Options) ownFiles() []jail.File {
	// An address of its own, as Debian gives one: the way back from 127.0.0.1 is localhost.
	return append(o.accounts(), with("/etc/hosts", "127.0.1.1 "+hostname+"\n", "the session's host name has an address"))
}

// ownResolver has names asked for where the launcher answers.
func ownResolver() jail.File {
	text := fmt.Sprintf("nameserver %s\noptions timeout:2 attempts:1\n", inside)
	return jail.File{Path: "/etc/resolv.conf", Content: []byte(text), Optional: true, Reason: "names are the launcher's to answer for"}
}

// sealedFiles are the rules about them: they cannot be changed in any mode.
func (o Options) sealedFiles(ownNetwork bool) (rules []policy.Rule) {
	files := o.ownFiles()
	if ownNetwork {
		files = append(files, ownResolver())
	}
	for _, f := range files {
		if real, err := filepath.EvalSymlinks(f.Path); err == nil {
			rules = append(rules, policy.Rule{ID: "ground.file", Path: real, Access: policy.AccessWrite, Enforced: true,
				Reason: "the session sees a version of its own: " + f.Reason})
		}
	}
	return rules
}

// accounts give the worker's ids their names where they have none: much software
// asks who it is. The files alone count: a directory service is out of reach inside.
func (o Options) accounts() (files []jail.File) {
	uid, gid := o.workerIDs()
	if !named("/etc/passwd", uid) {
		files = append(files, with("/etc/passwd", fmt.Sprintf("session:x:%d:%d:session:/tmp/home:/bin/sh\n", uid, gid), "the worker's id has a name"))
	}
	if !named("/etc/group", gid) {
		files = append(files, with("/etc/group", fmt.Sprintf("session:x:%d:\n", gid), "the worker's group has a name"))
	}
	return files
}

// named says whether an account file, passwd(5) or group(5), has a name for an id.
func named(path string, id int) bool {
	content, err := hostFile(path)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(content) {
		fields := bytes.SplitN(line, []byte(":"), 4)
		if len(fields) == 4 && string(fields[2]) == strconv.Itoa(id) {
			return true
		}
	}
	return false
}

// with is a file of the host with one line more.
func with(path, line, reason string) jail.File {
	content, err := hostFile(path)
	if err != nil {
		content = nil
	}
	content = bytes.Clone(content)
	if n := len(content); n > 0 && content[n-1] != '\n' {
		content = append(content, '\n')
	}
	return jail.File{Path: path, Content: append(content, line...), Optional: true, Reason: reason}
}

// resolver shows the list of name servers: the launcher, where it serves the session's
// network, or else the host's where that is a link to a place that is private inside,
// as systemd's resolver makes it.
func (s *Session) resolver() (files []jail.File) {
	if s.hasOutlet() {
		return []jail.File{ownResolver()}
	}
	const path = "/etc/resolv.conf"
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !(policy.Within("/run", real) || policy.Within("/tmp", real)) {
		return nil
	}
	content, err := os.ReadFile(real)
	if err != nil {
		return nil
	}
	return []jail.File{{Path: real, Content: content, Optional: true, Reason: "the host's name servers"}}
}

// jailed is a worker in a jail.
type jailed struct {
	*jail.Process
	plan *plan.Plan
	// later is what was tried after the start, when it left stock.
	later []Witness
}

func (j *jailed) Kill() { j.Process.Kill() }

func (j *jailed) Exit() exitStatus {
	e := j.Process.Wait()
	return exitStatus{Code: e.Code, Signal: e.Signal, OOM: e.OOM, TasksHit: e.TasksHit, Err: e.Err}
}

func (j *jailed) Usage() Usage {
	u := j.Process.Used()
	return Usage{CPUMs: float64(u.CPU.Microseconds()) / 1000, PeakMemoryBytes: u.MemoryPeak, Tasks: u.Tasks}
}

func (j *jailed) Standing() standing {
	report := j.Report()
	known := standing{plan: report.PlanDigest, spec: report.SpecDigest, seccomp: j.plan.SeccompDigest,
		limits: report.Limits, degraded: report.Degraded}
	for i, c := range j.plan.Witness {
		// The start has compared them: as many, in the same order, each as wanted.
		known.witness = append(known.witness, Witness{Name: c.Name, Act: c.Act, Arg: c.Arg, Got: report.Witness[i].Got, Reason: c.Reason})
	}
	known.witness = append(known.witness, j.later...)
	return known
}
