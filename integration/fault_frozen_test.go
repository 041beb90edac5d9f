package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/kernel"
)

// Disks that do not answer: who writes there stands still in Linux, where no signal
// reaches him, until the disk answers again.

// FIFREEZE and FITHAW (linux/fs.h) have a file system take no more writes, and take them.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

var needLoop = register("loop", func() string {
	if os.Geteuid() != 0 {
		return "an ordinary user mounts no file of blocks"
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return err.Error()
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return err.Error()
	}
	return ""
})

// freezing is a directory on a disk of its own, and what makes that disk stand still and
// go on.
func freezing(t *testing.T) (dir string, freeze, thaw func()) {
	t.Helper()
	require(t, needLoop)
	room := newDirIn(t, "/var/tmp")
	image, disk := filepath.Join(room, "image"), filepath.Join(room, "disk")
	for _, command := range [][]string{{"truncate", "-s", "32M", image}, {"mkfs.ext4", "-q", image}, {"mkdir", disk}, {"mount", "-o", "loop", image, disk}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	root, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	frozen := false
	ask := func(request uint, to bool) {
		if frozen == to {
			return
		}
		if err := unix.IoctlSetInt(int(root.Fd()), request, 0); err != nil {
			t.Errorf("ioctl %#x: %v", request, err)
		}
		frozen = to
	}
	t.Cleanup(func() {
		ask(fiThaw, false)
		root.Close()
		eventually(t, "the disk can be taken away", hang, func() bool { return unix.Unmount(disk, 0) == nil })
	})
	dir = filepath.Join(disk, "session")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, func() { t.Helper(); ask(fiFreeze, true) }, func() { t.Helper(); ask(fiThaw, false) }
}

// writing is Python that says that it runs, and writes until it is ended.
const writing = `
import time
open("up", "w").close()
while True:
    open("f", "a").write("x")
    time.sleep(0.001)`

// TestADiskThatDoesNotAnswer: the cell that waits for it is ended at its limit, and the
// call comes back although the worker does not end; nothing else begins beside it; other
// sessions run; and when the disk answers, so does the session.
func TestADiskThatDoesNotAnswer(t *testing.T) {
	dir, freeze, thaw := freezing(t)
	s := open(t, at(dir), inMode(t, "enforce"), cellLimit(3*time.Second))
	s.ok("1")
	done := s.begun(kernel.Call{Code: writing})
	freeze()
	ends(t, done, kernel.KernelTimeout)
	pid := s.kernel.Info().WorkerPID
	for range 3 {
		r := s.run("6 * 7")
		if !r.IsError || !strings.Contains(r.text(), "waits within a system call") {
			t.Errorf("beside a worker that has not ended: %s", r)
		}
	}
	other := open(t, inMode(t, "enforce"))
	other.shows("6 * 7", "42")
	thaw()
	eventually(t, "the session runs again", hang, func() bool { r := s.run("6 * 7"); return !r.IsError && strings.HasSuffix(r.text(), "42") })
	if now := s.kernel.Info().WorkerPID; now == pid {
		t.Errorf("worker %d serves again, which was killed", now)
	}

	done = s.begun(kernel.Call{Code: writing, Timeout: hang})
	freeze()
	closed := make(chan error, 1)
	go func() { closed <- s.kernel.Close() }()
	ends(t, done, kernel.KernelKilled)
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(err.Error(), "does not end") {
			t.Errorf("close: %v", err)
		}
	case <-time.After(hang):
		t.Fatal("close waits for the disk")
	}
	thaw() // and the cleanup finds the disk unused
}
