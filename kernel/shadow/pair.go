package shadow

import (
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// pair finds files that were renamed: one that is gone and one that is new, which
// began as its copy or, as far as may be read, has the same bytes. A directory's rename
// is known from its mark, and what is told of the loss of the old name is taken back.
func (d *Diff) pair(l *Layer, r *reading) {
	p := pairing{layer: l, read: r, changes: d.Changes, gone: map[string]bool{}, byHandle: map[origin]int{}}
	for _, c := range d.Changes {
		if c.Kind == Renamed {
			p.gone[c.From] = true
		}
	}
	p.handles()
	for i, c := range d.Changes {
		if c.Kind == Created && c.New.Type == "file" {
			if j, ok := p.copyOf(c); ok {
				p.renamed(i, j)
			}
		}
	}
	p.alike()
	d.Changes = slices.DeleteFunc(d.Changes, func(c Change) bool { return c.Kind == Deleted && p.gone[c.where] })
}

type pairing struct {
	layer    *Layer
	read     *reading
	changes  []Change
	gone     map[string]bool // old names that are accounted for
	byHandle map[origin]int  // files that are gone, when some new file is a copy
}

// renamed makes the ith change, which tells of a new file, and the jth, which tells of
// one that is gone, one.
func (p *pairing) renamed(i, j int) {
	c, old := &p.changes[i], p.changes[j]
	c.Kind, c.From, c.Old, c.was = Renamed, old.Path, old.Old, old.was
	c.from = place{old.tree, old.name, old.hidden, old.covered}
	if c.New.Mode != c.Old.Mode {
		c.Parts = append(c.Parts, PartMode)
	}
	p.gone[old.where] = true
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
