// Package landlock holds the names and numbers of Landlock's access rights and
// says which of them a jail handles at each ABI. It makes no system call: the
// stage applies what Compile put into the plan.
//
// A jail's rules are about writing, and about executing where programs are
// listed. Reading stays unhandled, because every handled right costs a walk up
// the tree at each open, and because what may not be read is not in the tree.
//
// # Limitations
//
// No ABI up to 9 mediates chmod, chown, utime and extended attributes: the
// read-only mounts do. TCP rules are not used, since they do not cover MPTCP,
// UDP or raw sockets: the network namespace does.
package landlock

// Access rights to files, linux/landlock.h.
const (
	Execute    uint64 = 1 << 0
	WriteFile  uint64 = 1 << 1
	RemoveDir  uint64 = 1 << 4
	RemoveFile uint64 = 1 << 5
	MakeChar   uint64 = 1 << 6
	MakeDir    uint64 = 1 << 7
	MakeReg    uint64 = 1 << 8
	MakeSock   uint64 = 1 << 9
	MakeFifo   uint64 = 1 << 10
	MakeBlock  uint64 = 1 << 11
	MakeSym    uint64 = 1 << 12
	Refer      uint64 = 1 << 13 // ABI 2
	Truncate   uint64 = 1 << 14 // ABI 3
	IoctlDev   uint64 = 1 << 15 // ABI 5
)

// Scopes, ABI 6.
const (
	ScopeAbstractSocket uint64 = 1 << 0
	ScopeSignal         uint64 = 1 << 1
)

var names = []struct {
	right uint64
	abi   int
	name  string
}{
	{Execute, 1, "exec"}, {WriteFile, 1, "write"}, {RemoveDir, 1, "rmdir"}, {RemoveFile, 1, "unlink"}, {MakeChar, 1, "mkchar"},
	{MakeDir, 1, "mkdir"}, {MakeReg, 1, "create"}, {MakeSock, 1, "mksock"}, {MakeFifo, 1, "mkfifo"},
	{MakeBlock, 1, "mkblock"}, {MakeSym, 1, "symlink"}, {Refer, 2, "refer"}, {Truncate, 3, "truncate"},
	{IoctlDev, 5, "ioctl-dev"},
}

// Handled returns every write-class right that this ABI knows.
func Handled(abi int) uint64 {
	var set uint64
	for _, n := range names {
		if abi >= n.abi && n.right != Execute {
			set |= n.right
		}
	}
	return set
}

// Parts returns the rights that change the content of what exists, that make
// names, and that take them away. Moving between directories (Refer) belongs to
// the latter two. The making of devices belongs to none.
func Parts(abi int, modify, create, remove bool) uint64 {
	var set uint64
	if modify {
		set |= WriteFile | Truncate | IoctlDev
	}
	if create {
		set |= MakeDir | MakeReg | MakeSock | MakeFifo | MakeSym | Refer
	}
	if remove {
		set |= RemoveDir | RemoveFile | Refer
	}
	return set & Handled(abi)
}

// Writable returns the rights of a directory that may be written: all handled
// ones but the making of devices.
func Writable(abi int) uint64 { return Handled(abi) &^ (MakeChar | MakeBlock) }

// Scoped returns the scopes that this ABI knows.
func Scoped(abi int) uint64 {
	if abi < 6 {
		return 0
	}
	return ScopeAbstractSocket | ScopeSignal
}

// Names spells a set of rights, in the order of linux/landlock.h.
func Names(set uint64) []string {
	var out []string
	for _, n := range names {
		if set&n.right != 0 {
			out = append(out, n.name)
		}
	}
	return out
}
