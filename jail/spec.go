package jail

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"

	"cellblock/jail/seccomp"
)

// TreeAccess says how the host's tree looks from inside.
type TreeAccess string

const (
	// TreeReadOnly shows the host's tree and lets nothing in it be changed.
	TreeReadOnly TreeAccess = "read-only"
	// TreeWritable leaves writing to the rights of the user on the host.
	TreeWritable TreeAccess = "writable"
	// TreeShadow shows the host's tree and keeps changes in a layer of the jail's
	// own: the directories of Spec.Shadow can be changed, what is in none of them
	// cannot. The host's files stay as they are.
	TreeShadow TreeAccess = "shadow"
)

// Network says what the worker can reach.
type Network string

const (
	// NetNone gives a network of its own with nothing but a loopback.
	NetNone Network = "none"
	// NetHost shares the host's network.
	NetHost Network = "host"
)

// Bind shows a file or a directory of the host inside.
type Bind struct {
	// Source is a path of the host; with Write set no part of it may be a
	// symbolic link.
	Source string
	// Target is where it appears.
	Target string
	// Write lets it be changed, in both kinds of tree.
	Write bool
	// NoExec keeps programs in it from being executed.
	NoExec bool
	// OwnerUID and OwnerGID own the files of Source on disk. They matter for a
	// privileged launcher: these files belong to the worker inside.
	OwnerUID, OwnerGID int
	Reason             string
}

// Hide covers a path with nothing. A path that does not exist, or that the
// worker's user cannot reach, is no error unless Inside is set.
type Hide struct {
	Path string
	// Inside says that the path lies where a session may write: it must be there,
	// and no part of it may be a symbolic link.
	Inside bool
	Reason string
}

// Guard takes something away from the tree at a path. With neither ReadOnly nor
// NoExec it takes the name alone: what has a mount on it can be neither renamed
// nor removed (rename(2), EBUSY). No part of the path may be a symbolic link.
type Guard struct {
	Path     string
	ReadOnly bool
	NoExec   bool
	// Inside says that the path lies where a session may write: it must be there.
	Inside bool
	Reason string
}

// Grant allows parts of what a path can be used for, by Landlock: in a read-only
// tree the changes beneath a writable bind, and with ExecListed executing. A
// writable bind without a grant at its own target may be changed in every way.
type Grant struct {
	Path                         string
	Modify, Create, Remove, Exec bool
	Reason                       string
}

// Link is a symbolic link that a listed tree is to have.
type Link struct {
	Path, Target string
	Reason       string
}

// File puts a read-only file of the launcher's making at a path.
type File struct {
	Path    string
	Content []byte
	// Optional skips the file where the host has nothing at the path.
	Optional bool
	Reason   string
}

// Dir makes a private directory, which must come to lie in /tmp, /run or
// /dev/shm.
type Dir struct {
	Path   string
	Mode   uint32
	Reason string
}

// Socket is a socket in the jail's own network namespace that the launcher gets.
// Nothing else leads out of that namespace: what the launcher does with who connects
// to it is the jail's whole network.
type Socket struct {
	// Network is "tcp", for a socket that listens, or "udp".
	Network string
	// Addr is what it is bound to; the zero address for all.
	Addr   netip.AddrPort
	Reason string
}

// Limits are what a jail may use. Zero means no limit.
type Limits struct {
	MemoryBytes   int64 // of all processes, private file systems included
	Tasks         int64 // processes and threads
	OpenFiles     int64 // of one process
	FileSizeBytes int64 // of one file
	CPUSeconds    int64 // of one process
	TmpBytes      int64 // of /tmp and of /dev/shm, each
}

// IDs are the host's ids that a privileged launcher runs the worker as. Zero
// means DefaultID. An ordinary user's worker keeps the user's own ids.
type IDs struct{ UID, GID int }

// DefaultID is the id of workers of a privileged launcher: above what
// distributions give to people and to system accounts, below what they give to
// dynamic users and containers.
const DefaultID = 61184

// Spec is what somebody wants of a jail; Compile turns it into a plan.
type Spec struct {
	// Name appears in cgroup names and in messages.
	Name string
	// Argv is the worker's command, with an absolute path first. Env is its
	// whole environment, Dir its working directory.
	Argv, Env []string
	Dir       string
	Tree      TreeAccess
	// Listed shows nothing of the host but the binds, instead of its tree.
	Listed bool
	// ExecListed lets nothing be executed but what a grant names. Needs Landlock.
	ExecListed bool
	Binds      []Bind
	// Shadow are the directories of a TreeShadow that can be changed, and Unshadowed
	// what stays read-only in it; see ShadowPlaces.
	Shadow     []Shadow
	Unshadowed []Unshadowed
	Hide       []Hide
	Guards     []Guard
	Grants     []Grant
	Links      []Link
	Files      []File
	Dirs       []Dir
	Network    Network
	// Local are networks of which every address is the jail's own, in the network of
	// NetNone: a socket on all addresses gets what is meant for any of them, and its
	// connections have the address that was meant.
	Local []netip.Prefix
	// Sockets are made in the network of NetNone and passed to the launcher; see
	// Process.Sockets.
	Sockets []Socket
	// Room is a directory of the host below which one more bind is attached once the jail
	// runs, see Process.Attach; empty for none. Until then, and beside it, the tree there
	// is as it is elsewhere. Landlock allows changes in the whole room, so that only
	// mounts refuse those beside the bind.
	Room string
	// Forked has the worker forked by a warm parent, StartOptions.Parent, instead of
	// executed: it shares the parent's memory until it writes to it, and its address
	// layout.
	Forked bool
	// Observe has the launcher told of the system calls that change files, execute
	// programs and connect; see StartOptions.Told. It needs SeccompNotify.
	Observe bool
	// ObserveReads has it told, besides, of what is opened for reading alone. Each
	// such call then waits for the launcher.
	ObserveReads bool
	Limits       Limits
	// Seccomp is the filter. A spec without one compiles only with Seccomp in
	// Optional.
	Seccomp  seccomp.Filter
	IDs      IDs
	Hostname string
	// Optional features degrade where they are missing; all others are errors.
	Optional []Feature
	// Required limits are an error where only a weaker mechanism can be had:
	// CgroupMemory, CgroupTasks.
	Required []Feature
}

// Digest is the SHA-256 of the spec in hexadecimal. The filter takes part by
// its own digest, file contents and environment by their bytes.
func (s Spec) Digest() string {
	filter := s.Seccomp.Digest
	s.Seccomp = seccomp.Filter{}
	body, err := json.Marshal(struct {
		Spec   Spec
		Filter string
	}{s, filter})
	if err != nil {
		// A struct of strings, numbers and bytes always marshals.
		panic(err)
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

func (s Spec) optional(f Feature) bool { return contains(s.Optional, f) }

func contains(list []Feature, f Feature) bool {
	for _, x := range list {
		if x == f {
			return true
		}
	}
	return false
}
