package policy

// OpKind names one kind of operation on the file system, in the words of the
// system call family that does it.
type OpKind string

// The closed set of kinds. All but Read, Exec and Load are writes: they change a
// file, a directory or their metadata.
const (
	Read     OpKind = "read"     // open for reading, list, stat by content
	Exec     OpKind = "exec"     // execute a program
	Load     OpKind = "load"     // map a file so that its code can run, as a library is
	Write    OpKind = "write"    // open for writing or appending
	Create   OpKind = "create"   // make a regular file, fifo or device node
	Truncate OpKind = "truncate" // cut or extend a file
	Mkdir    OpKind = "mkdir"    // make a directory
	Remove   OpKind = "remove"   // unlink a file
	Rmdir    OpKind = "rmdir"    // remove a directory
	Rename   OpKind = "rename"   // either end of a rename, where the observer cannot tell which
	Link     OpKind = "link"     // the new name of a hard link
	Symlink  OpKind = "symlink"  // the new name of a symbolic link
	Chmod    OpKind = "chmod"    // change mode bits or flags
	Chown    OpKind = "chown"    // change owner or group
	Utime    OpKind = "utime"    // change time stamps
	Xattr    OpKind = "xattr"    // set or remove an extended attribute
	Socket   OpKind = "socket"   // connect or send to a Unix socket with a path

	RenameFrom OpKind = "rename-from" // the old name
	RenameTo   OpKind = "rename-to"   // the new name
)

var kinds = map[OpKind]bool{ // value: changes something
	Read: false, Exec: false, Load: false,
	Write: true, Create: true, Truncate: true, Mkdir: true, Remove: true, Rmdir: true,
	Rename: true, Link: true, Symlink: true, Chmod: true, Chown: true, Utime: true, Xattr: true, Socket: true,
	RenameFrom: true, RenameTo: true,
}

var synonyms = map[string]OpKind{
	"open": Write, "append": Write, "mutate": Write, "edit": Write, "save": Write,
	"unlink": Remove, "delete": Remove, "rm": Remove, "rmtree": Rmdir,
	"move": Rename, "replace": Rename, "mv": Rename, "copy": Write, "copyfile": Write,
	"mknod": Create, "mkfifo": Create, "touch": Create, "makedirs": Mkdir,
	"setxattr": Xattr, "removexattr": Xattr, "chflags": Chmod, "ftruncate": Truncate,
}

// ParseKind maps a name that a module declared, or that an observer reported,
// to a kind. Names that are not known count as writes: an observer that learns
// a new kind of change must not make it disappear from the report.
func ParseKind(name string) OpKind {
	k := OpKind(name)
	if _, ok := kinds[k]; ok {
		return k
	}
	if k, ok := synonyms[name]; ok {
		return k
	}
	return Write
}

// Known reports whether k belongs to the closed set.
func (k OpKind) Known() bool { _, ok := kinds[k]; return ok }

// Changes reports whether an operation of kind k changes something. Kinds
// outside the closed set do.
func (k OpKind) Changes() bool {
	w, ok := kinds[k]
	return w || !ok
}

// Op is one operation to decide. Path is absolute and canonical; a relative or
// empty path is denied when the kind changes something, because nobody can say
// where it is.
type Op struct {
	Kind OpKind `json:"op"`
	Path string `json:"path"`
	// Creates says that a Write makes the file first, where the observer can tell:
	// open with O_CREAT where there is none.
	Creates bool `json:"creates,omitempty"`
	// Replaces says that a RenameTo takes the place of something.
	Replaces bool `json:"replaces,omitempty"`
}
