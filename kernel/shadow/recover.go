package shadow

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// announce notes what is about to be done, and which files of the host nobody else
// has changed until now.
func (w *work) announce(p *plan) error {
	w.seen.settle()
	w.seen.Mine = map[string]int64{}
	dirs := map[string]bool{}
	var ahead []relocation
	for _, i := range p.order {
		c := p.changes[i]
		dirs[path.Dir(c.Path)] = true
		if c.From != "" {
			dirs[path.Dir(c.From)] = true
		}
		if c.New != nil && c.New.Type == "directory" && (c.Kind == Created || c.Kind == Replaced) {
			w.seen.Made = append(w.seen.Made, []byte(c.Path))
		}
		switch {
		case c.Kind == Renamed && c.New.Type == "directory":
			from := c.From
			for _, m := range ahead {
				if isWithin(from, string(m.From)) {
					from = string(m.To) + strings.TrimPrefix(from, string(m.From))
				}
			}
			ahead = append(ahead, relocation{From: []byte(from), To: []byte(c.Path), Dev: c.was.dev, Ino: c.was.ino})
			w.mine(c.was)
			if c.replaces != nil {
				w.doing(c.tree, c.Path, c.replaces)
			}
		case c.Kind == Renamed:
			w.doing(c.tree, c.Path, nil)
			w.doing(c.from.tree, c.From, c.was)
		case c.Kind == Changed && c.New.Type == "directory":
			dirs[c.Path] = true
		default:
			w.doing(c.tree, c.Path, c.was)
		}
	}
	for dir := range dirs {
		fd, err := hostDir(dir)
		if err != nil {
			continue // about to be made
		}
		if s, err := lstat(fd, "."); err == nil {
			w.mine(identityOf(s))
			w.seen.Dirs = append(w.seen.Dirs, []byte(dir))
		}
		unix.Close(fd)
	}
	w.seen.Moved = append(w.seen.Moved, ahead...)
	return w.seen.write(w.layer)
}

func (w *work) mine(i *identity) {
	if w.layer.untouched(i, w.seen) {
		w.seen.Mine[fileKey(i.dev, i.ino)] = i.mtime
	}
}

func (w *work) doing(t Tree, p string, was *identity) {
	d := doing{Tree: t.Path, Path: []byte(p), Aside: w.layer.aside(p)}
	if was != nil {
		d.Dev, d.Ino, d.Mtime, d.Size, d.Mode = was.dev, was.ino, was.mtime, was.size, was.mode
		if was.several {
			w.mine(was)
		}
	}
	w.seen.Doing = append(w.seen.Doing, d)
}

// recover brings what a commit that was cut off has left on the host to an end, one
// way or the other: what was made and got no name is removed, and so is what was
// replaced; a file that is neither stays and is told of.
func (w *work) recover() error {
	if len(w.seen.Doing)+len(w.seen.Dirs) == 0 {
		return nil
	}
	w.seen.again = true
	defer func() { w.seen.again = false }()
	for _, d := range w.seen.Doing {
		if err := w.recoverOne(d); err != nil {
			return fmt.Errorf("%s: %w", shown(string(d.Path)), err)
		}
	}
	// Times of change of directories that only the commit can have moved, or others
	// in the same moments: these are not told apart.
	for _, dir := range w.seen.Dirs {
		if fd, err := hostDir(string(dir)); err == nil {
			w.recognize(fd, ".", false)
			unix.Close(fd)
		}
	}
	for _, dir := range w.seen.Made {
		if fd, err := hostDir(string(dir)); err == nil {
			if s, err := lstat(fd, "."); err == nil {
				w.seen.note(s)
			}
			unix.Close(fd)
		}
	}
	for _, m := range w.seen.Moved {
		if fd, err := hostDir(path.Dir(string(m.To))); err == nil {
			w.recognize(fd, path.Base(string(m.To)), false)
			unix.Close(fd)
		}
	}
	return w.settled()
}

// recognize notes how a file is that was nobody else's before the commit.
func (w *work) recognize(fd int, name string, file bool) {
	s, err := lstat(fd, name)
	if err != nil {
		return
	}
	if mtime, ok := w.seen.Mine[fileKey(s.Dev, s.Ino)]; ok && (!file || mtime == s.Mtim.Nano()) {
		w.seen.note(s)
	}
}

func (w *work) recoverOne(d doing) error {
	p := string(d.Path)
	fd, err := w.above(Tree{Path: d.Tree}, p)
	var other moved
	if errors.As(err, &other) {
		return nil // its directory was not made, or has another name by now
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s := spot{fd, path.Base(p), d.Aside}
	w.recognize(fd, s.name, true)
	if now, err := lstat(fd, s.aside+gone); err == nil {
		if now.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = w.removeTree(fd, s.aside+gone)
		} else {
			err = w.unlink(fd, s.aside+gone, now)
		}
		if err != nil {
			return err
		}
	}
	aside, err := lstat(fd, s.aside)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	was := &identity{dev: d.Dev, ino: d.Ino, mode: d.Mode, mtime: d.Mtime, size: d.Size, uid: aside.Uid, gid: aside.Gid}
	base, baseErr := lstat(fd, s.name)
	switch {
	case d.Ino != 0 && was.same(aside):
		// The host's own, and it was known before it came here.
		err := w.dispose(s, was, func() error { return renameNew(fd, s.aside, fd, s.name) })
		if errors.As(err, &other) {
			return nil // it is back, or told of
		}
		return err
	case d.Ino == 0 || baseErr == nil && base.Dev == d.Dev && base.Ino == d.Ino:
		w.unmake(s)
		return nil
	}
	w.note("%s is left beside %s: it was changed while a commit was cut off, and may be the host's", s.aside, shown(p))
	return nil
}
