package parity

import (
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// operation is something that a program does to files.
type operation struct {
	name  string
	needs []string
	// python does it by Python's own functions, with p for the row's path up to its
	// ending; empty for what they cannot do. native does it by the system call: the
	// number and then its arguments.
	python string
	native string
	steps  bool // several calls, of which the first that is refused is the last
	again  bool // reads what it may not write
	asks   bool // the launcher refuses it, where it observes
}

var operations = append([]operation{
	{name: "read", needs: []string{file}, python: `open(p + ".f").read()`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".f"), 0, 0`},
	{name: "read through a link", needs: []string{file, link}, python: `open(p + ".l").read()`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".l"), 0, 0`},
	{name: "list", needs: []string{directory}, python: `os.listdir(p + ".d")`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".d"), os.O_DIRECTORY, 0`},
	{name: "write", needs: []string{file}, python: `open(p + ".f", "r+").close()`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".f"), os.O_RDWR, 0`},
	{name: "write through a link", needs: []string{file, link}, python: `open(p + ".l", "r+").close()`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".l"), os.O_WRONLY, 0`},
	{name: "append", needs: []string{file}, python: `open(p + ".f", "a").close()`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".f"), os.O_WRONLY | os.O_APPEND, 0`},
	{name: "overwrite", needs: []string{file}, python: `open(p + ".f", "w").close()`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".f"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644`},
	{name: "cut by opening", needs: []string{file}, python: `os.close(os.open(p + ".f", os.O_RDONLY | os.O_TRUNC))`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".f"), os.O_TRUNC, 0`},
	{name: "create", python: `open(p + ".n", "x").close()`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".n"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644`},
	{name: "create to read", python: `os.close(os.open(p + ".n", os.O_RDONLY | os.O_CREAT, 0o644))`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".n"), os.O_CREAT, 0o644`},
	{name: "create through a descriptor", needs: []string{directory}, python: `at(p + ".d", lambda d: os.close(os.open("n", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=d)))`, native: `*at(p + ".d", lambda d: (` + nr(unix.SYS_OPENAT) + `keep(d), b("n"), os.O_WRONLY | os.O_CREAT, 0o644))`, steps: true},
	{name: "create without a name", needs: []string{directory}, python: `os.close(os.open(p + ".d", os.O_TMPFILE | os.O_RDWR, 0o600))`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".d"), os.O_TMPFILE | os.O_WRONLY, 0o600`},
	{name: "open for ioctl alone", needs: []string{file}, python: `os.close(os.open(p + ".f", 3))`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".f"), 3 | os.O_CREAT, 0o644`},
	{name: "create for ioctl alone", python: `os.close(os.open(p + ".n", 3 | os.O_CREAT, 0o644))`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".n"), 3 | os.O_CREAT, 0o644`},
	{name: "cut for ioctl alone", needs: []string{file}, python: `os.close(os.open(p + ".f", 3 | os.O_TRUNC))`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".f"), 3 | os.O_TRUNC, 0`},
	{name: "write to a pipe", needs: []string{pipe}, python: `os.close(os.open(p + ".p", os.O_RDWR | os.O_NONBLOCK))`, native: nr(unix.SYS_OPENAT) + `AT, b(p + ".p"), os.O_RDWR, 0`, asks: true},
	{name: "truncate", needs: []string{file}, python: `os.truncate(p + ".f", 3)`, native: nr(unix.SYS_TRUNCATE) + `b(p + ".f"), 3`},
	{name: "mkdir", python: `os.mkdir(p + ".n")`, native: nr(unix.SYS_MKDIRAT) + `AT, b(p + ".n"), 0o755`},
	{name: "mkfifo", python: `os.mkfifo(p + ".n")`, native: nr(unix.SYS_MKNODAT) + `AT, b(p + ".n"), 0o10644, 0`},
	{name: "symlink", python: `os.symlink("x", p + ".n")`, native: nr(unix.SYS_SYMLINKAT) + `b("x"), AT, b(p + ".n")`},
	{name: "link", needs: []string{file}, python: `os.link(p + ".f", p + ".n")`, native: nr(unix.SYS_LINKAT) + `AT, b(p + ".f"), AT, b(p + ".n"), 0`},
	{name: "bind a socket", python: `socket.socket(socket.AF_UNIX).bind(p + ".n")`},
	{name: "connect to a socket", needs: []string{listener}, python: `socket.socket(socket.AF_UNIX).connect(p + ".s")`, native: `*reach(p + ".s")`, asks: true},
	{name: "remove", needs: []string{file}, python: `os.unlink(p + ".f")`, native: nr(unix.SYS_UNLINKAT) + `AT, b(p + ".f"), 0`},
	{name: "remove a link", needs: []string{file, link}, python: `os.unlink(p + ".l")`, native: nr(unix.SYS_UNLINKAT) + `AT, b(p + ".l"), 0`},
	{name: "rmdir", needs: []string{directory}, python: `os.rmdir(p + ".d")`, native: nr(unix.SYS_UNLINKAT) + `AT, b(p + ".d"), 0x200`},
	{name: "rename", needs: []string{file}, python: `os.rename(p + ".f", p + ".n")`, native: nr(unix.SYS_RENAMEAT2) + `AT, b(p + ".f"), AT, b(p + ".n"), 0`},
	{name: "replace", needs: []string{file, other}, python: `os.replace(p + ".f", p + ".g")`, native: nr(unix.SYS_RENAMEAT2) + `AT, b(p + ".f"), AT, b(p + ".g"), 0`},
	{name: "exchange", needs: []string{file, other}, native: nr(unix.SYS_RENAMEAT2) + `AT, b(p + ".f"), AT, b(p + ".g"), 2`},
	{name: "chmod", needs: []string{file}, python: `os.chmod(p + ".f", 0o600)`, native: nr(unix.SYS_FCHMODAT) + `AT, b(p + ".f"), 0o600`},
	{name: "chmod of a descriptor", needs: []string{file}, python: `at(p + ".f", lambda d: os.fchmod(d, 0o600))`, steps: true},
	{name: "chown", needs: []string{file}, python: `os.chown(p + ".f", os.getuid(), os.getgid())`, native: nr(unix.SYS_FCHOWNAT) + `AT, b(p + ".f"), os.getuid(), os.getgid(), 0`},
	{name: "utime", needs: []string{file}, python: `os.utime(p + ".f", (1, 1))`, native: nr(unix.SYS_UTIMENSAT) + `AT, b(p + ".f"), None, 0`},
	{name: "utime, of none", needs: []string{file}, native: nr(unix.SYS_UTIMENSAT) + `AT, b(p + ".f"), (ctypes.c_long * 4)(0, 0x3ffffffe, 0, 0x3ffffffe), 0`},
	{name: "setxattr", needs: []string{file}, python: `os.setxattr(p + ".f", "user.new", b"1")`, native: nr(unix.SYS_SETXATTR) + `b(p + ".f"), b("user.new"), b("1"), 1, 0`},
	{name: "removexattr", needs: []string{file}, python: `os.removexattr(p + ".f", "user.old")`, native: nr(unix.SYS_REMOVEXATTR) + `b(p + ".f"), b("user.old")`},
	{name: "execute", needs: []string{executable}, python: `subprocess.run([p + ".x"], check=True)`},
	{name: "load", needs: []string{executable}, python: `at(p + ".x", lambda d: mmap.mmap(d, 0, prot=mmap.PROT_READ | mmap.PROT_EXEC))`, native: `*at(p + ".x", lambda d: (` + nr(unix.SYS_MMAP) + `None, 4096, 5, 2, keep(d), 0))`, steps: true},
	{name: "load afterwards", needs: []string{executable}, native: nr(unix.SYS_MPROTECT) + `at(p + ".x", mapped), 4096, 5`, steps: true},
	{name: "load what has been removed", needs: []string{executable}, python: `at(p + ".x", lambda d, p=p: (os.unlink(p + ".x"), mmap.mmap(d, 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)))`, steps: true},
	{name: "copy here", needs: []string{file}, python: `shutil.copyfile("/etc/passwd", p + ".f")`},
	{name: "copy by a program", needs: []string{file}, python: `subprocess.run(["/bin/cp", "/etc/passwd", p + ".f"], check=True, stderr=subprocess.DEVNULL)`},
	{name: "sqlite", python: `database(p + ".n")`, again: true},
}, oldCalls()...)

// oldCalls are those that arm64 does not have.
func oldCalls() []operation {
	if runtime.GOARCH != "amd64" {
		return nil
	}
	const open, creat, mkdir, mknod, symlink, unlink, rmdir, rename, chmod, lchown, utimes = 2, 85, 83, 133, 88, 87, 84, 82, 90, 94, 235
	return []operation{
		{name: "open", needs: []string{file}, native: nr(open) + `b(p + ".f"), os.O_WRONLY, 0`},
		{name: "creat", native: nr(creat) + `b(p + ".n"), 0o644`},
		{name: "mkdir, the old call", native: nr(mkdir) + `b(p + ".n"), 0o755`},
		{name: "mknod", native: nr(mknod) + `b(p + ".n"), 0o100644, 0`},
		{name: "symlink, the old call", native: nr(symlink) + `b("x"), b(p + ".n")`},
		{name: "unlink", needs: []string{file}, native: nr(unlink) + `b(p + ".f")`},
		{name: "rmdir, the old call", needs: []string{directory}, native: nr(rmdir) + `b(p + ".d")`},
		{name: "rename, the old call", needs: []string{file}, native: nr(rename) + `b(p + ".f"), b(p + ".n")`},
		{name: "chmod, the old call", needs: []string{file}, native: nr(chmod) + `b(p + ".f"), 0o600`},
		{name: "lchown", needs: []string{file}, native: nr(lchown) + `b(p + ".f"), os.getuid(), os.getgid()`},
		{name: "utimes", needs: []string{file}, native: nr(utimes) + `b(p + ".f"), None`},
	}
}

func nr(number int) string { return strconv.Itoa(number) + ", " }
