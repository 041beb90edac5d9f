package observe

import (
	"bytes"
	"cmp"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// state says what is at a place.
type state int

const (
	nowhere state = iota // none that can be: the call will fail
	loose                // no place of the tree: what has been removed, a memfd, a pipe
	unnamed              // somewhere, but nobody can say where
	absent               // nothing is there, but its directory is
	beyond               // a directory on the way is not there
	present              // a file of any kind but a directory
	directory
)

// place is where a path leads to.
type place struct {
	path  string // canonical; empty for nowhere
	state state
}

// none says that it is no place of the tree.
func (p place) none() bool { return p.state == nowhere || p.state == loose }

// missing says that nothing is there.
func (p place) missing() bool { return p.state == absent || p.state == beyond }

// tree resolves paths as a process of the jail would, from outside: in the jail's
// root, with its own idea of /proc/self, and without opening anything but by
// O_PATH, so that neither a FIFO nor a device of the guest's notices or delays it.
type tree struct{ root int }

// maxName is NAME_MAX.
const maxName = 255

// maxLinks is how many symbolic links Linux follows (path_resolution(7)).
const maxLinks = 40

// find resolves a path of a stopped thread.
func (t *tree) find(tid, dir int, name string, follow bool) place {
	if name == "" {
		return place{}
	}
	if !strings.HasPrefix(name, "/") {
		base, err := t.base(tid, dir)
		switch {
		case err == unix.ENOENT:
			if base, name, err = t.above(tid, dir, name); err != nil {
				return place{}
			}
		case err == unix.EBADF || err == unix.ESRCH:
			return place{} // there is no such descriptor: the call will fail
		case err != nil:
			return place{state: unnamed}
		}
		if at, ok := beneath(tid, dir, base, name); ok {
			return at
		}
		name = base + "/" + name
	}
	if !mentionsProc(name) {
		if at, ok := t.straight(name); ok {
			return at
		}
		fd, err := t.open(name, follow)
		if err == nil {
			return t.at(fd)
		}
		if err == unix.ENOENT && !strings.HasSuffix(name, "/.") && !strings.HasSuffix(name, "/..") {
			if at, ok := t.beside(name, follow); ok {
				return at
			}
		}
		if err == unix.ENOTDIR {
			return place{}
		}
	}
	return t.walk(tid, name, follow)
}

// beneath is the way of a plain name in the directory that a thread is at, or has
// open, and of most names in it: one look, and no link to follow.
func beneath(tid, dir int, base, name string) (place, bool) {
	if strings.Contains(name, "/") || name == "." || name == ".." || mentionsProc(base) {
		return place{}, false
	}
	var stat unix.Stat_t
	switch err := unix.Fstatat(unix.AT_FDCWD, directoryOf(tid, dir)+"/"+name, &stat, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT:
		return place{base + "/" + name, absent}, base != "/"
	case err != nil || stat.Mode&unix.S_IFMT == unix.S_IFLNK || base == "/":
		return place{}, false
	}
	return there(base+"/"+name, &stat), true
}

// directoryOf is where proc(5) has the directory that a relative path begins at.
func directoryOf(tid, dir int) string {
	if dir == unix.AT_FDCWD {
		return "/proc/" + strconv.Itoa(tid) + "/cwd"
	}
	return "/proc/" + strconv.Itoa(tid) + "/fd/" + strconv.Itoa(dir)
}

// mentionsProc says whether a path may come through proc(5), whose links depend on
// who looks.
func mentionsProc(name string) bool { return strings.Contains(name, "proc") }

// open opens what is at a path of the tree.
func (t *tree) open(name string, follow bool) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	if !follow {
		how.Flags |= unix.O_NOFOLLOW
	}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(t.root, name, &how)
		// EAGAIN: something was renamed meanwhile, and Linux cannot tell that the
		// path has stayed within the root.
		if err == unix.EINTR || err == unix.EAGAIN && try < 10 {
			continue
		}
		return fd, err
	}
}

// straight is the way of most paths, and saves half of the calls: without dots and
// links a path is its own canonical form.
func (t *tree) straight(name string) (place, bool) {
	if path.Clean(name) != name {
		return place{}, false
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(t.root, name, &how)
	missing := err == unix.ENOENT
	if missing {
		how.Flags |= unix.O_DIRECTORY
		fd, err = unix.Openat2(t.root, path.Dir(name), &how)
	}
	if err != nil {
		return place{}, false
	}
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	unix.Close(fd)
	switch {
	case err != nil:
		return place{}, false
	case missing && stat.Nlink == 0:
		return place{}, true // the directory has been removed: nothing can be made in it
	case missing:
		return place{name, absent}, true
	}
	return there(name, &stat), true
}

// at closes a descriptor and says what it was.
func (t *tree) at(fd int) place {
	defer unix.Close(fd)
	return t.named(fd)
}

// named says what a descriptor of ours is.
func (t *tree) named(fd int) place {
	var stat unix.Stat_t
	name, err := readLink("/proc/self/fd/" + strconv.Itoa(fd))
	switch {
	case err != nil:
		return place{state: unnamed}
	case !strings.HasPrefix(name, "/") || unix.Fstat(fd, &stat) != nil:
		return place{}
	}
	return t.placed(name, &stat)
}

// placed is the place of a file that was reached by a descriptor, with the name that
// Linux has for it. One that is marked as removed may be so called, or a file that the jail
// has mounted there and keeps by that mount alone; it may have further names, which nobody
// can say; else it is no place of the tree, as one without links is.
func (t *tree) placed(name string, stat *unix.Stat_t) place {
	before, marked := strings.CutSuffix(name, removed)
	switch {
	case !marked && stat.Nlink > 0, t.holds(name, stat):
		return there(name, stat)
	case marked && t.holds(before, stat):
		return there(before, stat)
	case stat.Nlink > 0:
		return place{state: unnamed}
	}
	return place{state: loose}
}

// holds says whether a file is the one at a canonical path.
func (t *tree) holds(name string, stat *unix.Stat_t) bool {
	fd, err := t.open(name, false)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var now unix.Stat_t
	return unix.Fstat(fd, &now) == nil && now.Dev == stat.Dev && now.Ino == stat.Ino
}

func there(name string, stat *unix.Stat_t) place {
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return place{name, directory}
	}
	return place{name, present}
}

// kindAt is the kind of file at a canonical path, such as S_IFIFO; false where nobody can
// say.
func (t *tree) kindAt(name string) (kind uint32, ok bool) {
	fd, err := t.open(name, false)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	return stat.Mode & unix.S_IFMT, err == nil
}

// beside is the place of a name that is not there, in a directory that is.
func (t *tree) beside(name string, follow bool) (place, bool) {
	dir, last := path.Split(strings.TrimRight(name, "/"))
	fd, err := t.open(dir, true)
	if err == unix.ENOTDIR {
		return place{}, true
	}
	if err != nil {
		return place{}, false // nothing, or by way of a link into proc(5): walk
	}
	if follow {
		var buffer [1]byte
		if _, err := unix.Readlinkat(fd, last, buffer[:]); err == nil {
			unix.Close(fd)
			return place{}, false // a link to what is not there: walk
		}
	}
	above := t.at(fd)
	if above.state != directory {
		return place{}, true
	}
	return place{path.Join(above.path, last), absent}, true
}

// base is the directory that a relative path begins at: EBADF where there is none,
// ENOENT where it has been removed.
func (t *tree) base(tid, dir int) (string, error) {
	link := directoryOf(tid, dir)
	name, err := readLink(link)
	switch {
	case err == unix.ENOENT:
		return "", unix.EBADF
	case err != nil:
		return "", err // ENAMETOOLONG: deeper than any path can say
	case !strings.HasPrefix(name, "/"):
		return "", unix.EBADF // a pipe, a socket
	}
	if strings.HasSuffix(name, removed) {
		var stat unix.Stat_t
		if unix.Stat(link, &stat) != nil || stat.Nlink == 0 {
			return "", unix.ENOENT
		}
	}
	return name, nil
}

// above is the way out of a directory that has been removed: nothing can be made in
// it, but the one that held it is where its ".." leads. What is left of the name
// begins at base.
func (t *tree) above(tid, dir int, name string) (base, rest string, err error) {
	fd, err := unix.Open(directoryOf(tid, dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", "", err
	}
	defer func() { unix.Close(fd) }()
	parts := strings.Split(name, "/")
	for i, part := range parts {
		switch part {
		case "", ".":
			continue
		case "..":
		default:
			return "", "", unix.ENOENT
		}
		up, err := unix.Openat(fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", "", err
		}
		unix.Close(fd)
		fd = up
		if at := t.named(fd); at.state == directory {
			return at.path, cmp.Or(strings.Join(parts[i+1:], "/"), "."), nil
		}
	}
	return "", "", unix.ENOENT
}

// removed is what Linux adds to the name of a file that has been removed (proc(5)).
const removed = " (deleted)"

// opened is what a descriptor of a stopped thread means.
func (t *tree) opened(tid, fd int) place {
	link := "/proc/" + strconv.Itoa(tid) + "/fd/" + strconv.Itoa(fd)
	name, err := readLink(link)
	var stat unix.Stat_t
	switch {
	case err == unix.ENAMETOOLONG:
		return place{state: unnamed}
	case err != nil || unix.Stat(link, &stat) != nil:
		return place{}
	case !strings.HasPrefix(name, "/"):
		return place{state: loose}
	}
	return t.placed(name, &stat)
}

// readLink reads a symbolic link. One in proc(5) to what lies deeper than a path can
// say is ENAMETOOLONG.
func readLink(link string) (string, error) {
	var buffer [maxPath + len(removed)]byte
	n, err := unix.Readlink(link, buffer[:])
	return string(buffer[:max(n, 0)]), err
}

// walk resolves a path name by name. It is slower, and knows what one call cannot:
// whose /proc/self it is, the links in /proc that lead to open files, what a link
// to nothing would make, and places that the launcher's own rights do not reach.
func (t *tree) walk(tid int, name string, follow bool) place {
	at, rest, links := "/", strings.Split(name, "/"), 0
	must := strings.HasSuffix(name, "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		last := !anyLeft(rest)
		next := path.Join(at, part)
		if at == "/proc" && (part == "self" || part == "thread-self") {
			inner, thread := insideIDs(tid)
			next = "/proc/" + inner
			if part == "thread-self" {
				next += "/task/" + thread
			}
		}
		fd, err := t.open(next, false)
		switch {
		case err == unix.ENAMETOOLONG && len(part) <= maxName:
			return place{state: unnamed} // deeper than a path can say
		case err == unix.EACCES:
			return place{path.Join(append([]string{next}, rest...)...), absent} // nobody can say more
		case err != nil && last:
			return place{next, absent}
		case err == unix.ENOENT:
			return place{path.Join(append([]string{next}, rest...)...), beyond}
		case err != nil:
			return place{}
		}
		var stat unix.Stat_t
		err = unix.Fstat(fd, &stat)
		kind := stat.Mode & unix.S_IFMT
		if err != nil {
			unix.Close(fd)
			return place{}
		}
		if kind != unix.S_IFLNK || last && !follow && !must {
			unix.Close(fd)
			if last {
				return there(next, &stat)
			}
			if kind != unix.S_IFDIR {
				return place{}
			}
			at = next
			continue
		}
		var buffer [maxPath + len(removed)]byte
		n, err := unix.Readlinkat(fd, "", buffer[:])
		unix.Close(fd)
		if links++; err != nil || links > maxLinks {
			return place{}
		}
		target := string(buffer[:n])
		if strings.HasPrefix(next, "/proc/") && (!strings.HasPrefix(target, "/") || strings.HasSuffix(target, removed)) {
			// It leads to the file itself, whatever its name has become.
			to := t.linked(next, target)
			if last {
				return to
			}
			if to.state != directory {
				return place{}
			}
			at = to.path
			continue
		}
		if strings.HasPrefix(target, "/") {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	fd, err := t.open(at, true)
	if err != nil {
		return place{}
	}
	return t.at(fd)
}

// linked is where a link in proc(5) leads: a canonical path, and what it says.
func (t *tree) linked(link, target string) place {
	var stat unix.Stat_t
	switch {
	case unix.Fstatat(t.root, strings.TrimPrefix(link, "/"), &stat, 0) != nil:
		return place{}
	case !strings.HasPrefix(target, "/"):
		return place{state: loose}
	}
	return t.placed(target, &stat)
}

// anyLeft says whether any name is left.
func anyLeft(rest []string) bool {
	for _, part := range rest {
		if part != "" && part != "." {
			return true
		}
	}
	return false
}

// insideIDs are the numbers of a thread's process and of itself in its own pid
// namespace (proc(5), NStgid and NSpid).
func insideIDs(tid int) (process, thread string) {
	return statusField(tid, "NStgid:"), statusField(tid, "NSpid:")
}

// groupOf is the process of a thread, as we see it.
func groupOf(tid int) int {
	n, err := strconv.Atoi(statusField(tid, "Tgid:"))
	if err != nil {
		return tid
	}
	return n
}

// statusField is the last word of a line of /proc/<tid>/status.
func statusField(tid int, name string) string {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			words := bytes.Fields(rest)
			if len(words) > 0 {
				return string(words[len(words)-1])
			}
		}
	}
	return ""
}
