package observe

import (
	"slices"

	"golang.org/x/sys/unix"
)

// call says how to read one system call.
type call struct {
	nr   int
	name string
	read func(*look) []Op
}

// opener is a call whose flags, in this argument, say whether it may change
// something.
type opener struct{ nr, flags int }

// FS_IOC_FSSETXATTR and FS_IOC_SETVERSION (linux/fs.h), on both architectures.
const (
	fsSetXattr   = 0x401c5820
	fsSetVersion = 0x40087602
)

// none is the descriptor argument of calls without one: the working directory.
const none = -1

// common are the calls that all our architectures have. Arguments are counted
// from 0; the tests hold each row against a real call.
var common = []call{
	{unix.SYS_OPENAT, "openat", func(l *look) []Op { return l.open(0, 1, l.arg(2)) }},
	{unix.SYS_OPENAT2, "openat2", (*look).openat2},
	{unix.SYS_IOCTL, "ioctl", func(l *look) []Op { return l.descriptor(Chmod) }},
	{unix.SYS_SENDTO, "sendto", func(l *look) []Op { return l.destination(l.args[4], l.arg(5)) }},

	{unix.SYS_MKDIRAT, "mkdirat", func(l *look) []Op { return l.make(Mkdir, 0, 1) }},
	{unix.SYS_MKNODAT, "mknodat", func(l *look) []Op { return l.make(Create, 0, 1) }},
	{unix.SYS_SYMLINKAT, "symlinkat", func(l *look) []Op { return l.make(Symlink, 1, 2) }},
	{unix.SYS_LINKAT, "linkat", func(l *look) []Op { return l.make(Link, 2, 3) }},
	{unix.SYS_UNLINKAT, "unlinkat", func(l *look) []Op { return l.remove(0, 1, l.arg(2)&unix.AT_REMOVEDIR != 0) }},
	{unix.SYS_RENAMEAT2, "renameat2", func(l *look) []Op { return l.rename(0, 1, 2, 3, l.arg(4)) }},

	{unix.SYS_TRUNCATE, "truncate", func(l *look) []Op { return l.alter(Truncate, none, 0, 0) }},
	{unix.SYS_FCHMOD, "fchmod", func(l *look) []Op { return l.descriptor(Chmod) }},
	{unix.SYS_FCHMODAT, "fchmodat", func(l *look) []Op { return l.alter(Chmod, 0, 1, 0) }},
	{unix.SYS_FCHMODAT2, "fchmodat2", func(l *look) []Op { return l.alter(Chmod, 0, 1, l.arg(3)) }},
	{unix.SYS_FCHOWN, "fchown", func(l *look) []Op { return l.descriptor(Chown) }},
	{unix.SYS_FCHOWNAT, "fchownat", func(l *look) []Op { return l.alter(Chown, 0, 1, l.arg(4)) }},
	{unix.SYS_UTIMENSAT, "utimensat", (*look).utimensat},
	{unix.SYS_SETXATTR, "setxattr", func(l *look) []Op { return l.alter(Xattr, none, 0, 0) }},
	{unix.SYS_LSETXATTR, "lsetxattr", func(l *look) []Op { return l.alter(Xattr, none, 0, unix.AT_SYMLINK_NOFOLLOW) }},
	{unix.SYS_FSETXATTR, "fsetxattr", func(l *look) []Op { return l.descriptor(Xattr) }},
	{unix.SYS_REMOVEXATTR, "removexattr", func(l *look) []Op { return l.alter(Xattr, none, 0, 0) }},
	{unix.SYS_LREMOVEXATTR, "lremovexattr", func(l *look) []Op { return l.alter(Xattr, none, 0, unix.AT_SYMLINK_NOFOLLOW) }},
	{unix.SYS_FREMOVEXATTR, "fremovexattr", func(l *look) []Op { return l.descriptor(Xattr) }},
	{unix.SYS_SETXATTRAT, "setxattrat", func(l *look) []Op { return l.alter(Xattr, 0, 1, l.arg(2)) }},
	{unix.SYS_REMOVEXATTRAT, "removexattrat", func(l *look) []Op { return l.alter(Xattr, 0, 1, l.arg(2)) }},
	{unix.SYS_FILE_SETATTR, "file_setattr", func(l *look) []Op { return l.alter(Chmod, 0, 1, l.arg(4)) }},

	{unix.SYS_EXECVE, "execve", func(l *look) []Op { return l.exec(none, 0, 0) }},
	{unix.SYS_EXECVEAT, "execveat", func(l *look) []Op { return l.exec(0, 1, l.arg(4)) }},
	{unix.SYS_MMAP, "mmap", (*look).mmap},
	{unix.SYS_MPROTECT, "mprotect", (*look).mprotect},
	{unix.SYS_PKEY_MPROTECT, "pkey_mprotect", (*look).mprotect},
	{unix.SYS_CONNECT, "connect", func(l *look) []Op { return l.address(Connect, l.args[1], l.arg(2)) }},
	{unix.SYS_BIND, "bind", func(l *look) []Op { return l.address(Bind, l.args[1], l.arg(2)) }},
	{unix.SYS_SENDMSG, "sendmsg", func(l *look) []Op { return l.message(l.args[1]) }},
	{unix.SYS_SENDMMSG, "sendmmsg", func(l *look) []Op { return l.messages(l.args[1], l.arg(2)) }},
}

// openers, in the order of the filter: opening files is the most frequent.
var openers = append([]opener{{unix.SYS_OPENAT, 2}}, ownOpeners...)

// byNumber has the row of each call at its number.
var byNumber = func() []call {
	all := append(slices.Clone(common), own...)
	highest := 0
	for _, c := range all {
		highest = max(highest, c.nr)
	}
	table := make([]call, highest+1)
	for _, c := range all {
		table[c.nr] = c
	}
	return table
}()

// asked are the calls of which the filter tells for some arguments other than flags of
// openers.
var asked = []int{unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_PKEY_MPROTECT, unix.SYS_IOCTL, unix.SYS_SENDTO}

// watched are the calls of which the filter tells whatever their arguments.
var watched = func() []int {
	var numbers []int
	for nr, c := range byNumber {
		looked := slices.Contains(asked, nr) || slices.ContainsFunc(openers, func(o opener) bool { return o.nr == nr })
		if c.read != nil && !looked {
			numbers = append(numbers, nr)
		}
	}
	return numbers
}()
