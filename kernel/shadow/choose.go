package shadow

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Within keeps the changes at or beneath the paths; all of them when none is named.
// Paths are absolute. One at which nothing differs is an error: it may be a slip.
func (d *Diff) Within(paths []string) error {
	chosen, err := d.choose(paths)
	if err != nil || len(paths) == 0 {
		return err
	}
	i := -1
	d.Changes = slices.DeleteFunc(d.Changes, func(Change) bool { i++; return !chosen[i] })
	d.Unread = slices.DeleteFunc(d.Unread, func(u Unread) bool { return !concerns(u, paths) })
	return nil
}

// choose tells which changes lie at or beneath the paths.
func (d *Diff) choose(paths []string) ([]bool, error) {
	chosen := make([]bool, len(d.Changes))
	if len(paths) == 0 {
		for i := range chosen {
			chosen[i] = true
		}
		return chosen, nil
	}
	used := make([]bool, len(paths))
	for i, c := range d.Changes {
		for j, p := range paths {
			if isWithin(c.Path, p) || c.From != "" && isWithin(c.From, p) {
				chosen[i], used[j] = true, true
			}
		}
	}
	for j, p := range paths {
		if !used[j] && !slices.ContainsFunc(d.Unread, func(u Unread) bool { return concerns(u, paths[j:j+1]) }) {
			return nil, fmt.Errorf("path %s: nothing differs there in layer %s; 'cellblock shadow diff %s' shows what does", shown(p), d.Layer, d.Layer)
		}
	}
	return chosen, nil
}

// concerns reports whether what could not be looked at may lie at or beneath one of
// the paths.
func concerns(u Unread, paths []string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool { return isWithin(u.Path, p) || isWithin(p, u.Path) })
}

// isWithin reports whether p is dir or lies beneath it.
func isWithin(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// makes reports whether a change makes the directory at its path.
func (c Change) makes() bool {
	return c.New != nil && c.New.Type == "directory" && c.Kind != Changed
}

// takesAway is the directory of the host that goes when c is carried over; nil for
// none.
func (c Change) takesAway() *identity {
	gone := c.was
	if c.Kind == Renamed {
		gone = c.replaces
	} else if c.Kind != Deleted && c.Kind != Replaced {
		return nil
	}
	if gone == nil || !gone.isDir() {
		return nil
	}
	return gone
}

// plan is what a commit is going to do.
type plan struct {
	changes []Change
	makers  map[string]int // who makes the directory at a path
	renamed []int          // directories
	chosen  []bool
	why     []string // not to be carried over
	order   []int
}

// planOf chooses changes, with the directories that they need, and says which of
// them are not to be carried over.
func (l *Layer) planOf(d Diff, o CommitOptions) (*plan, error) {
	chosen, err := d.choose(o.Paths)
	if err != nil {
		return nil, err
	}
	p := &plan{changes: d.Changes, makers: map[string]int{}, chosen: chosen, why: make([]string, len(chosen))}
	for i, c := range p.changes {
		if c.makes() {
			p.makers[c.Path] = i
			if c.Kind == Renamed {
				p.renamed = append(p.renamed, i)
			}
		}
	}
	for i := range p.changes {
		if !p.chosen[i] {
			continue
		}
		p.choose(i)
	}
	for i, c := range p.changes {
		if p.chosen[i] {
			p.why[i] = o.refuses(c)
		}
	}
	l.reach(p)
	p.settle()
	return p, nil
}

// refuses says why a change is not carried over by itself.
func (o CommitOptions) refuses(c Change) string {
	switch {
	case c.Conflict != "":
		return c.Conflict
	case c.Flag != "" && !c.setID && !o.Executable:
		return "not without --executable: " + c.Flag
	}
	return ""
}

// above are the changes that make the directories above a path.
func (p *plan) above(at string) (all []int) {
	for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
		if j, ok := p.makers[dir]; ok {
			all = append(all, j)
		}
	}
	return all
}

// needs are the changes that come before one: the directories above its names, and
// what was renamed out of its way.
func (p *plan) needs(i int) []int {
	c := p.changes[i]
	all := p.above(c.Path)
	if c.from.name != "" {
		all = append(all, p.above(c.From)...)
	}
	return append(all, p.out(c)...)
}

// choose chooses what the ith change needs.
func (p *plan) choose(i int) {
	for _, j := range p.needs(i) {
		if !p.chosen[j] {
			p.chosen[j] = true
			p.choose(j)
		}
	}
}

func (p *plan) goes(i int) bool { return p.chosen[i] && p.why[i] == "" }

// settle refuses what depends on something that is refused, until nothing more is,
// and brings the rest in an order in which each finds what it needs.
func (p *plan) settle() {
	for again := true; again; {
		again = false
		for i := range p.changes {
			if p.goes(i) {
				if p.why[i] = p.lacks(i); p.why[i] != "" {
					again = true
				}
			}
		}
		if !again {
			again = p.sort()
		}
	}
}

// lacks says what a change needs that is not going to happen.
func (p *plan) lacks(i int) string {
	c := p.changes[i]
	above := p.above(c.Path)
	if c.from.name != "" {
		above = append(above, p.above(c.From)...)
	}
	for _, j := range above {
		if !p.goes(j) {
			return "it lies in " + shown(p.changes[j].Path) + ", which is not carried over"
		}
	}
	for _, j := range p.out(c) {
		if !p.goes(j) {
			return shown(p.changes[j].Path) + " was renamed from there, and is not carried over"
		}
	}
	return ""
}

// out are the directories that were renamed out of one that c takes away, or whose
// old name it has.
func (p *plan) out(c Change) (all []int) {
	takes := c.takesAway() != nil
	if !takes && !c.freed {
		return nil
	}
	for _, j := range p.renamed {
		if r := p.changes[j]; r.Path != c.Path && (r.From == c.where || takes && isWithin(r.From, c.where)) {
			all = append(all, j)
		}
	}
	return all
}

// sort orders what is going to happen. Who waits for each other in a circle, as two
// directories do that have each other's name, is refused, and true returned.
func (p *plan) sort() bool {
	const waiting, done = 1, 2
	state := make([]int, len(p.changes))
	p.order = p.order[:0]
	circle := false
	var visit func(i int) bool
	visit = func(i int) bool {
		if !p.goes(i) || state[i] == done {
			return true
		}
		if state[i] == waiting {
			return false
		}
		state[i] = waiting
		for _, j := range p.needs(i) {
			if !visit(j) {
				p.why[i], circle = "directories were renamed in a circle: rename them on the host by hand", true
			}
		}
		state[i] = done
		p.order = append(p.order, i)
		return p.why[i] == ""
	}
	for _, last := range []bool{false, true} {
		for i, c := range p.changes {
			if (c.Kind == Deleted) == last {
				visit(i)
			}
		}
	}
	return circle
}
