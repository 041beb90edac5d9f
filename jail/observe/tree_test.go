package observe

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFind resolves paths of this process and compares with where Linux itself goes.
func TestFind(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(in("a/b"), 0o755))
	must(os.WriteFile(in("a/f"), nil, 0o644))
	must(os.WriteFile(in("a/proc (deleted)"), nil, 0o644))
	must(os.MkdirAll(in("d (deleted)/e"), 0o755))
	must(os.WriteFile(in("d (deleted)/f"), nil, 0o644))
	must(os.Symlink("a/b", in("ab")))
	must(os.Symlink("f", in("a/tof")))
	must(os.Symlink("new", in("a/tonew")))
	must(os.Symlink("../a/../a/tonew", in("a/chain")))
	must(os.Symlink(in("a"), in("absolute")))
	must(os.Symlink("loop", in("loop")))
	must(os.Symlink("/proc/self/cwd", in("mycwd")))
	must(syscall.Mkfifo(in("fifo"), 0o644))
	open, err := os.Open(in("a"))
	must(err)
	defer open.Close()
	gone, err := os.Create(in("gone"))
	must(err)
	defer gone.Close()
	must(os.Remove(in("gone")))
	named, err := os.Open(in("a/proc (deleted)"))
	must(err)
	defer named.Close()
	below, err := os.Open(in("d (deleted)"))
	must(err)
	defer below.Close()
	decoy, err := os.Create(in("decoy"))
	must(err)
	defer decoy.Close()
	must(os.Remove(in("decoy")))
	must(os.WriteFile(in("decoy (deleted)"), nil, 0o644))
	must(os.WriteFile(in("two"), nil, 0o644))
	must(os.Link(in("two"), in("names")))
	two, err := os.Open(in("two"))
	must(err)
	defer two.Close()
	must(os.Remove(in("two")))
	pipe, other, err := os.Pipe()
	must(err)
	defer pipe.Close()
	defer other.Close()
	cwd, err := os.Getwd()
	must(err)
	cwd, err = filepath.EvalSymlinks(cwd)
	must(err)
	self := "/proc/" + strconv.Itoa(os.Getpid())

	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	must(err)
	defer unix.Close(root)
	tree := &tree{root}
	const follow, final = true, false
	fd := func(f *os.File) int { return int(f.Fd()) }
	for _, c := range []struct {
		dir    int
		name   string
		follow bool
		want   place
	}{
		{unix.AT_FDCWD, in("a/f"), follow, place{in("a/f"), present}},
		{unix.AT_FDCWD, dir + "/a//./b/../f", follow, place{in("a/f"), present}},
		{unix.AT_FDCWD, dir + "/a/b/", follow, place{in("a/b"), directory}},
		{unix.AT_FDCWD, in("a/x"), follow, place{in("a/x"), absent}},
		{unix.AT_FDCWD, dir + "/a/x/", final, place{in("a/x"), absent}},
		{unix.AT_FDCWD, in("a/x/y"), follow, place{in("a/x/y"), beyond}},
		{unix.AT_FDCWD, in("a/f/y"), follow, place{}},
		{unix.AT_FDCWD, in("ab/x"), follow, place{in("a/b/x"), absent}},
		{unix.AT_FDCWD, dir + "/ab/../x", follow, place{in("a/x"), absent}},
		{unix.AT_FDCWD, in("ab"), final, place{in("ab"), present}},
		{unix.AT_FDCWD, in("ab"), follow, place{in("a/b"), directory}},
		{unix.AT_FDCWD, in("a/tof"), follow, place{in("a/f"), present}},
		{unix.AT_FDCWD, in("a/tonew"), follow, place{in("a/new"), absent}},
		{unix.AT_FDCWD, in("a/tonew"), final, place{in("a/tonew"), present}},
		{unix.AT_FDCWD, in("a/chain"), follow, place{in("a/new"), absent}},
		{unix.AT_FDCWD, in("absolute/tonew"), follow, place{in("a/new"), absent}},
		{unix.AT_FDCWD, in("loop"), follow, place{}},
		{unix.AT_FDCWD, in("loop"), final, place{in("loop"), present}},
		{unix.AT_FDCWD, in("fifo"), follow, place{in("fifo"), present}},
		{unix.AT_FDCWD, in("a/proc (deleted)"), follow, place{in("a/proc (deleted)"), present}},
		{unix.AT_FDCWD, in("mycwd/no-such-name"), follow, place{filepath.Join(cwd, "no-such-name"), absent}},
		{unix.AT_FDCWD, "no-such-name", follow, place{filepath.Join(cwd, "no-such-name"), absent}},
		{unix.AT_FDCWD, "tree.go", follow, place{filepath.Join(cwd, "tree.go"), present}},
		{unix.AT_FDCWD, "", follow, place{}},
		{fd(open), "f", follow, place{in("a/f"), present}},
		{fd(open), "../ab/new", follow, place{in("a/b/new"), absent}},
		{fd(open), in("a/b"), follow, place{in("a/b"), directory}},
		{fd(gone), "x", follow, place{}},
		{99999, "x", follow, place{}},
		{unix.AT_FDCWD, "/proc/self/fd/" + strconv.Itoa(fd(open)), follow, place{in("a"), directory}},
		{unix.AT_FDCWD, "/proc/self/fd/" + strconv.Itoa(fd(open)) + "/new", follow, place{in("a/new"), absent}},
		{unix.AT_FDCWD, "/proc/self/fd/" + strconv.Itoa(fd(named)), follow, place{in("a/proc (deleted)"), present}},
		{unix.AT_FDCWD, "/proc/self/fd/" + strconv.Itoa(fd(below)), follow, place{in("d (deleted)"), directory}},
		{unix.AT_FDCWD, "/proc/self/fd/" + strconv.Itoa(fd(below)) + "/f", follow, place{in("d (deleted)/f"), present}},
		{unix.AT_FDCWD, "/proc/self/fd/" + strconv.Itoa(fd(below)) + "/e/new", follow, place{in("d (deleted)/e/new"), absent}},
		{fd(below), "f", follow, place{in("d (deleted)/f"), present}},
		{unix.AT_FDCWD, "/proc/self/fd/" + strconv.Itoa(fd(decoy)), follow, place{state: loose}},
		{unix.AT_FDCWD, "/proc/self/fd/" + strconv.Itoa(fd(two)), follow, place{state: unnamed}},
		{unix.AT_FDCWD, "/dev/fd/" + strconv.Itoa(fd(gone)), follow, place{state: loose}},
		{unix.AT_FDCWD, "/dev/fd/" + strconv.Itoa(fd(pipe)), follow, place{state: loose}},
		{unix.AT_FDCWD, "/proc/self/root" + in("a/new"), follow, place{in("a/new"), absent}},
		{unix.AT_FDCWD, "/proc/self/comm", follow, place{self + "/comm", present}},
		{unix.AT_FDCWD, "/", follow, place{"/", directory}},
		{unix.AT_FDCWD, "/..", follow, place{"/", directory}},
	} {
		if got := tree.find(os.Getpid(), c.dir, c.name, c.follow); got != c.want {
			t.Errorf("%d %q follow %v: %+v, want %+v", c.dir, c.name, c.follow, got, c.want)
		}
	}
	if got := tree.opened(os.Getpid(), fd(open)); got != (place{in("a"), directory}) {
		t.Errorf("opened: %+v", got)
	}
	for _, f := range []*os.File{gone, pipe} {
		if got := tree.opened(os.Getpid(), fd(f)); got != (place{state: loose}) {
			t.Errorf("opened without a place: %+v", got)
		}
	}
}
