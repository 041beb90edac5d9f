package shadow

import (
	"path"
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
