package observe

import "golang.org/x/sys/unix"

// own are the older calls that only this architecture has.
var own = []call{
	{unix.SYS_OPEN, "open", func(l *look) []Op { return l.open(none, 0, l.arg(1)) }},
	{unix.SYS_CREAT, "creat", func(l *look) []Op { return l.open(none, 0, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC) }},
	{unix.SYS_MKDIR, "mkdir", func(l *look) []Op { return l.make(Mkdir, none, 0) }},
	{unix.SYS_MKNOD, "mknod", func(l *look) []Op { return l.make(Create, none, 0) }},
	{unix.SYS_SYMLINK, "symlink", func(l *look) []Op { return l.make(Symlink, none, 1) }},
	{unix.SYS_LINK, "link", func(l *look) []Op { return l.make(Link, none, 1) }},
	{unix.SYS_UNLINK, "unlink", func(l *look) []Op { return l.remove(none, 0, false) }},
	{unix.SYS_RMDIR, "rmdir", func(l *look) []Op { return l.remove(none, 0, true) }},
	{unix.SYS_RENAME, "rename", func(l *look) []Op { return l.rename(none, 0, none, 1, 0) }},
	{unix.SYS_RENAMEAT, "renameat", func(l *look) []Op { return l.rename(0, 1, 2, 3, 0) }},
	{unix.SYS_CHMOD, "chmod", func(l *look) []Op { return l.alter(Chmod, none, 0, 0) }},
	{unix.SYS_CHOWN, "chown", func(l *look) []Op { return l.alter(Chown, none, 0, 0) }},
	{unix.SYS_LCHOWN, "lchown", func(l *look) []Op { return l.alter(Chown, none, 0, unix.AT_SYMLINK_NOFOLLOW) }},
	{unix.SYS_UTIME, "utime", func(l *look) []Op { return l.alter(Utime, none, 0, 0) }},
	{unix.SYS_UTIMES, "utimes", func(l *look) []Op { return l.alter(Utime, none, 0, 0) }},
	{unix.SYS_FUTIMESAT, "futimesat", func(l *look) []Op { return l.alter(Utime, 0, 1, 0) }},
}

var ownOpeners = []opener{{unix.SYS_OPEN, 1}}
