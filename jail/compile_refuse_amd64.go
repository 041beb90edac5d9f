package jail

import "golang.org/x/sys/unix"

// changesMode are the calls that give a file a mode, and the argument that is the mode.
// The profiles have fchmodat2 answered with ENOSYS.
var changesMode = []struct{ nr, arg int }{{unix.SYS_CHMOD, 1}, {unix.SYS_FCHMOD, 1}, {unix.SYS_FCHMODAT, 2}}
