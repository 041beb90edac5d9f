package integration

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAFileSystemMountedLater: a launcher that has long been running shows a session what
// the host has mounted since, and starts one whose directory lies there.
func TestAFileSystemMountedLater(t *testing.T) {
	require(t, needRoot)
	room := newDirIn(t, "/var/tmp")
	disk := filepath.Join(room, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	look := "import os; os.listdir(" + quote(disk) + ")"
	before := open(t)
	before.shows(look, "[]")

	if err := unix.Mount("later", disk, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		t.Fatal(err)
	}
	mounted := true
	unmount := func() {
		if mounted {
			mounted = false
			if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(unmount)
	write(t, filepath.Join(disk, "f"), "")
	for _, m := range bothModes {
		other := open(t, mode(m))
		other.shows(look, "['f']")
		dir, err := os.MkdirTemp(disk, "")
		if err != nil {
			t.Fatal(err)
		}
		there := open(t, at(dir), mode(m))
		there.ok("open('g', 'w').write('x');")
		if _, err := os.Stat(filepath.Join(dir, "g")); err != nil {
			t.Error(err)
		}
		if err := there.kernel.Close(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}

	unmount()
	after := open(t)
	after.shows(look, "[]")
}
