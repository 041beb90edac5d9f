package kernel

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// release gives the stubs back, and removes those that nobody else uses.
func (d *tempDir) release() {
	for _, h := range slices.Backward(d.stubs) {
		removeStub(h.stubRecord, h.file)
		if h.file != nil {
			h.file.Close()
		}
	}
	d.stubs = nil
}

// sweepStubs removes what the launcher of a directory left behind.
func sweepStubs(dir string) {
	file, err := os.OpenFile(filepath.Join(dir, stubRecords), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var r stubRecord
		if json.Unmarshal(lines.Bytes(), &r) != nil || !filepath.IsAbs(r.Path) {
			continue // the last line of a launcher that was killed while it wrote
		}
		stub, err := openStub(r.Path)
		if err != nil {
			stub = nil
		}
		removeStub(r, stub)
		if stub != nil {
			stub.Close()
		}
	}
}

// removeStub removes a stub and the directories that came with it, as far as
// they are as they were made and nobody else holds them.
func removeStub(r stubRecord, file *os.File) {
	if file != nil {
		info, err := file.Stat()
		if err == nil && isStub(info) && there(file, r.Path) && unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			unlink(r.Path, info.IsDir())
		}
	}
	if r.Draft != "" {
		if info, err := os.Lstat(r.Draft); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			unlink(r.Draft, false)
		}
	}
	for _, dir := range slices.Backward(r.Made) {
		unlink(dir, true) // not, where something is in it
	}
}

func unlink(path string, dir bool) {
	parent, err := directory(filepath.Dir(path))
	if err != nil {
		return
	}
	defer unix.Close(parent)
	flags := 0
	if dir {
		flags = unix.AT_REMOVEDIR
	}
	_ = unix.Unlinkat(parent, filepath.Base(path), flags)
}
