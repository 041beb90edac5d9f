package integration

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/integration/need"
)

// Tests of a host that runs out of something have that host for themselves: each is run
// again in a process of its own, with mounts and limits that nobody else feels.

// Variables by which such a process knows what it is: the test that it runs, and the
// small disks that it has still to mount, as PATH=BYTES with commas between them.
const (
	apartTest  = "CELLBLOCK_TEST_APART"
	apartDisks = "CELLBLOCK_TEST_DISKS"
)

// disk is a tmpfs of a few bytes over a directory.
type disk struct {
	path  string
	bytes int
}

// absent is what a test says that is skipped for want of something ([need.Absent]).
var absent = regexp.MustCompile(`: ([a-z0-9-]+) is absent: (.+)`)

// apart runs do in a process of this test's own in which each of the disks is mounted.
// prepare makes their directories, which both processes know by the room's name.
func apart(t *testing.T, disks func(room string) []disk, do func(t *testing.T, room string)) {
	t.Helper()
	if os.Getenv(apartTest) == t.Name() {
		do(t, os.Getenv("CELLBLOCK_TEST_ROOM"))
		return
	}
	require(t, needUserns)
	room := newDirIn(t, "/var/tmp")
	if err := os.Chmod(room, 0o755); err != nil {
		t.Fatal(err)
	}
	var wanted []string
	if disks != nil {
		for _, d := range disks(room) {
			if err := os.MkdirAll(d.path, 0o700); err != nil {
				t.Fatal(err)
			}
			wanted = append(wanted, fmt.Sprintf("%s=%d", d.path, d.bytes))
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		parts = append(parts, "^"+part+"$")
	}
	cmd := exec.Command(self, "-test.run="+strings.Join(parts, "/"), "-test.v", "-test.count=1", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), apartTest+"="+t.Name(), apartDisks+"="+strings.Join(wanted, ","), "CELLBLOCK_TEST_ROOM="+room)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() != 0 && len(wanted) > 0 {
		cmd.SysProcAttr = newUserNamespace()
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	if len(wanted) > 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNS
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in a process apart: %v\n%s", err, out)
		return
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		if m := absent.FindStringSubmatch(string(out)); m != nil && strings.Contains(string(out), "--- SKIP: "+t.Name()) {
			need.Absent(t, m[1], "in a process apart: "+m[2])
		}
		t.Errorf("the process apart has not run the test:\n%s", out)
		return
	}
	t.Logf("in a process apart:\n%s", out)
}

// mountApart mounts the disks of a process apart and starts the program again without
// the right to mount, before anything else has run.
func mountApart() error {
	wanted := os.Getenv(apartDisks)
	if wanted == "" {
		return nil
	}
	runtime.LockOSThread() // the thread whose rights the program keeps
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for one := range strings.SplitSeq(wanted, ",") {
		path, size, _ := strings.Cut(one, "=")
		if err := unix.Mount("small", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700,nr_inodes=400,size="+size); err != nil {
			return fmt.Errorf("mount a small disk at %s: %w", path, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up the right to mount: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, apartDisks+"=") })
	return syscall.Exec(self, os.Args, rest)
}
