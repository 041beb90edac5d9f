package policy

import (
	"strings"
	"testing"
	"testing/quick"
)

// components is what a reader means by a path: the names from the root down,
// with "", "." and ".." taken in order.
func components(p string) []string {
	var names []string
	for name := range strings.SplitSeq(p, "/") {
		switch name {
		case "", ".":
		case "..":
			if len(names) > 0 {
				names = names[:len(names)-1]
			}
		default:
			names = append(names, name)
		}
	}
	return names
}

// within is Within said component by component.
func within(root, p string) bool {
	if !strings.HasPrefix(root, "/") || !strings.HasPrefix(p, "/") {
		return false
	}
	r, c := components(root), components(p)
	if len(r) > len(c) {
		return false
	}
	for i := range r {
		if r[i] != c[i] {
			return false
		}
	}
	return true
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		root, p string
		want    bool
	}{
		{"/work", "/work", true},
		{"/work", "/work/", true},
		{"/work/", "/work", true},
		{"/work", "/work/a/b", true},
		{"/work", "/work//a", true},
		{"//work", "/work/a", true},
		{"/work", "/work/./a/..", true},
		{"/work", "/work/a/../../work/b", true},
		{"/work", "/work-evil", false},
		{"/work", "/work-evil/a", false},
		{"/work", "/workshop", false},
		{"/work", "/wor", false},
		{"/work", "/", false},
		{"/work", "/work/..", false},
		{"/work", "/work/../etc/passwd", false},
		{"/work", "/work/a/../../etc", false},
		{"/work/a", "/work", false},
		{"/", "/", true},
		{"/", "/anything", true},
		{"/", "/..", true},
		{"/..", "/etc", true},
		{"/work", "/../work/a", true},
		{"/work", "work", false},
		{"work", "/work", false},
		{"work", "work", false},
		{"", "/", false},
		{"/", "", false},
		{"/Work", "/work", false}, // Linux compares bytes
		{"/wörk", "/wo\u0308rk", false},
		{"/work", "/work\x00/a", false},
	} {
		if got := Within(c.root, c.p); got != c.want {
			t.Errorf("Within(%q, %q) is %v, want %v", c.root, c.p, got, c.want)
		}
		if got := within(c.root, c.p); got != c.want {
			t.Errorf("the model says %v for %q in %q, the table %v", got, c.p, c.root, c.want)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/work", "/work", true},
		{"/work", "/work/a", true},
		{"/", "/work", true},
		{"/work", "/work-evil", false},
		{"/work/a", "/work/b", false},
		{"work", "/work", false},
	} {
		if Overlap(c.a, c.b) != c.want || Overlap(c.b, c.a) != c.want {
			t.Errorf("Overlap(%q, %q) is %v and %v, want %v", c.a, c.b, Overlap(c.a, c.b), Overlap(c.b, c.a), c.want)
		}
	}
}

// spelling is a way to write a path, made of the pieces that matter.
type spelling []uint8

var pieces = []string{"/", "a", "b", "work", "work-evil", ".", "..", "...", "/a", "/..", "//", "/./"}

func (s spelling) String() string {
	path := "/"
	for _, n := range s {
		path += pieces[int(n)%len(pieces)]
	}
	return path
}

// TestWithinProperties: what holds for all paths.
func TestWithinProperties(t *testing.T) {
	properties := map[string]any{
		"it is the component-wise model": func(a, b spelling) bool {
			return Within(a.String(), b.String()) == within(a.String(), b.String())
		},
		"a path is within itself": func(a spelling) bool { return Within(a.String(), a.String()) },
		"a name below is within": func(a spelling) bool {
			return Within(a.String(), a.String()+"/below")
		},
		"a longer name beside is not": func(a spelling) bool {
			clean := "/" + strings.Join(components(a.String()), "/")
			return clean == "/" || !Within(clean, clean+"-evil")
		},
		"it is transitive": func(a, b, c spelling) bool {
			return !Within(a.String(), b.String()) || !Within(b.String(), c.String()) || Within(a.String(), c.String())
		},
		"both ways is the same place": func(a, b spelling) bool {
			both := Within(a.String(), b.String()) && Within(b.String(), a.String())
			return both == (strings.Join(components(a.String()), "/") == strings.Join(components(b.String()), "/"))
		},
		"how a path is spelt changes nothing": func(a, b spelling) bool {
			return Within(a.String(), b.String()) == Within(a.String()+"/./x/../", "/"+b.String()+"//")
		},
		"overlap is symmetric": func(a, b spelling) bool {
			return Overlap(a.String(), b.String()) == Overlap(b.String(), a.String())
		},
	}
	for name, property := range properties {
		if err := quick.Check(property, &quick.Config{MaxCount: 5000}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzWithin compares Within with the model on any bytes.
func FuzzWithin(f *testing.F) {
	for _, seed := range [][2]string{
		{"/work", "/work/a"}, {"/work", "/work-evil"}, {"/", "/.."}, {"/a/../b/", "//b/./c"}, {"", ""}, {"/\x00", "/\x00/a"}, {"/a/...", "/a/.../b"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, root, p string) {
		if got, want := Within(root, p), within(root, p); got != want {
			t.Errorf("Within(%q, %q) is %v, the model says %v", root, p, got, want)
		}
	})
}
