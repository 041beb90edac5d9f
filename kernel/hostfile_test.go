package kernel

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestHostFileIsReadAgainWhenItChanges: also by a change of the same size within one tick of
// the clock, by another file of its name, and by one whose times were set back.
func TestHostFileIsReadAgainWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	look := func(want string) {
		t.Helper()
		if got, err := hostFile(path); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	put := func(at, text string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(-age)
		if err := os.Chtimes(at, when, when); err != nil {
			t.Fatal(err)
		}
	}
	for _, age := range []time.Duration{0, time.Hour, -time.Hour} {
		for _, text := range []string{"one", "two", "six", "three"} {
			put(path, text, age)
			look(text)
		}
	}
	put(path+".new", "other", time.Hour)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	look("other")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := hostFile(path); !os.IsNotExist(err) {
		t.Errorf("a file that is gone: %v", err)
	}
	// One that has been left alone is kept.
	if _, err := hostFile("/bin/sh"); err != nil {
		t.Fatal(err)
	}
	if kept, ok := hostFiles.Load("/bin/sh"); !ok || len(kept.(keptFile).content) == 0 {
		t.Error("/bin/sh is read anew each time")
	}
}
