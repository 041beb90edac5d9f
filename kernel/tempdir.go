package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	tempPattern = "pi-py-kernel-*"
	lockName    = ".lock"
)

// tempDir is a generation's own directory on the host: full outputs and the
// worker's source. Its lock is held while the launcher lives, so that the next
// start can tell what a killed one left.
type tempDir struct {
	path string
	lock *os.File
}

func newTempDir() (*tempDir, error) {
	path, err := os.MkdirTemp("", tempPattern)
	if err != nil {
		return nil, fmt.Errorf("make session temp directory: %w", err)
	}
	// The worker, under whatever id, reads its source and its outputs here.
	if err := os.Chmod(path, 0o755); err != nil {
		os.RemoveAll(path)
		return nil, fmt.Errorf("session temp directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		os.RemoveAll(path)
		return nil, fmt.Errorf("lock session temp directory: %w", err)
	}
	return &tempDir{path: path, lock: lock}, nil
}

func (d *tempDir) remove() {
	os.RemoveAll(d.path)
	d.lock.Close()
}

// sweepTemp removes what launchers that no longer live have left; the number of
// directories removed. A directory without a lock file is either not ours or
// being made at this moment: it stays.
func sweepTemp() int {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPattern))
	swept := 0
	for _, path := range found {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && os.RemoveAll(path) == nil {
			swept++
		}
		lock.Close()
	}
	return swept
}
