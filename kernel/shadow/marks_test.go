package shadow

import (
	"os"
	"path"
	"path/filepath"
	"testing"

	"cellblock/policy"
)

// FuzzRedirected: whatever a mark says, a renamed directory's former name is beneath its
// tree or in the same directory, and never that itself.
func FuzzRedirected(f *testing.F) {
	for _, text := range []string{"was", "/a/b", "/", "", ".", "..", "a/b", "/../etc", "/a/../../etc", "/a//b", "/a/", "a\x00b"} {
		f.Add(text)
	}
	w := &walk{tree: Tree{Path: "/srv/tree"}}
	f.Fuzz(func(t *testing.T, text string) {
		const where = "/srv/tree/sub"
		from, ok := w.redirected(text, where)
		if !ok {
			return
		}
		if path.Clean(from) != from || from == w.tree.Path || from == where || !policy.Within(w.tree.Path, from) {
			t.Errorf("%q leads to %q", text, from)
		}
		if text[0] != '/' && path.Dir(from) != where {
			t.Errorf("%q leads to %q", text, from)
		}
	})
}

// FuzzOrigin: a mark is a handle that ends where the mark ends, or none.
func FuzzOrigin(f *testing.F) {
	f.Add([]byte("\x00\xfb\x1d\x00\x01" + "0123456789abcdef" + "handle"))
	f.Add([]byte("\x00\xfb\x15\x00\x01" + "0123456789abcdef"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, mark []byte) {
		if o := readOrigin(mark); o != (origin{}) && (len(o.handle) != len(mark)-21 || o.handle == "") {
			t.Errorf("%x: %+v", mark, o)
		}
	})
}

// TestMarksOfAnotherKindAreNone: overlays of a privileged launcher have their marks where
// a session writes none, and what it sets by the names of the others' is an attribute.
func TestMarksOfAnotherKindAreNone(t *testing.T) {
	const forge = `
import os
for name, mark, value in ("new/pub", "redirect", b"/private"), ("home", "opaque", b"y"), ("new/file", "origin", b"\0\xfb\x1d\0\x01" + b"x" * 24):
    try:
        os.setxattr(name, "user.overlay." + mark, value)
    except OSError:
        assert os.getxattr("control", "user.control")`
	h := newHost(t, `mkdir -p private home/alice; printf secret >private/key; printf h >home/alice/mail; printf c >control
python3 -c 'import os; os.setxattr("control", "user.control", b"attributes can be set here")'`,
		"mkdir -p new/pub; printf n >new/file; python3 -c '"+forge+"'")
	d, err := h.layer.Diff()
	if err != nil || len(d.Unread) > 0 {
		t.Fatal(err, d.Unread)
	}
	for _, c := range d.Changes {
		if c.Kind == Renamed || c.Kind == Deleted {
			t.Errorf("the session did not do it: %s %s %s", c.Kind, c.From, c.Path)
		}
	}
	if _, err := h.layer.Commit(CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"private/key", "home/alice/mail", "new/pub", "new/file"} {
		if _, err := os.Lstat(filepath.Join(h.dir, name)); err != nil {
			t.Error(err)
		}
	}
}
