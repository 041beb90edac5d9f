package observe

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// look is one call of a stopped thread: its arguments, and the tree that it means.
type look struct {
	tree *tree
	tid  int
	args [6]uint64
}

// arg is an argument that is an int.
func (l *look) arg(i int) int { return int(int32(l.args[i])) }

// unknown is an operation whose place could not be read. It is told of all the
// same: a call that cannot be looked at is not one to leave out.
func unknown(kind string) []Op { return []Op{{Kind: kind}} }

// find is the place that a descriptor and a path mean.
func (l *look) find(dir, name int, follow bool) (place, bool) {
	if l.args[name] == 0 {
		return place{state: nowhere}, true // the call will fail with EFAULT
	}
	path, err := text(l.tid, l.args[name])
	switch err {
	case nil:
	case unix.ENAMETOOLONG, unix.EFAULT:
		return place{state: nowhere}, true
	default:
		return place{}, false
	}
	return known(l.tree.find(l.tid, l.directory(dir), path, follow))
}

// known is false for a place that nobody can name.
func known(at place) (place, bool) { return at, at.state != unnamed }

func (l *look) directory(arg int) int {
	if arg == none {
		return unix.AT_FDCWD
	}
	return l.arg(arg)
}

// withoutName is added to a directory for a file of O_TMPFILE.
const withoutName = "/(without a name)"

// open reads the open family.
func (l *look) open(dir, name, flags int) []Op {
	access := flags & unix.O_ACCMODE
	// With both bits it is for ioctl(2) alone (open(2), NOTES), and counts as a look.
	writes := access == unix.O_WRONLY || access == unix.O_RDWR
	switch {
	case flags&unix.O_PATH == unix.O_PATH:
		return nil
	case !writes && flags&(unix.O_CREAT|unix.O_TRUNC|tmpfileBit) == 0:
		return l.read(dir, name, flags)
	}
	const exclusive = unix.O_CREAT | unix.O_EXCL
	at, ok := l.find(dir, name, flags&unix.O_NOFOLLOW == 0 && flags&exclusive != exclusive)
	switch {
	case !ok:
		return unknown(Write)
	case at.none():
		return nil
	case at.state == beyond:
		return l.opensBeyond(at.path, writes, flags)
	case flags&tmpfileBit != 0:
		if at.state != directory && at.state != absent {
			return nil
		}
		// It makes no name, and is what Landlock asks for: the right to write a file here.
		return []Op{{Kind: Write, Path: at.path + withoutName, Creates: at.missing(), Absent: at.missing()}}
	case at.state == directory:
		return nil
	case at.state == absent && flags&unix.O_CREAT == 0 && !writes:
		return []Op{{Kind: Truncate, Path: at.path, Absent: true}}
	case at.state == absent && flags&unix.O_CREAT == 0:
		return []Op{{Kind: Write, Path: at.path, Absent: true}}
	case at.state == absent && !writes:
		return []Op{{Kind: Create, Path: at.path, Opens: flags&exclusive != exclusive}}
	case at.state == absent:
		return []Op{{Kind: Write, Path: at.path, Creates: true}}
	case flags&exclusive == exclusive:
		return nil
	case writes:
		return []Op{{Kind: Write, Path: at.path}}
	case flags&unix.O_TRUNC != 0:
		return []Op{{Kind: Truncate, Path: at.path}}
	}
	return []Op{{Kind: Read, Path: at.path}}
}

// opensBeyond is what an open to write would do if the directory were there.
func (l *look) opensBeyond(name string, writes bool, flags int) []Op {
	creates := flags&unix.O_CREAT != 0
	switch {
	case flags&tmpfileBit != 0:
		return []Op{{Kind: Write, Path: name + withoutName, Creates: true, Absent: true}}
	case writes:
		return []Op{{Kind: Write, Path: name, Creates: creates, Absent: true}}
	case creates:
		return []Op{{Kind: Create, Path: name, Absent: true, Opens: flags&unix.O_EXCL == 0}}
	}
	return []Op{{Kind: Truncate, Path: name, Absent: true}}
}

// read reads an open that changes nothing. Only a filter that was asked to tells of
// it.
func (l *look) read(dir, name, flags int) []Op {
	at, ok := l.find(dir, name, flags&unix.O_NOFOLLOW == 0)
	switch {
	case !ok:
		return unknown(Read)
	case at.none(), at.state == present && flags&unix.O_DIRECTORY != 0:
		return nil
	}
	return []Op{{Kind: Read, Path: at.path, Absent: at.missing()}}
}

// openat2 has its flags in memory, struct open_how.
func (l *look) openat2() []Op {
	how, err := memory(l.tid, l.args[2], 8)
	if err != nil {
		return nil // EFAULT for the call as well
	}
	return l.open(0, 1, int(binary.LittleEndian.Uint64(how)))
}

// descriptor reads a call on an open descriptor, its first argument.
func (l *look) descriptor(kind string) []Op {
	switch at := l.tree.opened(l.tid, l.arg(0)); {
	case at.none():
		return nil
	case at.state == unnamed:
		return unknown(kind)
	default:
		return []Op{{Kind: kind, Path: at.path}}
	}
}

// make reads calls that make a name.
func (l *look) make(kind string, dir, name int) []Op {
	at, ok := l.find(dir, name, false)
	switch {
	case !ok:
		return unknown(kind)
	case !at.missing():
		return nil
	}
	return []Op{{Kind: kind, Path: at.path, Absent: at.state == beyond}}
}

func (l *look) remove(dir, name int, directories bool) []Op {
	kind := Remove
	if directories {
		kind = Rmdir
	}
	at, ok := l.find(dir, name, false)
	switch {
	case !ok:
		return unknown(kind)
	case at.none(), !at.missing() && (at.state == directory) != directories:
		return nil
	}
	return []Op{{Kind: kind, Path: at.path, Absent: at.missing()}}
}

func (l *look) rename(fromDir, fromName, toDir, toName, flags int) []Op {
	from, okFrom := l.find(fromDir, fromName, false)
	to, okTo := l.find(toDir, toName, false)
	if !okFrom || !okTo {
		return append(unknown(RenameFrom), unknown(RenameTo)...)
	}
	there := to.state == present || to.state == directory
	switch {
	case from.none() || to.none():
		return nil
	case flags&unix.RENAME_NOREPLACE != 0 && there:
		return nil
	}
	exchange := flags&unix.RENAME_EXCHANGE != 0
	lacks := from.missing() || to.state == beyond || exchange && !there
	return []Op{{Kind: RenameFrom, Path: from.path, Replaces: exchange, Absent: lacks},
		{Kind: RenameTo, Path: to.path, Replaces: there || exchange, Absent: lacks}}
}

// alter reads calls on what is there. Without a path, or with an empty one and
// AT_EMPTY_PATH, they mean the descriptor.
func (l *look) alter(kind string, dir, name, flags int) []Op {
	at, ok := l.existing(dir, name, flags)
	switch {
	case !ok:
		return unknown(kind)
	case at.none():
		return nil
	}
	return []Op{{Kind: kind, Path: at.path, Absent: at.missing()}}
}

func (l *look) existing(dir, name, flags int) (place, bool) {
	if dir != none {
		if l.args[name] == 0 {
			return known(l.tree.opened(l.tid, l.arg(dir)))
		}
		if flags&unix.AT_EMPTY_PATH != 0 {
			if path, err := text(l.tid, l.args[name]); err == nil && path == "" {
				return known(l.tree.opened(l.tid, l.arg(dir)))
			}
		}
	}
	return l.find(dir, name, flags&unix.AT_SYMLINK_NOFOLLOW == 0)
}

// utimensat reads the two times, struct timespec of 16 bytes each. With both to be left
// as they are Linux does nothing at all, and looks at no path (utimensat(2)).
func (l *look) utimensat() []Op {
	if l.args[2] != 0 {
		times, err := memory(l.tid, l.args[2], 32)
		if err != nil {
			return nil // EFAULT for the call as well
		}
		left := func(at int) bool { return binary.LittleEndian.Uint64(times[at:]) == unix.UTIME_OMIT }
		if left(8) && left(24) {
			return nil
		}
	}
	return l.alter(Utime, 0, 1, l.arg(3))
}

func (l *look) exec(dir, name, flags int) []Op {
	at, ok := l.existing(dir, name, flags)
	switch {
	case !ok:
		return unknown(Exec)
	case at.state == present, at.missing():
		return []Op{{Kind: Exec, Path: at.path, Absent: at.missing()}}
	case at.state == loose:
		return unknown(Exec) // a program without a name, such as a memfd
	}
	return nil
}

// maxAddress is the size of struct sockaddr_storage.
const maxAddress = 128

// address reads the socket address of connect(2) or bind(2).
func (l *look) address(kind string, at uint64, size int) []Op {
	return l.addressOf(kind, at, size, kind == Bind)
}

// destination reads the socket address of a message.
func (l *look) destination(at uint64, size int) []Op { return l.addressOf(Connect, at, size, true) }

// addressOf reads a socket address. Sockets of IPv4 take AF_UNSPEC for AF_INET, where the
// kernel's source says so (udp_sendmsg, __inet_bind), but for a connection, which it ends.
func (l *look) addressOf(kind string, at uint64, size int, unspecific bool) []Op {
	if at == 0 || size < 2 || size > maxAddress {
		return nil // the call is without one, or will fail
	}
	raw, err := memory(l.tid, at, size)
	if err != nil {
		return nil
	}
	family := binary.LittleEndian.Uint16(raw)
	if family == unix.AF_UNSPEC && unspecific && size >= unix.SizeofSockaddrInet4 && l.option(unix.SO_DOMAIN) == unix.AF_INET {
		family = unix.AF_INET
	}
	switch {
	case family == unix.AF_INET && size >= 8:
		addr := netip.AddrFrom4([4]byte(raw[4:8]))
		return l.socket(kind, addr, raw)
	case family == unix.AF_INET6 && size >= 24:
		addr := netip.AddrFrom16([16]byte(raw[8:24]))
		return l.socket(kind, addr, raw)
	case family == unix.AF_UNIX && size > 2 && raw[2] != 0:
		name, _, _ := bytes.Cut(raw[2:], []byte{0})
		if kind == Bind {
			return l.binds(string(name))
		}
		return l.reaches(string(name))
	}
	return nil
}

// binds makes a Unix socket at a path.
func (l *look) binds(name string) []Op {
	switch at := l.tree.find(l.tid, unix.AT_FDCWD, name, false); at.state {
	case absent, beyond:
		return []Op{{Kind: Create, Path: at.path, Absent: at.state == beyond}}
	case unnamed:
		return unknown(Create)
	}
	return nil
}

// reaches is a connection to a Unix socket at a path, or a message for one; what else
// lies there refuses both.
func (l *look) reaches(name string) []Op {
	at := l.tree.find(l.tid, unix.AT_FDCWD, name, true)
	switch {
	case at.state == unnamed:
		return unknown(Socket)
	case at.missing():
		return []Op{{Kind: Socket, Path: at.path, Absent: true}}
	case at.state == present:
		if kind, ok := l.tree.kindAt(at.path); !ok || kind == unix.S_IFSOCK {
			return []Op{{Kind: Socket, Path: at.path}}
		}
	}
	return nil
}

func (l *look) socket(kind string, addr netip.Addr, raw []byte) []Op {
	return []Op{{Kind: kind, Addr: netip.AddrPortFrom(addr, binary.BigEndian.Uint16(raw[2:])), Datagram: l.datagram()}}
}

// datagram says whether the socket is none of a stream.
func (l *look) datagram() bool {
	kind := l.option(unix.SO_TYPE)
	return kind >= 0 && kind != unix.SOCK_STREAM
}

// option asks the socket, the first argument of each of these calls, for an option; -1
// where that cannot be had.
func (l *look) option(name int) int {
	process, err := unix.PidfdOpen(l.tid, 0)
	if err != nil {
		// A thread that is not its group's first: the group is in /proc.
		group := groupOf(l.tid)
		if process, err = unix.PidfdOpen(group, 0); err != nil {
			return -1
		}
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, l.arg(0), 0)
	if err != nil {
		return -1
	}
	defer unix.Close(fd)
	value, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, name)
	if err != nil {
		return -1
	}
	return value
}

// message reads the address of struct msghdr: its first field and the length after it,
// which Linux cuts to that of the longest address (net/socket.c, __copy_msghdr).
func (l *look) message(at uint64) []Op {
	raw, err := memory(l.tid, at, 12)
	if err != nil {
		return nil
	}
	return l.destination(binary.LittleEndian.Uint64(raw), min(int(int32(binary.LittleEndian.Uint32(raw[8:]))), maxAddress))
}

// maxMessages is how many messages of one sendmmsg are looked at; Linux takes 1,024.
const maxMessages = 1024

// messages reads an array of struct mmsghdr, 64 bytes each.
func (l *look) messages(at uint64, n int) []Op {
	var ops []Op
	for i := range min(max(n, 0), maxMessages) {
		for _, op := range l.message(at + uint64(i)*64) {
			if len(ops) == 0 || ops[len(ops)-1] != op {
				ops = append(ops, op)
			}
		}
	}
	return ops
}
