package shadow

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxEntries bounds how many names of a layer and of the host are looked at.
	maxEntries = 2_000_000
	// maxDepth bounds how many directories are open at once.
	maxDepth = 256
	// maxChanges bounds what a diff holds in memory.
	maxChanges = 500_000
)

// ErrTooLarge says that a layer has more in it than a diff looks at.
var ErrTooLarge = errors.New("more names than a diff looks at: discard it, or look at its directory by hand")

// Diff walks the layer and compares it with the host as it is now.
func (l *Layer) Diff() (Diff, error) {
	d := Diff{Layer: l.ID, Session: l.Session, Changes: []Change{}}
	for _, t := range l.Trees {
		w := &walk{layer: l, tree: t, diff: &d}
		if err := w.run(); err != nil {
			return d, fmt.Errorf("shadow layer %s: %s: %w", l.ID, t.Path, err)
		}
	}
	d.pair(l)
	for i := range d.Changes {
		l.judge(&d.Changes[i])
	}
	sort.SliceStable(d.Changes, func(i, j int) bool { return d.Changes[i].Path < d.Changes[j].Path })
	return d, nil
}

type walk struct {
	layer *Layer
	tree  Tree
	diff  *Diff
	seen  int
	err   error
}

func (w *walk) run() error {
	upper, err := hostDir(w.layer.Upper(w.tree))
	if err != nil {
		return err
	}
	defer unix.Close(upper)
	lower, err := hostDir(w.tree.Path)
	if err != nil {
		lower = -1 // the whole directory is gone from the host
	} else {
		defer unix.Close(lower)
	}
	w.directory(upper, lower, "", w.tree.Path, 0)
	return w.err
}

func (w *walk) unread(name, why string) {
	w.diff.Unread = append(w.diff.Unread, path.Join(w.tree.Path, name)+": "+why)
}

func (w *walk) add(c Change) {
	if len(w.diff.Changes) >= maxChanges {
		w.err = ErrTooLarge
		return
	}
	c.tree, c.Path = w.tree, path.Join(w.tree.Path, c.name)
	w.diff.Changes = append(w.diff.Changes, c)
}

// directory compares what is in a directory of the layer with one of the host,
// which is below where at host; lower is -1 where there is none.
func (w *walk) directory(upper, lower int, at, where string, depth int) {
	if depth > maxDepth {
		w.unread(at, "deeper than a diff looks")
		return
	}
	list, err := names(upper)
	if err != nil {
		w.unread(at, err.Error())
		return
	}
	slices.Sort(list)
	if w.seen += len(list); w.seen > maxEntries {
		w.err = ErrTooLarge
	}
	for _, name := range list {
		if w.err != nil {
			return
		}
		w.entry(upper, lower, at, where, name, depth)
	}
	if opaque, _ := mark(upper, "opaque"); opaque == "y" && lower >= 0 {
		w.covered(list, lower, at)
	}
}

// covered tells what an opaque directory no longer shows: it was removed and made
// again, so that nothing stands for each single loss.
func (w *walk) covered(kept []string, lower int, at string) {
	list, err := names(lower)
	if err != nil {
		w.unread(at, "on the host: "+err.Error())
		return
	}
	for _, name := range list {
		if slices.Contains(kept, name) {
			continue
		}
		if s, err := lstat(lower, name); err == nil {
			w.add(Change{name: path.Join(at, name), Kind: Deleted, Old: fileOf(lower, name, s)})
		}
	}
}

func (w *walk) entry(upper, lower int, at, where, name string, depth int) {
	full := path.Join(at, name)
	mine, err := lstat(upper, name)
	if err != nil {
		w.unread(full, err.Error())
		return
	}
	var its *unix.Stat_t
	if lower >= 0 {
		if its, err = lstat(lower, name); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			w.unread(full, "on the host: "+err.Error())
			return
		}
	}
	if isWhiteout(mine) {
		if its != nil {
			w.add(Change{name: full, Kind: Deleted, Old: fileOf(lower, name, its)})
		}
		return
	}
	c := Change{name: full, New: fileOf(upper, name, mine)}
	if its != nil {
		c.Old = fileOf(lower, name, its)
	}
	if c.New.Type == "directory" {
		w.subdirectory(upper, lower, c, name, path.Join(where, name), mine, its, depth)
		return
	}
	switch {
	case its == nil:
		c.Kind, c.copied = Created, copied(upper, name)
	case c.Old.Type != c.New.Type:
		c.Kind = Replaced
	default:
		c.Kind, c.Parts = Changed, w.parts(upper, lower, name, c, mine, its)
		if len(c.Parts) == 0 {
			return // a copy that nobody has changed
		}
	}
	w.add(c)
}

func (w *walk) subdirectory(upper, lower int, c Change, name, where string, mine, its *unix.Stat_t, depth int) {
	in, err := openDir(upper, name, unix.RESOLVE_NO_XDEV)
	if err != nil {
		w.unread(c.name, err.Error())
		return
	}
	defer unix.Close(in)
	under := -1
	redirect, moved := mark(in, "redirect")
	switch {
	case moved:
		from, ok := w.redirected(redirect, c.name)
		if !ok {
			w.unread(c.name, fmt.Sprintf("a mark says that it was %q, which is no path of the tree", redirect))
			return
		}
		c.Kind, c.From = Renamed, path.Join(w.tree.Path, from)
		if under, err = hostDir(c.From); err != nil {
			under, c.Conflict = -1, "what was renamed is gone from the host: "+err.Error()
		}
		where = c.From
		w.add(c)
	case its == nil:
		c.Kind = Created
		w.add(c)
	case c.Old.Type != "directory":
		c.Kind = Replaced
		w.add(c)
	default:
		if under, err = openDir(lower, name, 0); err != nil {
			w.unread(c.name, "on the host: "+err.Error())
			return
		}
		c.Kind = Changed
		c.Parts = slices.DeleteFunc(w.parts(upper, lower, name, c, mine, its), func(p string) bool { return p == PartTime })
		if len(c.Parts) > 0 {
			w.add(c)
		}
	}
	if under >= 0 {
		defer unix.Close(under)
	}
	w.directory(in, under, c.name, where, depth+1)
}

// redirected reads the mark of a renamed directory: the name that it had in the
// same directory, or its path from the root of the tree.
func (w *walk) redirected(text, now string) (string, bool) {
	from := path.Join(path.Dir(now), text)
	if strings.HasPrefix(text, "/") {
		from = strings.TrimPrefix(path.Clean(text), "/")
	} else if strings.Contains(text, "/") || text == ".." || text == "." {
		return "", false
	}
	return from, text != "" && from != "." && from != "" && !strings.HasPrefix(from, "../") && !strings.ContainsRune(from, 0)
}

// parts tells how two files of one type differ.
func (w *walk) parts(upper, lower int, name string, c Change, mine, its *unix.Stat_t) (parts []string) {
	switch {
	case c.New.Type == "link" && c.New.Target != c.Old.Target, c.New.Type == "file" && c.New.Size != c.Old.Size:
		parts = append(parts, PartContent)
	case c.New.Type == "file":
		same, err := sameContent(upper, lower, name)
		if err != nil {
			w.unread(c.name, err.Error())
		} else if !same {
			parts = append(parts, PartContent)
		}
	}
	if c.New.Type != "link" && c.New.Mode != c.Old.Mode {
		parts = append(parts, PartMode)
	}
	if mine.Uid != its.Uid || mine.Gid != its.Gid {
		parts = append(parts, PartOwner)
	}
	if mine.Mtim != its.Mtim {
		parts = append(parts, PartTime)
	}
	return parts
}

// sameContent compares two files of one name in two directories.
func sameContent(upper, lower int, name string) (bool, error) {
	mine, err := openRegular(upper, name)
	if err != nil {
		return false, err
	}
	defer mine.Close()
	its, err := openRegular(lower, name)
	if err != nil {
		return false, fmt.Errorf("on the host: %w", err)
	}
	defer its.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(mine, a)
		m, errB := io.ReadFull(its, b)
		if n != m || !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if errA != nil {
			return errB != nil, nil
		}
	}
}
