package shadow

import (
	"crypto/sha256"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPair is the size of the largest file that is read to find out whether it was
// renamed.
const maxPair = 64 << 20

// pair finds files that were renamed: one that is gone and one that is new, with
// the same bytes. A directory's rename is known from its mark, and what is told of
// the loss of the old name is taken back.
func (d *Diff) pair(l *Layer) {
	gone := map[string]bool{}
	for _, c := range d.Changes {
		if c.Kind == Renamed {
			gone[c.From] = true
		}
	}
	bySize := map[int64][]int{}
	for i, c := range d.Changes {
		if c.Kind == Deleted && c.Old.Type == "file" && c.Old.Size > 0 && c.Old.Size <= maxPair {
			bySize[c.Old.Size] = append(bySize[c.Old.Size], i)
		}
	}
	sums := map[int][sha256.Size]byte{}
	for i := range d.Changes {
		c := &d.Changes[i]
		if c.Kind != Created || c.New.Type != "file" {
			continue
		}
		for _, j := range bySize[c.New.Size] {
			old := d.Changes[j]
			if gone[old.Path] {
				continue
			}
			if _, known := sums[j]; !known {
				sums[j], _ = sumOf(old.Path)
			}
			mine, ok := sumOf(path.Join(l.Upper(c.tree), c.name))
			if ok && mine == sums[j] {
				c.Kind, c.From, c.Old = Renamed, old.Path, old.Old
				gone[old.Path] = true
				break
			}
		}
	}
	d.Changes = slices.DeleteFunc(d.Changes, func(c Change) bool { return c.Kind == Deleted && gone[c.Path] })
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

// judge says what is to be known of a change before anybody copies it to the host.
func (l *Layer) judge(c *Change) {
	if c.Kind != Deleted {
		c.Flag = FlagOf(c.Path)
		if c.Flag == "" && c.New.Type == "file" && c.New.Mode&0o6000 != 0 {
			c.Flag = "it has a set-id bit"
		}
	}
	if c.Conflict == "" {
		c.Conflict = l.conflict(*c)
	}
}

// conflict says why a change should not be copied to the host as it is; empty for
// no reason.
func (l *Layer) conflict(c Change) string {
	for _, r := range l.Refused {
		for _, p := range []string{c.Path, c.From} {
			if p != "" && (p == r.Path || strings.HasPrefix(p, r.Path+"/") || strings.HasPrefix(r.Path, p+"/") && c.Kind != Changed) {
				return "rule " + r.Rule + " refuses it: " + r.Reason
			}
		}
	}
	if c.New != nil && c.New.Type != "file" && c.New.Type != "directory" && c.New.Type != "link" {
		return "a " + c.New.Type + " is not carried over"
	}
	for _, p := range []string{c.Path, c.From} {
		if p == "" {
			continue
		}
		if why := l.underneath(p, c); why != "" {
			return why
		}
	}
	return ""
}

// underneath says how the host has changed at a path since the layer was born. The
// time of change of a directory tells of its names as well, which other changes
// are free to alter: only its kind counts.
func (l *Layer) underneath(p string, c Change) string {
	dir, err := hostDir(path.Dir(p))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return "" // its directory is new as well
	}
	if err != nil {
		return "on the host: " + path.Dir(p) + ": " + err.Error()
	}
	defer unix.Close(dir)
	s, err := lstat(dir, path.Base(p))
	if errors.Is(err, unix.ENOENT) && c.Kind == Created && c.copied {
		// It was renamed and changed, or the host has removed the file since.
		if above, err := lstat(dir, "."); err == nil && !changed(above).Before(l.Born) {
			return "it began as a copy of a file of the host, and names in its directory were changed there after the session began"
		}
	}
	if err == nil && s.Mode&unix.S_IFMT != unix.S_IFDIR && !changed(s).Before(l.Born) {
		return "the host's file was changed after the session began"
	}
	return ""
}
