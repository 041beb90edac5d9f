package shadow

import (
	"crypto/sha256"
	"io"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// maxPair is the size of the largest file that is read to find out whether it was
// renamed.
const maxPair = 64 << 20

// pair finds files that were renamed: one that is gone and one that is new, which
// began as its copy or has the same bytes. A directory's rename is known from its
// mark, and what is told of the loss of the old name is taken back.
func (d *Diff) pair(l *Layer) {
	p := pairing{layer: l, changes: d.Changes, gone: map[string]bool{}, bySize: map[int64][]int{}, byHandle: map[origin]int{}, sums: map[int][sha256.Size]byte{}}
	for i, c := range d.Changes {
		switch {
		case c.Kind == Renamed:
			p.gone[c.From] = true
		case c.Kind == Deleted && c.Old.Type == "file":
			if c.Old.Size > 0 && c.Old.Size <= maxPair {
				p.bySize[c.Old.Size] = append(p.bySize[c.Old.Size], i)
			}
		}
	}
	p.handles()
	for i := range d.Changes {
		c := &d.Changes[i]
		if c.Kind != Created || c.New.Type != "file" {
			continue
		}
		j, ok := p.copyOf(*c)
		if !ok {
			j, ok = p.alike(*c)
		}
		if ok {
			old := d.Changes[j]
			c.Kind, c.From, c.Old, c.was = Renamed, old.Path, old.Old, old.was
			c.from = place{old.tree, old.name, old.hidden, old.covered}
			if c.New.Mode != c.Old.Mode {
				c.Parts = append(c.Parts, PartMode)
			}
			p.gone[old.where] = true
		}
	}
	d.Changes = slices.DeleteFunc(d.Changes, func(c Change) bool { return c.Kind == Deleted && p.gone[c.where] })
}

type pairing struct {
	layer    *Layer
	changes  []Change
	gone     map[string]bool // old names that are accounted for
	bySize   map[int64][]int // files that are gone
	byHandle map[origin]int  // the same, when some new file is a copy
	sums     map[int][32]byte
}

// handles asks for the handles of files that are gone, unless no new file is a copy.
func (p *pairing) handles() {
	wanted := map[origin]bool{}
	for _, c := range p.changes {
		if c.Kind == Created && c.origin != nil && c.origin.handle != "" {
			wanted[*c.origin] = true
		}
	}
	if len(wanted) == 0 {
		return
	}
	for i, c := range p.changes {
		if c.Kind != Deleted || c.Old.Type != "file" {
			continue
		}
		dir, err := hostDir(path.Dir(c.where))
		if err != nil {
			continue
		}
		if h := handleOf(dir, path.Base(c.where)); wanted[h] {
			p.byHandle[h] = i
		}
		unix.Close(dir)
	}
}

// copyOf finds the file that is gone and that c began as a copy of.
func (p *pairing) copyOf(c Change) (int, bool) {
	if c.origin == nil || c.origin.handle == "" {
		return 0, false
	}
	j, ok := p.byHandle[*c.origin]
	return j, ok && !p.gone[p.changes[j].where]
}

// alike finds a file that is gone and that has the bytes of c.
func (p *pairing) alike(c Change) (int, bool) {
	for _, j := range p.bySize[c.New.Size] {
		old := p.changes[j]
		if p.gone[old.where] {
			continue
		}
		if _, known := p.sums[j]; !known {
			p.sums[j], _ = sumOf(old.where)
		}
		if mine, ok := sumOf(path.Join(p.layer.Upper(c.tree), c.name)); ok && mine == p.sums[j] {
			return j, true
		}
	}
	return 0, false
}

// sumOf is the digest of a regular file, by a path without symbolic links.
func sumOf(p string) (sum [sha256.Size]byte, ok bool) {
	dir, err := hostDir(path.Dir(p))
	if err != nil {
		return sum, false
	}
	defer unix.Close(dir)
	file, err := openRegular(dir, path.Base(p))
	if err != nil {
		return sum, false
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(file, maxPair+1)); err != nil {
		return sum, false
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}
