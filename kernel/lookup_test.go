package kernel

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestLookupsShareWhatTheyHaveSeen: many look-ups of one moment say what each alone would, and
// what is at the end of a way with links and dots is what is there.
func TestLookupsShareWhatTheyHaveSeen(t *testing.T) {
	room, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(room, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(room+"/c/file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"up": "a/b/..", "over": room + "/c", "gone": "nowhere/x", "file": "c/file", "round": "round", "root": "/"} {
		if err := os.Symlink(target, filepath.Join(room, name)); err != nil {
			t.Fatal(err)
		}
	}
	shared := hostTree{}
	for path, want := range map[string]struct {
		leads       string
		exists, dir bool
	}{
		"/a/b":        {"/a/b", true, true},
		"/c/file":     {"/c/file", true, false},
		"/up":         {"/a", true, true},
		"/up/b/../b":  {"/a/b", true, true},
		"/over/file":  {"/c/file", true, false},
		"/over/none":  {"/c/none", false, false},
		"/file":       {"/c/file", true, false},
		"/file/below": {"/c/file/below", false, false},
		"/gone/y":     {"/nowhere/x/y", false, false},
	} {
		got := shared.lookup(room + path)
		if got.Path != room+want.leads || got.Exists != want.exists || got.Dir != want.dir {
			t.Errorf("%s: %+v", path, got)
		}
		if alone := lookup(room + path); !reflect.DeepEqual(got, alone) {
			t.Errorf("%s: %+v among others, %+v alone", path, got, alone)
		}
	}
	if got := shared.lookup(room + "/root"); got.Path != "/" || !got.Exists || !got.Dir {
		t.Errorf("the root: %+v", got)
	}
	if got := shared.lookup(room + "/round"); got.Err == "" {
		t.Errorf("a link to itself: %+v", got)
	}
}
