package observe

import (
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Event is one system call that a thread of the jail has asked for.
type Event struct {
	TID  int    // of the thread, as the launcher sees it
	Call string // such as openat
	// Ops are what it will do if Linux lets it: usually one, two for a rename. A call
	// that cannot come about has none and is not told of, unless a name that it needs
	// is not there: see Op.Absent.
	Ops []Op

	waits  func() bool
	refuse func()
	tree   *tree
}

// Refuse has the call fail with EACCES instead of going on. Whoever is told may ask for it
// until it returns. It is no boundary for a program that means to get around it: one that
// changes what the call's pointers lead to after the look is refused, or not, for another
// path than the one it reaches.
func (e Event) Refuse() { e.refuse() }

// Unguarded says whether an operation is one that no read-only mount keeps from coming
// about: reaching a Unix socket, and writing to a FIFO, of which Linux looks at neither
// mount nor file system (fs/namei.c, sb_permission and do_open). What the launcher cannot
// look at, nobody in the jail can open.
func (e Event) Unguarded(op Op) bool {
	if op.Kind != Write || op.Creates || op.Absent {
		return op.Kind == Socket
	}
	kind, _ := e.tree.kindAt(op.Path)
	return kind == unix.S_IFIFO
}

// Waits says whether the thread still waits for an answer. One that has ended may have
// left its number to another, so that what was read is not of this call: whoever keeps
// an event asks first.
func (e Event) Waits() bool { return e.waits() }

// Program is the executable of the thread's process; empty when it has gone.
func (e Event) Program() string {
	path, err := os.Readlink("/proc/" + strconv.Itoa(e.TID) + "/exe")
	if err != nil {
		return ""
	}
	return path
}

// PID is the number on the host of the thread's process; the thread's own when it has
// gone.
func (e Event) PID() int { return groupOf(e.TID) }

// Op is one operation of a call.
type Op struct {
	Kind string // one of the constants below
	// Path is canonical, as the jail sees it. Empty for connections, and where it
	// could not be found out.
	Path     string
	Creates  bool // a Write makes the file
	Opens    bool // a Create opens what is there, where something is
	Replaces bool // a RenameTo takes the place of something
	// Absent says that what the call needs is not shown, at the path or on the way
	// there, so that it will fail; what the jail covers, or does not list, is told of in
	// this way.
	Absent   bool
	Addr     netip.AddrPort // of Connect and Bind
	Datagram bool           // not a stream
}

// Kinds of operations.
const (
	Read       = "read" // a file or a directory, by a filter that tells of it
	Write      = "write"
	Create     = "create"
	Truncate   = "truncate"
	Mkdir      = "mkdir"
	Remove     = "remove"
	Rmdir      = "rmdir"
	RenameFrom = "rename-from"
	RenameTo   = "rename-to"
	Link       = "link"
	Symlink    = "symlink"
	Chmod      = "chmod"
	Chown      = "chown"
	Utime      = "utime"
	Xattr      = "xattr"
	Exec       = "exec"
	Socket     = "socket" // connects or sends to a Unix socket with a path
	Load       = "load"   // maps a file so that its code can run
	Connect    = "connect"
	Bind       = "bind"
)
