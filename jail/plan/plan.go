package plan

// Version is the version of the plan's layout. Stage and launcher come from one
// build and refuse to talk when it differs.
const Version = 5

// Side says which process carries out a step.
type Side string

const (
	// Launcher is the operator's process, outside of every namespace.
	Launcher Side = "launcher"
	// Stage is the child: pid 1 of the jail until the worker is born, and its
	// reaper afterwards.
	Stage Side = "stage"
	// Fork is the worker that a warm parent forks, where the plan has OpFork: it goes
	// by these steps itself, as the launcher tells it to, before any foreign code.
	Fork Side = "fork"
)

// Op is the operation of a step. The stage has one function for each.
type Op string

// Operations of the launcher.
const (
	// OpCgroup makes the control group Path and writes the limits in Limits.
	OpCgroup Op = "cgroup"
	// OpRoom attaches a directory below Path, after the start.
	OpRoom Op = "room"
	// OpSpawn clones the stage into the namespaces in Names.
	OpSpawn Op = "spawn"
	// OpFork has a warm parent fork the worker.
	OpFork Op = "fork"
)

// Operations of either side.
const (
	// OpClone makes a detached copy of the mount tree at Source, gives it the
	// attributes in Flags (MOUNT_ATTR_*) and keeps it as slot Slot. With Map it
	// is an id-mapped copy, which only the launcher can make.
	OpClone Op = "clone"
	// OpOverlay makes a detached overlay whose lower layer is the directory Source
	// and whose changes go to the directory Data, in which "upper" and "work" lie,
	// with the attributes in Flags, and keeps it as slot Slot. With Map both layers
	// are id-mapped, which only the launcher can do. Where an Optional one cannot be
	// made the launcher keeps a read-only copy, and the stage leaves what is there,
	// which must be read-only: the witness tells.
	OpOverlay Op = "overlay"
)

// Operations of the worker that is forked, beside those of the stage from OpRlimit to
// OpWitness.
const (
	// OpJoin enters the namespaces of the stage and takes the ids of Plan.IDs.
	OpJoin Op = "join"
	// OpDumpable gives the worker's files in proc to its own user again, which changing
	// ids has taken (prctl(2), PR_SET_DUMPABLE).
	OpDumpable Op = "dumpable"
)

// Operations of the stage.
const (
	// OpEmpty makes a new, detached tmpfs with the options in Data and the
	// attributes in Flags, and keeps it as slot Slot.
	OpEmpty Op = "empty"
	// OpPrivate stops mount events between the host and the jail.
	OpPrivate Op = "private"
	// OpRoot attaches slot Slot over / and pivots into it.
	OpRoot Op = "root"
	// OpAttach attaches slot Slot at Path.
	OpAttach Op = "attach"
	// OpMount mounts a new file system of type FSType at Path (flags MS_*).
	OpMount Op = "mount"
	// OpMkdir makes the private directory Path with mode Mode.
	OpMkdir Op = "mkdir"
	// OpSymlink makes Path point to Source.
	OpSymlink Op = "symlink"
	// OpFile puts Data at Path, read-only, with mode Mode or 0444.
	OpFile Op = "file"
	// OpHide covers Path with nothing: a directory with one that cannot be listed, a
	// file with one that cannot be read.
	OpHide Op = "hide"
	// OpRestrict puts a copy of the tree at Path over itself, with the attributes
	// in Flags added. Its name can then be neither renamed nor removed.
	OpRestrict Op = "restrict"
	// OpSeal makes the mount at Path itself read-only, with Mode where one is given.
	OpSeal Op = "seal"
	// OpDetach lets go of the host's root.
	OpDetach Op = "detach"
	// OpLoopback brings the interface lo up.
	OpLoopback Op = "loopback"
	// OpLocal makes every address of the network Path, which is Data in hexadecimal and
	// Num bits of it, an address of lo.
	OpLocal Op = "local"
	// OpSocket makes a socket of the kind Names[0], "tcp", which listens, or "udp", binds
	// it to address Path, which is Data in hexadecimal, and port Num, and passes it to
	// the launcher.
	OpSocket Op = "socket"
	// OpHostname sets the host name to Data.
	OpHostname Op = "hostname"
	// OpRlimit sets resource Num (Names[0]) to Soft and Hard.
	OpRlimit Op = "rlimit"
	// OpKeyring joins a new, anonymous session keyring.
	OpKeyring Op = "keyring"
	// OpOOM raises the stage's oom_score_adj to Num at least; all of the jail inherit it.
	OpOOM Op = "oom"
	// OpCloseFDs closes every descriptor but the named ones.
	OpCloseFDs Op = "closefds"
	// OpUndumpable makes the stage's memory and descriptors unreadable.
	OpUndumpable Op = "undumpable"
	// OpDropCaps empties all five capability sets.
	OpDropCaps Op = "dropcaps"
	// OpNoNewPrivs sets no_new_privs.
	OpNoNewPrivs Op = "nonewprivs"
	// OpLandlock restricts the stage by Landlock: Handled, Scoped, Rules.
	OpLandlock Op = "landlock"
	// OpObserve installs Plan.Observer on this thread, from which the worker is born, and passes its listener to the launcher.
	OpObserve Op = "observe"
	// OpSeccomp installs program Slot of Plan.Programs on all threads.
	OpSeccomp Op = "seccomp"
	// OpWitness tries Plan.Witness and reports; the launcher compares.
	OpWitness Op = "witness"
	// OpWorker starts Plan.Worker.
	OpWorker Op = "worker"
	// OpAdopt stays as pid 1 of a worker that is not the stage's child.
	OpAdopt Op = "adopt"
)

// IDMap says whose files belong to the jail's id in an id-mapped copy.
type IDMap struct {
	// FSUID and FSGID own the files on disk.
	FSUID int `json:"fsuid"`
	FSGID int `json:"fsgid"`
	// UID and GID own them inside.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Required ends the start where the file system cannot be id-mapped;
	// otherwise the copy is made without a map and the report says so.
	Required bool `json:"required,omitempty"`
	// Swap lets the files of UID and GID on disk belong to FSUID and FSGID, instead
	// of to nobody.
	Swap bool `json:"swap,omitempty"`
}

// Rule allows Landlock rights beneath a path.
type Rule struct {
	Path   string   `json:"path"`
	Rights uint64   `json:"rights"`
	Names  []string `json:"names,omitempty"`
}

// Step is one operation with its operands. Which operands an operation reads
// stands beside its constant.
type Step struct {
	Op     Op     `json:"op"`
	Side   Side   `json:"side"`
	Path   string `json:"path,omitempty"`
	Source string `json:"source,omitempty"`
	FSType string `json:"fstype,omitempty"`
	Data   string `json:"data,omitempty"`
	Flags  uint64 `json:"flags,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
	Slot   int    `json:"slot,omitempty"`
	Num    uint64 `json:"num,omitempty"`
	Soft   uint64 `json:"soft,omitempty"`
	Hard   uint64 `json:"hard,omitempty"`
	// Recursive takes the mounts below Source too.
	Recursive bool `json:"recursive,omitempty"`
	// Optional skips the step when its path does not exist.
	Optional bool `json:"optional,omitempty"`
	// Mkdir makes Path first, which must lie in a private file system.
	Mkdir bool `json:"mkdir,omitempty"`
	// NoLinks refuses a symbolic link in any component of Source or Path.
	NoLinks bool     `json:"nolinks,omitempty"`
	Map     *IDMap   `json:"map,omitempty"`
	Names   []string `json:"names,omitempty"`
	Handled uint64   `json:"handled,omitempty"`
	Scoped  uint64   `json:"scoped,omitempty"`
	Rules   []Rule   `json:"rules,omitempty"`
	Limits  []Limit  `json:"limits,omitempty"`
	Reason  string   `json:"reason"`
}

// Limit is a limit and what keeps it. Value is in bytes or in pieces.
type Limit struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
	By    string `json:"by"`
}

// Insn is one instruction of classic BPF, as in linux/filter.h.
type Insn struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// Check is a forbidden act that the witness tries, and the results that prove
// that it is forbidden.
type Check struct {
	// Name is unique within a plan.
	Name string `json:"name"`
	// Act is what is tried; package stage knows a closed set.
	Act string `json:"act"`
	// Arg is the act's operand, such as a path.
	Arg string `json:"arg,omitempty"`
	// Want lists the results that pass: names of errnos or a value.
	Want   []string `json:"want"`
	Reason string   `json:"reason"`
	// Forked is tried by the worker that a warm parent has forked, or looked for there
	// by the launcher, and not by the stage.
	Forked bool `json:"forked,omitempty"`
}

// Degradation is a protection that this host cannot give and that the spec
// allowed to be missing.
type Degradation struct {
	Feature string `json:"feature"`
	Why     string `json:"why"`
	Remedy  string `json:"remedy,omitempty"`
}

// Worker is the program that runs in the jail.
type Worker struct {
	Argv []string `json:"argv"`
	// Env is complete. It may hold secrets: neither JSON nor String show values.
	Env []string `json:"-"`
	Dir string   `json:"dir"`
}

// IDs are the ids of the worker: Inner as it sees them, Outer as the host does.
type IDs struct {
	InnerUID int `json:"innerUid"`
	InnerGID int `json:"innerGid"`
	OuterUID int `json:"outerUid"`
	OuterGID int `json:"outerGid"`
}

// Plan is everything that Start does, in order.
type Plan struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	// SpecDigest is the SHA-256 of the spec that this plan was compiled from.
	SpecDigest string `json:"specDigest"`
	IDs        IDs    `json:"ids"`
	// SwitchIDs is set where the launcher is privileged and the stage leaves
	// its id for IDs.Outer.
	SwitchIDs bool `json:"switchIds"`
	// Forked has the worker forked by a warm parent; see OpFork.
	Forked bool `json:"forked,omitempty"`
	// Namespaces are the CLONE_NEW* flags of the spawn step.
	Namespaces uint64 `json:"namespaces"`
	Steps      []Step `json:"steps"`
	// SeccompName and SeccompDigest name the profile the programs come from.
	SeccompName   string        `json:"seccompName,omitempty"`
	SeccompDigest string        `json:"seccompDigest,omitempty"`
	Programs      [][]Insn      `json:"-"`
	Observer      []Insn        `json:"-"` // tells the launcher of calls; refuses none
	Witness       []Check       `json:"witness"`
	Worker        Worker        `json:"worker"`
	Limits        []Limit       `json:"limits"`
	Degraded      []Degradation `json:"degraded,omitempty"`
}

// StepsOf returns the steps of one side, in order.
func (p *Plan) StepsOf(side Side) []Step {
	var out []Step
	for _, s := range p.Steps {
		if s.Side == side {
			out = append(out, s)
		}
	}
	return out
}
