package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A path through /proc/self is another for whoever asks: what the command itself has there
// says nothing of a session.
func TestPathsOfWhoAsksAreNotExplained(t *testing.T) {
	dir := t.TempDir()
	for name, to := range map[string]string{"out": "/dev/stdout", "chain": "out", "plain": "/etc", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, link := range map[string]string{
		"/proc/self/cwd/x":            "/proc/self",
		"/proc/thread-self/root/etc":  "/proc/thread-self",
		"/dev/fd/3":                   "/proc/self",
		"/dev/../dev/stdin":           "/proc/self",
		filepath.Join(dir, "chain"):   "/proc/self",
		filepath.Join(dir, "plain/x"): "",
		filepath.Join(dir, "loop"):    "",
		"/proc/1/status":              "",
		"/proc/selfish":               "",
		"/":                           "",
		"no-such-file":                "",
	} {
		if got := ofWhoAsks(path); got != link {
			t.Errorf("%s: %q, want %q", path, got, link)
		}
	}
	if _, _, err := question([]string{"write", "/dev/stdout"}, "", "", 0, nil); err == nil {
		t.Error("it is explained")
	}
}
