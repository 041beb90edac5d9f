package shadow

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

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
func (l *Layer) Diff() (Diff, error) { return l.diff(&reading{left: maxPairing}) }

// diff is Diff, with what may be read to find out what was renamed.
func (l *Layer) diff(r *reading) (Diff, error) {
	d := Diff{Layer: l.ID, Session: l.Session, Changes: []Change{}}
	carried, err := l.carried()
	if err != nil {
		return d, err
	}
	for _, t := range l.Trees {
		w := &walk{layer: l, tree: t, diff: &d, carried: carried}
		if err := w.run(); err != nil {
			return d, fmt.Errorf("shadow layer %s: %s: %w", l.ID, t.Path, err)
		}
	}
	d.pair(l, r)
	for i := range d.Changes {
		c := &d.Changes[i]
		l.judge(c, carried)
		c.PathBytes, c.FromBytes = bytesOf(c.Path), bytesOf(c.From)
	}
	sort.SliceStable(d.Changes, func(i, j int) bool { return d.Changes[i].Path < d.Changes[j].Path })
	return d, nil
}

// bytesOf is a path that is not UTF-8.
func bytesOf(p string) []byte {
	if utf8.ValidString(p) {
		return nil
	}
	return []byte(p)
}

type walk struct {
	layer   *Layer
	tree    Tree
	diff    *Diff
	carried *carried
	away    map[string]bool // directories of the host that have another name in the layer
	seen    int
	err     error
}

// pairOf is a directory of the layer beside what it covers.
type pairOf struct {
	upper, lower int    // descriptors; lower is -1 where the host has none
	at           string // of upper, beneath the tree
	where        string // of lower, on the host
	// hidden says that nothing of lower shows: the directory, or one above it, was
	// removed and made again.
	hidden bool
	depth  int
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
	w.away = map[string]bool{}
	w.relocations(upper, w.tree.Path, 0)
	w.directory(pairOf{upper: upper, lower: lower, where: w.tree.Path})
	return w.err
}

func (w *walk) unread(name, why string) {
	w.diff.Unread = append(w.diff.Unread, Unread{path.Join(w.tree.Path, name), why})
}

func (w *walk) add(c Change) {
	if len(w.diff.Changes) >= maxChanges {
		w.err = ErrTooLarge
		return
	}
	c.tree, c.Path = w.tree, path.Join(w.tree.Path, c.name)
	w.diff.Changes = append(w.diff.Changes, c)
}

// relocations finds the directories that were renamed, before anything is compared:
// what lies at their old names is new.
func (w *walk) relocations(upper int, where string, depth int) {
	list, err := names(upper)
	if err != nil || depth > maxDepth {
		return // told where it is compared
	}
	for _, name := range list {
		s, err := lstat(upper, name)
		if err != nil || s.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		in, err := openDir(upper, name, unix.RESOLVE_NO_XDEV)
		if err != nil {
			continue
		}
		below := path.Join(where, name)
		if redirect, ok := w.layer.mark(in, "redirect"); ok {
			if from, ok := w.redirected(redirect, where); ok {
				if from = w.carried.movedTo(from); from != below {
					below, w.away[from] = from, true
				}
			}
		}
		w.relocations(in, below, depth+1)
		unix.Close(in)
	}
}

// directory compares what is in a directory of the layer with what it covers.
func (w *walk) directory(p pairOf) {
	if p.depth > maxDepth {
		w.unread(p.at, "deeper than a diff looks")
		return
	}
	list, err := names(p.upper)
	if err != nil {
		w.unread(p.at, err.Error())
		return
	}
	slices.Sort(list)
	if w.seen += len(list); w.seen > maxEntries {
		w.err = ErrTooLarge
	}
	if opaque, _ := w.layer.mark(p.upper, "opaque"); opaque == "y" {
		p.hidden = true
	}
	for _, name := range list {
		if w.err != nil {
			return
		}
		w.entry(p, name)
	}
	if p.hidden && p.lower >= 0 {
		w.covered(list, p)
	}
}

// covered tells what of the host a directory no longer shows: it was removed and
// made again, so that nothing stands for each single loss.
func (w *walk) covered(kept []string, p pairOf) {
	list, err := names(p.lower)
	if err != nil {
		w.unread(p.at, "on the host: "+err.Error())
		return
	}
	for _, name := range list {
		full := path.Join(p.at, name)
		if w.away[path.Join(p.where, name)] {
			continue // it is told of at its new name
		}
		if _, found := slices.BinarySearch(kept, name); found || w.carried.has(path.Join(w.tree.Path, full)) || strings.HasPrefix(name, asidePrefix) {
			continue
		}
		if s, err := lstat(p.lower, name); err == nil {
			w.add(Change{name: full, Kind: Deleted, Old: fileOf(p.lower, name, s), was: identityOf(s), where: path.Join(p.where, name), hidden: true, covered: true})
		}
	}
}

func (w *walk) entry(p pairOf, name string) {
	full := path.Join(p.at, name)
	mine, err := lstat(p.upper, name)
	if err != nil {
		w.unread(full, err.Error())
		return
	}
	c := Change{name: full, where: path.Join(p.where, name), hidden: p.hidden}
	var its *unix.Stat_t
	if p.lower >= 0 {
		if its, err = lstat(p.lower, name); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			w.unread(full, "on the host: "+err.Error())
			return
		}
	}
	if w.away[c.where] && its != nil {
		its, c.freed = nil, true
	}
	if its != nil {
		c.Old, c.was = fileOf(p.lower, name, its), identityOf(its)
	}
	if isWhiteout(mine) {
		if its != nil {
			c.Kind = Deleted
			w.add(c)
		}
		return
	}
	c.New = fileOf(p.upper, name, mine)
	if c.New.Type == "directory" {
		w.subdirectory(p, c, name, mine, its)
		return
	}
	if from, ok := w.layer.originOf(p.upper, name); ok {
		c.origin = &from
	}
	switch {
	case its == nil:
		c.Kind = Created
	case c.Old.Type != c.New.Type:
		c.Kind = Replaced
	default:
		c.Kind, c.Parts = Changed, w.parts(p.upper, p.lower, name, name, c, mine, its)
		if len(c.Parts) == 0 {
			return // a copy that nobody has changed
		}
	}
	w.add(c)
}

func (w *walk) subdirectory(p pairOf, c Change, name string, mine, its *unix.Stat_t) {
	in, err := openDir(p.upper, name, unix.RESOLVE_NO_XDEV)
	if err != nil {
		w.unread(c.name, err.Error())
		return
	}
	defer unix.Close(in)
	under := pairOf{upper: in, lower: -1, at: c.name, where: path.Join(p.where, name), hidden: p.hidden, depth: p.depth + 1}
	from := ""
	if redirect, moved := w.layer.mark(in, "redirect"); moved {
		var ok bool
		if from, ok = w.redirected(redirect, p.where); !ok {
			w.unread(c.name, fmt.Sprintf("a mark says that it was %q, which is no path of the tree", redirect))
			return
		}
		if from = w.carried.movedTo(from); from == c.where {
			from = "" // it has been carried over
		}
		under.hidden = false
	}
	switch {
	case from != "":
		w.renamedDirectory(p, &c, &under, from, name, mine)
		w.add(c)
	case its == nil:
		if from, ok := w.layer.originOf(p.upper, name); ok {
			c.origin = &from
		}
		c.Kind, under.hidden = Created, false
		w.add(c)
	case c.Old.Type != "directory":
		c.Kind, under.hidden = Replaced, false
		w.add(c)
	default:
		if under.lower, err = openDir(p.lower, name, 0); err != nil {
			w.unread(c.name, "on the host: "+err.Error())
			return
		}
		c.Kind = Changed
		c.Parts = slices.DeleteFunc(w.parts(p.upper, p.lower, name, name, c, mine, its), func(p string) bool { return p == PartTime })
		if len(c.Parts) > 0 {
			w.add(c)
		}
	}
	if under.lower >= 0 {
		defer unix.Close(under.lower)
	}
	w.directory(under)
}

// renamedDirectory finds what a renamed directory was on the host.
func (w *walk) renamedDirectory(p pairOf, c *Change, under *pairOf, from, name string, mine *unix.Stat_t) {
	c.Kind, c.From, under.where = Renamed, from, from
	c.replaces, c.Old, c.was = c.was, nil, nil
	above, err := hostDir(path.Dir(from))
	if err == nil {
		defer unix.Close(above)
		under.lower, err = openDir(above, path.Base(from), 0)
	}
	var its *unix.Stat_t
	if err == nil {
		its, err = lstat(above, path.Base(from))
	}
	if err != nil {
		c.Conflict = "what was renamed is gone from the host: " + err.Error()
		return
	}
	c.Old, c.was = fileOf(above, path.Base(from), its), identityOf(its)
	c.Parts = slices.DeleteFunc(w.parts(p.upper, above, name, path.Base(from), *c, mine, its), func(p string) bool { return p == PartTime })
}

// redirected reads the mark of a renamed directory: the name that it had in the
// same directory, which is where on the host, or its path from the root of the tree.
func (w *walk) redirected(text, where string) (string, bool) {
	if text == "" || strings.ContainsRune(text, 0) {
		return "", false
	}
	if strings.HasPrefix(text, "/") {
		// Linux writes it clean; what is not could lead out of the tree.
		return path.Join(w.tree.Path, text), path.Clean(text) == text && text != "/"
	}
	return path.Join(where, text), !strings.Contains(text, "/") && text != ".." && text != "."
}

// parts tells how two files of one type differ.
func (w *walk) parts(upper, lower int, name, old string, c Change, mine, its *unix.Stat_t) (parts []string) {
	switch {
	case c.New.Type == "link" && c.New.Target != c.Old.Target, c.New.Type == "file" && c.New.Size != c.Old.Size:
		parts = append(parts, PartContent)
	case c.New.Type == "file":
		same, err := sameContent(upper, lower, name, old)
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
	here, err := attributes(upper, name)
	there, hostErr := attributes(lower, old)
	if err == nil {
		err = hostErr
	}
	if err != nil {
		w.unread(c.name, err.Error())
	} else if !maps.Equal(here, there) {
		parts = append(parts, PartAttributes)
	}
	if mine.Mtim != its.Mtim {
		parts = append(parts, PartTime)
	}
	return parts
}

// sameContent compares a file in one directory with one in another.
func sameContent(upper, lower int, name, old string) (bool, error) {
	mine, err := openRegular(upper, name)
	if err != nil {
		return false, err
	}
	defer mine.Close()
	its, err := openRegular(lower, old)
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
