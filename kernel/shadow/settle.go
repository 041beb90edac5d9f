package shadow

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// rights gives a directory of the host the rights, owner and attributes that it has
// in the layer, and one that was made its times.
func (w *work) rights(c Change) error {
	above, err := w.above(c.tree, c.Path)
	if err != nil {
		return err
	}
	defer unix.Close(above)
	fd, err := openDir(above, path.Base(c.Path), unix.RESOLVE_NO_XDEV)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := lstat(fd, ".")
	if err != nil {
		return err
	}
	if c.Kind == Changed && (now.Ino != c.was.ino || now.Dev != c.was.dev) {
		return errors.New("the host's directory is another now")
	}
	up, err := w.layerDir(c.tree, c.name)
	if err != nil {
		return err
	}
	defer unix.Close(up)
	name := path.Base(c.name)
	mine, err := lstat(up, name)
	if err != nil {
		return err
	}
	w.step()
	if c.Kind != Renamed || len(c.Parts) > 0 {
		want, err := attributes(up, name)
		if err != nil {
			return err
		}
		if err := w.own(fd, ".", c.New); err != nil {
			return err
		}
		if err := unix.Fchmod(fd, c.New.Mode); err != nil {
			return err
		}
		if err := setAttributes(fd, want); err != nil {
			return err
		}
	}
	if c.Kind == Created || c.Kind == Replaced {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), []unix.Timespec{mine.Atim, mine.Mtim}, 0)
		if err != nil {
			return err
		}
	}
	if after, err := lstat(fd, "."); err == nil && (c.Kind != Changed || w.clean[fileKey(now.Dev, now.Ino)] || w.layer.untouched(identityOf(now), w.seen)) {
		w.seen.note(after)
	}
	return unix.Fsync(fd)
}

// sync writes the directories in which names have changed to the disk.
func (w *work) sync() error {
	for p := range w.touched {
		fd, err := hostDir(p)
		if errors.Is(err, unix.ENOENT) {
			continue // renamed, or removed, by this commit
		}
		if err != nil {
			return fmt.Errorf("%s: %w", shown(p), err)
		}
		err = unix.Fsync(fd)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("%s: fsync: %w", shown(p), err)
		}
	}
	return nil
}

// leaveAll takes the changes that were carried over out of the layer. Until the
// last of them is out, what is still in is the same as on the host and no change.
func (w *work) leaveAll(done []Change) error {
	for _, c := range done {
		if c.hidden {
			w.seen.addName(c.Path)
		}
		if c.from.hidden {
			w.seen.addName(c.From)
		}
		if err := w.reveal(c); err != nil {
			return fmt.Errorf("%s: %w", shown(c.Path), err)
		}
	}
	if err := w.settled(); err != nil {
		return err
	}
	for i := len(done) - 1; i >= 0; i-- {
		if err := w.leave(done[i]); err != nil {
			return fmt.Errorf("%s: %w", shown(done[i].Path), err)
		}
	}
	return nil
}

// settled notes that nothing is under way any more.
func (w *work) settled() error {
	done := w.seen.Moved[:0]
	for _, m := range w.seen.Moved {
		if m.Done = m.isDone(); m.Done {
			done = append(done, m)
		}
	}
	w.seen.Moved = done
	w.seen.settle()
	return w.seen.write(w.layer)
}

func (w *work) leave(c Change) error {
	if c.from.name != "" && !c.from.covered {
		if err := w.drop(c.from.tree, c.from.name, 0); err != nil {
			return err
		}
	}
	switch {
	case c.covered:
		return nil
	case c.New == nil || c.New.Type != "directory":
		return w.drop(c.tree, c.name, 0)
	case c.Kind == Created || c.Kind == Replaced:
		err := w.drop(c.tree, c.name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) {
			return nil // the rest is not carried over yet
		}
		return err
	}
	return nil // alike now
}

func (w *work) drop(t Tree, name string, flags int) error {
	up, err := w.layerDir(t, name)
	if err != nil {
		return err
	}
	defer unix.Close(up)
	w.step()
	err = unix.Unlinkat(up, path.Base(name), flags)
	if errors.Is(err, unix.EACCES) {
		// The session has closed the directory to its owner.
		if s, statErr := lstat(up, "."); statErr == nil && unix.Fchmod(up, 0o700) == nil {
			err = unix.Unlinkat(up, path.Base(name), flags)
			err = errors.Join(err, unix.Fchmod(up, s.Mode&0o7777))
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// reveal makes a directory of the layer, which the host has now as well, one in
// which the host's names show.
func (w *work) reveal(c Change) error {
	if c.New == nil || c.New.Type != "directory" || c.Kind != Created && c.Kind != Replaced {
		return nil
	}
	up, err := w.layerDir(c.tree, c.name)
	if err != nil {
		return err
	}
	defer unix.Close(up)
	fd, err := openDir(up, path.Base(c.name), unix.RESOLVE_NO_XDEV)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, marked := w.layer.mark(fd, "opaque"); !marked {
		return nil
	}
	w.step()
	return unix.Fremovexattr(fd, w.layer.marks()+"opaque")
}

// reach refuses what lies in a directory of the host that cannot be written.
func (l *Layer) reach(p *plan) {
	known := map[string]string{}
	look := func(dir string) string {
		if why, ok := known[dir]; ok {
			return why
		}
		known[dir] = ""
		if fd, err := hostDir(dir); err == nil {
			if err := unix.Faccessat2(fd, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
				known[dir] = "its directory on the host cannot be changed: " + err.Error()
			}
			unix.Close(fd)
		} else if !errors.Is(err, unix.ENOENT) {
			known[dir] = "its directory on the host cannot be opened: " + err.Error()
		}
		return known[dir]
	}
	for i, c := range p.changes {
		if !p.goes(i) || c.Kind == Changed && c.New.Type == "directory" || len(p.above(c.Path)) > 0 {
			continue
		}
		if p.why[i] = look(path.Dir(c.where)); p.why[i] == "" && c.Kind == Renamed {
			p.why[i] = look(path.Dir(c.From))
		}
	}
}
