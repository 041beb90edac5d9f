package observe

import "golang.org/x/sys/unix"

// own are the older calls that this architecture has.
var own = []call{
	{unix.SYS_RENAMEAT, "renameat", func(l *look) []Op { return l.rename(0, 1, 2, 3, 0) }},
}

var ownOpeners []opener
