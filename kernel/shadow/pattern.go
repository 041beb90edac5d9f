package shadow

import (
	"path"
	"slices"
	"strings"
)

// pattern is the end of a path: rows of names, the last of which ends where the path
// does, with any directories between them.
type pattern struct {
	rows  [][]string
	flag  int  // the number of its line
	below bool // it fits all that lies beneath a directory
}

func newPattern(parts []string, flag int) pattern {
	p := pattern{rows: [][]string{{}}, flag: flag}
	for _, part := range parts {
		last := len(p.rows) - 1
		if part == "**" {
			p.rows = append(p.rows, []string{})
		} else {
			p.rows[last] = append(p.rows[last], part)
		}
	}
	return p
}

// fits reports whether a path, of which these are the parts, ends as the pattern says.
// From the end on, the first place that a row fits leaves most to those before it: no
// other needs to be tried.
func (p pattern) fits(parts []string) bool {
	end := len(parts)
	for i := len(p.rows) - 1; i >= 0; i-- {
		row := p.rows[i]
		at := end - len(row)
		for at >= 0 && !inRow(row, parts[at:]) {
			if at--; i == len(p.rows)-1 {
				return false
			}
		}
		if end = at; at < 0 {
			return false
		}
	}
	return true
}

func inRow(row, parts []string) bool {
	for i, name := range row {
		if ok, _ := path.Match(name, parts[i]); !ok {
			return false
		}
	}
	return true
}

// key is a name that is in each path that the pattern fits; empty for none.
func (p pattern) key() string {
	for _, row := range slices.Backward(p.rows) {
		for _, name := range slices.Backward(row) {
			if !strings.ContainsAny(name, "*[") {
				return name
			}
		}
	}
	return ""
}

// patterns are those of all flags by their keys: a path is compared with few of them.
type patterns map[string][]pattern

func (ps patterns) add(p pattern) { ps[p.key()] = append(ps[p.key()], p) }

// first is the number of the first flag of which a pattern fits a path; -1 for none. Of
// a directory only those count that are about all that lies somewhere.
func (ps patterns) first(at string, directory bool) int {
	parts := strings.Split(strings.Trim(at, "/"), "/")
	found := -1
	look := func(key string) {
		for _, p := range ps[key] {
			if (found < 0 || p.flag < found) && (p.below || !directory) && p.fits(parts) {
				found = p.flag
			}
		}
	}
	look("")
	for i, key := range parts {
		if len(ps[key]) > 0 && slices.Index(parts, key) == i {
			look(key)
		}
	}
	return found
}

// flagged are the patterns of flags; leading, those of the directories above: what
// decides where these lead decides what lies there.
var flagged, leading = func() (whole, above patterns) {
	whole, above = patterns{}, patterns{}
	for i, f := range flags {
		for _, text := range f.files {
			parts := strings.Split(strings.TrimSuffix(text, "/"), "/")
			below := strings.HasSuffix(text, "/")
			if below {
				parts = append(parts, "**", "*")
			}
			p := newPattern(parts, i)
			p.below = below
			whole.add(p)
			for n := 1; n < len(parts); n++ {
				above.add(newPattern(parts[:n], i))
			}
		}
	}
	return whole, above
}()
