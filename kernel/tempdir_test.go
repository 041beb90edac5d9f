package kernel

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A launcher that sweeps while others make their directories takes none of
// theirs, and takes what the dead have left.
func TestSweepSparesDirectoriesBeingMade(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead := filepath.Join(os.TempDir(), "pi-py-kernel-1-0-1")
	if err := os.Mkdir(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var sweepers sync.WaitGroup
	for range 2 {
		sweepers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					sweepTemp()
				}
			}
		})
	}
	for range 100 {
		d, err := newTempDir()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(d.path, "runtime"), 0o755); err != nil {
			t.Fatal(err)
		}
		d.remove()
	}
	close(stop)
	sweepers.Wait()
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("what a dead launcher left is still there: %v", err)
	}
}
