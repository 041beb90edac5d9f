package kernel

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"cellblock/policy"
)

// sessionDirectory returns the canonical path of a session directory that can
// serve, or why it cannot and what to do.
func sessionDirectory(path string, state []string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("session directory: none given")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("session directory %q: %w", path, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if os.IsNotExist(err) {
		return "", fmt.Errorf("session directory %q: does not exist: make it first", path)
	}
	if err != nil {
		return "", fmt.Errorf("session directory %q: %w", path, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", fmt.Errorf("session directory %q: %w", path, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("session directory %q: is not a directory", path)
	}
	if err := unix.Access(real, unix.W_OK|unix.X_OK); err != nil {
		return "", fmt.Errorf("session directory %q: cannot be written by uid %d: %w", path, os.Geteuid(), err)
	}
	for _, whole := range []string{"/", "/tmp", "/run", "/dev", "/proc", "/sys", "/etc", "/usr"} {
		if real == whole {
			return "", fmt.Errorf("session directory %q: a session may not own %s: use a directory of its own", path, whole)
		}
	}
	for _, own := range state {
		if policy.Within(own, real) || policy.Within(real, own) {
			return "", fmt.Errorf("session directory %q: overlaps the launcher's own %s: use another (--session DIR)", path, own)
		}
	}
	return real, nil
}
