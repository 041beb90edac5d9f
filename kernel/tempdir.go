package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	path  string
	lock  *os.File
	stubs []heldStub
	// needless are the paths at which no stub is needed, since nothing can be made.
	needless []string
}

func newTempDir() (*tempDir, error) {
	path, err := os.MkdirTemp("", fmt.Sprintf("pi-py-kernel-%d-%s-*", os.Getpid(), startTime(os.Getpid())))
	if err != nil {
		return nil, fmt.Errorf("make session temp directory: %w", err)
	}
	// The worker, under whatever id, reads its source and its outputs here.
	if err := os.Chmod(path, 0o755); err != nil {
		_ = os.RemoveAll(path)
		return nil, fmt.Errorf("session temp directory: %w", err)
	}
	// The lock is held before it has the name by which a sweep finds it: one that
	// came in between would take it, and the directory with it.
	making := filepath.Join(path, lockName+".new")
	lock, err := os.OpenFile(making, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Rename(making, filepath.Join(path, lockName))
	}
	if err != nil {
		_ = os.RemoveAll(path)
		return nil, fmt.Errorf("lock session temp directory: %w", err)
	}
	return &tempDir{path: path, lock: lock}, nil
}

func (d *tempDir) remove() {
	d.release()
	_ = os.RemoveAll(d.path) // what is left, the next start's sweep takes
	d.lock.Close()
}

// sweepTemp removes what launchers that no longer live have left; the number of
// directories removed. One without a lock file is being made or removed: its
// name says by whom.
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
		switch {
		case err == nil:
			if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				sweepStubs(path)
				if os.RemoveAll(path) == nil {
					swept++
				}
			}
			lock.Close()
		case errors.Is(err, fs.ErrNotExist) && makerGone(filepath.Base(path)):
			if os.RemoveAll(path) == nil {
				swept++
			}
		}
	}
	return swept
}

// makerGone says whether the process that a directory's name tells of has ended.
func makerGone(name string) bool {
	parts := strings.Split(name, "-")
	if len(parts) != 6 {
		return false
	}
	pid, err := strconv.Atoi(parts[3])
	return err == nil && pid > 0 && startTime(pid) != parts[4]
}

// startTime is when a process began, in clock ticks since boot (proc(5), field
// 22), so that a pid that was given out again is told apart; "0" for none.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "0"
	}
	// The command's name, in parentheses, may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "0"
	}
	return fields[19]
}
