package artefact

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// during is what a Watch tells of what do does in a directory that begin has filled.
func during(t *testing.T, begin, do func(dir string)) (files []File, notes []string) {
	t.Helper()
	dir := t.TempDir()
	begin(dir)
	w, err := Begin(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	do(dir)
	return w.End()
}

func write(t *testing.T, parts ...string) {
	t.Helper()
	path, text := filepath.Join(parts[:len(parts)-1]...), parts[len(parts)-1]
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWasMadeAndChanged(t *testing.T) {
	for range 20 { // the change may come within the clock's tick
		got, notes := during(t, func(dir string) {
			write(t, dir, "same", "old")
			write(t, dir, "equal", "old")
			write(t, dir, "in", "deep", "longer", "old")
			write(t, dir, "gone", "old")
		}, func(dir string) {
			write(t, dir, "equal", "new")
			if err := os.Chtimes(filepath.Join(dir, "equal"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			write(t, dir, "in", "deep", "longer", "newer")
			write(t, dir, "in", "fresh", "x")
			if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
				t.Fatal(err)
			}
		})
		want := []File{{"equal", 3, Changed}, {"in/deep/longer", 5, Changed}, {"in/fresh", 1, Created}}
		if !slices.Equal(got, want) || len(notes) > 0 {
			t.Fatalf("%v %v, not %v", got, notes, want)
		}
	}
}

func TestNothingIsFollowedOrOpened(t *testing.T) {
	outside := t.TempDir()
	done := make(chan []File)
	go func() {
		got, _ := during(t, func(dir string) {
			for name, to := range map[string]string{"out": outside, "loop": "."} {
				if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
					t.Error(err)
				}
			}
		}, func(dir string) {
			write(t, outside, "secret", "x")
			write(t, dir, ".git", "index", "x")
			write(t, dir, "control", "x")
			if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
				t.Error(err)
			}
		})
		done <- got
	}()
	select {
	case got := <-done:
		if want := []File{{"control", 1, Created}}; !slices.Equal(got, want) {
			t.Fatalf("%v, not %v", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits")
	}
}

func TestMoreThanIsLookedAtIsSaid(t *testing.T) {
	got, notes := during(t, func(string) {}, func(dir string) {
		for n := range MaxFiles + 7 {
			write(t, dir, fmt.Sprintf("%03d", n), "x")
		}
	})
	if len(got) != MaxFiles || len(notes) != 1 || !strings.Contains(notes[0], " 7 more") {
		t.Errorf("%d files; %v", len(got), notes)
	}
	got, notes = during(t, func(dir string) {
		write(t, dir, strings.Repeat("d/", MaxDepth+1), "deep", "x")
	}, func(dir string) { write(t, dir, "d", "new", "x") })
	if len(got) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "beyond") {
		t.Errorf("%v; %v", got, notes)
	}
}

func TestADirectoryThatIsClosedIsSaid(t *testing.T) {
	if os.Geteuid() == 0 {
		// Nothing is closed to root: this thread looks as another user (setfsuid(2), which
		// takes the capabilities to pass over modes along; capabilities(7)).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setfsuid(0) }()
	}
	_, notes := during(t, func(dir string) {
		if err := os.Mkdir(filepath.Join(dir, "closed"), 0); err != nil {
			t.Fatal(err)
		}
	}, func(string) {})
	if len(notes) != 1 || !strings.Contains(notes[0], "1 directories") {
		t.Errorf("%v", notes)
	}
}

func BenchmarkLookAtAThousandFiles(b *testing.B) {
	dir := b.TempDir()
	for n := range 1000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	w, err := Begin(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for b.Loop() {
		w.End()
	}
}
