package kernel

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"cellblock/policy"
)

func heldDir(t *testing.T, rules ...policy.Rule) *tempDir {
	t.Helper()
	d, err := newTempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.remove)
	if err := d.hold(rules); err != nil {
		t.Fatal(err)
	}
	return d
}

// names lists what a directory holds.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestStubsComeAndGo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	work := t.TempDir()
	file := policy.Rule{ID: "a", Path: work + "/a", Stub: policy.StubFile}
	deep := policy.Rule{ID: "b", Path: work + "/new/tree/b", Stub: policy.StubDirectory}
	first := heldDir(t, file, deep)
	for _, p := range []string{file.Path, deep.Path} {
		if found := lookup(p); found.Exists {
			t.Errorf("%s counts as something of the host's", p)
		}
	}
	second := heldDir(t, file, deep)
	first.remove()
	for _, p := range []string{file.Path, deep.Path} {
		if _, err := os.Lstat(p); err != nil {
			t.Errorf("removed while another session uses it: %v", err)
		}
	}
	second.remove()
	if left := names(t, work); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestStubsSpareWhatIsSomebodysOwn(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	work := t.TempDir()
	rules := []policy.Rule{{ID: "there", Path: work + "/there", Stub: policy.StubFile}, {ID: "b", Path: work + "/new/b", Stub: policy.StubFile},
		{ID: "c", Path: work + "/c", Stub: policy.StubFile}}
	if err := os.WriteFile(work+"/there", nil, 0o444); err != nil {
		t.Fatal(err)
	}
	d := heldDir(t, rules...)
	if err := os.WriteFile(work+"/new/mine", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(work+"/c", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(work+"/c", []byte("written on the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.remove()
	for _, kept := range []string{"there", "new/mine", "c"} {
		if _, err := os.Lstat(filepath.Join(work, kept)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(work + "/new/b"); err == nil {
		t.Error("the stub beside them is left")
	}
}

// TestSweepFindsStubs: a killed launcher leaves its locks and nothing else
// behind; the next sweep removes what it had made.
func TestSweepFindsStubs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	work := t.TempDir()
	d, err := newTempDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.hold([]policy.Rule{{Path: work + "/a", Stub: policy.StubFile}, {Path: work + "/x/y/b", Stub: policy.StubDirectory}}); err != nil {
		t.Fatal(err)
	}
	// As the end of the process closes them.
	d.lock.Close()
	for _, h := range d.stubs {
		h.file.Close()
	}
	// Killed between record and making, and in the middle of a record.
	if err := d.record(stubRecord{Path: work + "/never", Kind: policy.StubFile, Draft: work + "/.draft"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(work+"/.draft", nil, 0o444); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(d.path+"/"+stubRecords, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	file.WriteString(`{"path": "/et`)
	file.Close()
	if n := sweepTemp(); n != 1 {
		t.Errorf("%d directories swept, want 1", n)
	}
	if left := names(t, work); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestStubsAreMadeThroughNoLink(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	work, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, work+"/way"); err != nil {
		t.Fatal(err)
	}
	d, err := newTempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.remove)
	if err := d.hold([]policy.Rule{{ID: "r", Path: work + "/way/a", Stub: policy.StubFile}}); err == nil {
		t.Error("a stub was made through a symbolic link")
	}
	if made := names(t, other); len(made) != 0 {
		t.Errorf("made where the link leads: %v", made)
	}
}

// TestStubsOfManySessions: whoever holds a stub finds it in place for as long as
// it holds it, whatever the others do; the last one leaves nothing.
func TestStubsOfManySessions(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	work := t.TempDir()
	rules := []policy.Rule{{Path: work + "/a", Stub: policy.StubFile}, {Path: work + "/x/b", Stub: policy.StubDirectory}}
	var sessions sync.WaitGroup
	for range 8 {
		sessions.Go(func() {
			for range 50 {
				d, err := newTempDir()
				if err != nil {
					t.Error(err)
					return
				}
				if err := d.hold(rules); err != nil {
					t.Error(err)
				}
				for _, h := range d.stubs {
					if h.file == nil || !there(h.file, h.Path) {
						t.Errorf("%s is gone while it is held", h.Path)
					}
				}
				d.remove()
			}
		})
	}
	sessions.Wait()
	if left := names(t, work); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
