package shadow

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// asidePrefix begins the names that a commit uses beside the file that it is about.
const asidePrefix = ".cellblock-commit-"

// gone ends the name of what was looked at and is being removed.
const gone = "-gone"

// aside is the name that a commit of this layer uses for a path. It is the same in
// each run, so that the next finds what one has left.
func (l *Layer) aside(p string) string {
	sum := sha256.Sum256([]byte(l.ID + "\x00" + p))
	return asidePrefix + hex.EncodeToString(sum[:12])
}

// root opens the directory of the host that a tree covers.
func (w *work) root(p string) (int, error) {
	if fd, ok := w.roots[p]; ok {
		return fd, nil
	}
	fd, err := hostDir(p)
	if err != nil {
		return -1, err
	}
	if w.roots == nil {
		w.roots = map[string]int{}
	}
	w.roots[p] = fd
	return fd, nil
}

// above opens the directory of the host in which a path of a tree lies, through no
// link and into no other file system.
func (w *work) above(t Tree, p string) (int, error) {
	root, err := w.root(t.Path)
	if err != nil {
		return -1, err
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(path.Dir(p), strings.TrimSuffix(t.Path, "/")), "/")
	if rel == "" {
		rel = "."
	}
	fd, err := walkDir(root, rel, unix.RESOLVE_NO_XDEV)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return -1, moved{"its directory on the host is another now: " + err.Error()}
	}
	return fd, err
}

// layerDir opens the directory of the layer in which a name of a tree lies.
func (w *work) layerDir(t Tree, name string) (int, error) {
	root, err := w.root(w.layer.Upper(t))
	if err != nil {
		return -1, err
	}
	return walkDir(root, path.Dir(name), unix.RESOLVE_NO_XDEV)
}

// changing notes that names in a directory of the host are about to change, and
// returns what is to be called when they have.
func (w *work) changing(fd int, p string) func() {
	w.touched[p] = true
	before, err := lstat(fd, ".")
	if err != nil {
		return func() {}
	}
	key := fileKey(before.Dev, before.Ino)
	if _, known := w.clean[key]; !known {
		w.clean[key] = w.layer.untouched(identityOf(before), w.seen)
	}
	w.step()
	return func() {
		if after, err := lstat(fd, "."); err == nil && w.clean[key] {
			w.seen.note(after)
		}
	}
}

// apply carries one change over. Rights of directories come last.
func (w *work) apply(c Change) error {
	if c.Kind == Changed && c.New.Type == "directory" {
		return nil
	}
	fd, err := w.above(c.tree, c.Path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	defer w.changing(fd, path.Dir(c.Path))()
	s := spot{fd, path.Base(c.Path), w.layer.aside(c.Path)}
	switch {
	case c.Kind == Deleted:
		return w.remove(s, c.was)
	case c.New.Type == "directory" && c.Kind == Renamed:
		return w.rename(c, s)
	case c.New.Type == "directory" && c.Kind == Created:
		err := unix.Mkdirat(fd, s.name, 0o700)
		if errors.Is(err, unix.EEXIST) {
			return moved{"something has come to be there on the host"}
		}
		return err
	case c.New.Type == "directory":
		if err := unix.Mkdirat(fd, s.aside, 0o700); err != nil {
			return err
		}
		return w.place(s, c.was)
	}
	if err := w.build(c, s); err != nil {
		_ = unix.Unlinkat(fd, s.aside, 0) // the error tells more
		return err
	}
	was := c.was
	if c.Kind == Renamed {
		was = nil
	}
	if err := w.place(s, was); err != nil || c.Kind != Renamed {
		return err
	}
	return w.removeOld(c)
}

// removeOld takes the old name of a renamed file away.
func (w *work) removeOld(c Change) error {
	fd, err := w.above(c.from.tree, c.From)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	defer w.changing(fd, path.Dir(c.From))()
	return w.remove(spot{fd, path.Base(c.From), w.layer.aside(c.From)}, c.was)
}

// spot is a name in a directory of the host, and the one used beside it.
type spot struct {
	dir         int
	name, aside string
}

// known checks that what is at the spot is still what was looked at.
func (w *work) known(s spot, was *identity) error {
	now, err := lstat(s.dir, s.name)
	if err != nil {
		return moved{"it is gone from the host: " + err.Error()}
	}
	i := identityOf(now)
	if !was.same(now) || i.ctime != was.ctime && !w.seen.left(i) {
		return moved{"the host's file was changed during the commit"}
	}
	return nil
}

// place gives what was made aside its name. What it replaces comes out aside, and
// is known again before it goes; else it is put back.
func (w *work) place(s spot, was *identity) error {
	w.step()
	if was == nil {
		err := renameNew(s.dir, s.aside, s.dir, s.name)
		if err != nil {
			w.unmake(s)
		}
		if errors.Is(err, unix.EEXIST) {
			return moved{"something has come to be there on the host"}
		}
		return err
	}
	if err := w.known(s, was); err != nil {
		w.unmake(s)
		return err
	}
	swap := func() error { return unix.Renameat2(s.dir, s.aside, s.dir, s.name, unix.RENAME_EXCHANGE) }
	err := swap()
	if errors.Is(err, unix.EINVAL) && !was.isDir() {
		// A file system that cannot exchange: the look above has to do.
		return unix.Renameat(s.dir, s.aside, s.dir, s.name)
	}
	if err != nil {
		w.unmake(s)
		return err
	}
	return w.dispose(s, was, func() error {
		if err := swap(); err != nil {
			return err
		}
		w.unmake(s)
		return nil
	})
}

// unmake removes what was made aside and got no name.
func (w *work) unmake(s spot) {
	if unix.Unlinkat(s.dir, s.aside, 0) != nil {
		_ = unix.Unlinkat(s.dir, s.aside, unix.AT_REMOVEDIR) // recover tells what stays
	}
}

// renameNew renames to a name that must be free.
func renameNew(from int, name string, to int, as string) error {
	err := unix.Renameat2(from, name, to, as, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// A file system that does not know the flag. A link needs a free name too.
	if err := unix.Linkat(from, name, to, as, 0); err != nil {
		return err
	}
	return unix.Unlinkat(from, name, 0)
}

// remove takes what is at a spot away.
func (w *work) remove(s spot, was *identity) error {
	if _, err := lstat(s.dir, s.name); errors.Is(err, unix.ENOENT) {
		return nil // as was wanted
	}
	if err := w.known(s, was); err != nil {
		return err
	}
	if err := renameNew(s.dir, s.name, s.dir, s.aside); err != nil {
		return err
	}
	return w.dispose(s, was, func() error { return renameNew(s.dir, s.aside, s.dir, s.name) })
}

// dispose removes what lies aside when it is what was looked at, and undoes what
// brought it there when it is not.
func (w *work) dispose(s spot, was *identity, undo func() error) error {
	w.step()
	why := ""
	now, err := lstat(s.dir, s.aside)
	switch {
	case err != nil:
		return err
	case !was.same(now):
		why = "the host's file was changed during the commit"
	case was.isDir():
		why = w.layer.insideUntouched(s.dir, s.aside, w.seen)
	}
	if why != "" {
		if err := undo(); err != nil {
			w.note("%s is left in its directory: it could not be put back at %s: %v", s.aside, shown(s.name), err)
		}
		return moved{why}
	}
	if !was.isDir() {
		return w.unlink(s.dir, s.aside, now)
	}
	w.step()
	if err := renameNew(s.dir, s.aside, s.dir, s.aside+gone); err != nil {
		return err
	}
	return w.removeTree(s.dir, s.aside+gone)
}

// unlink removes a name of a file that was known. What its other names say of the
// time of change from now on is this commit's doing, and is noted.
func (w *work) unlink(dir int, name string, now *unix.Stat_t) error {
	w.step()
	if now.Nlink < 2 {
		return unix.Unlinkat(dir, name, 0)
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Unlinkat(dir, name, 0); err != nil {
		return err
	}
	var after unix.Stat_t
	if err := unix.Fstat(fd, &after); err == nil && after.Mtim == now.Mtim {
		w.seen.note(&after)
	}
	return nil
}

// removeTree removes a directory of the host with what is in it.
func (w *work) removeTree(above int, name string) error {
	fd, err := openDir(above, name, unix.RESOLVE_NO_XDEV)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	list, err := names(fd)
	if err != nil {
		return err
	}
	for _, name := range list {
		s, err := lstat(fd, name)
		if err == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = w.removeTree(fd, name)
		} else if err == nil {
			err = w.unlink(fd, name, s)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", shown(name), err)
		}
	}
	w.step()
	return unix.Unlinkat(above, name, unix.AT_REMOVEDIR)
}

// rename gives a directory of the host its new name.
func (w *work) rename(c Change, to spot) error {
	now := w.seen.movedTo(c.From)
	fd, err := w.above(c.tree, now)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	defer w.changing(fd, path.Dir(now))()
	from := spot{fd, path.Base(now), ""}
	if err := w.known(from, c.was); err != nil {
		return err
	}
	if c.replaces != nil {
		if err := w.remove(to, c.replaces); err != nil {
			return err
		}
	}
	err = unix.Renameat2(fd, from.name, to.dir, to.name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return moved{"something has come to be there on the host"}
	}
	if err != nil {
		return err
	}
	if s, err := lstat(to.dir, to.name); err == nil {
		w.seen.note(s) // it was known before
	}
	return nil
}

// build makes a file or link aside.
func (w *work) build(c Change, s spot) error {
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
	if c.New.Type == "link" {
		if err := unix.Symlinkat(c.New.Target, s.dir, s.aside); err != nil {
			return err
		}
		if err := w.own(s.dir, s.aside, c.New); err != nil {
			return err
		}
		return unix.UtimesNanoAt(s.dir, s.aside, []unix.Timespec{mine.Atim, mine.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
	}
	from, err := openRegular(up, name)
	if err != nil {
		return err
	}
	defer from.Close()
	fd, err := unix.Openat2(s.dir, s.aside, &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Mode: 0o600, Resolve: beneath})
	if err != nil {
		return err
	}
	to := os.NewFile(uintptr(fd), s.aside)
	defer to.Close()
	w.step()
	if err := copySparse(to, from, mine.Size); err != nil {
		return err
	}
	want, err := attributes(up, name)
	if err != nil {
		return err
	}
	if err := w.own(s.dir, s.aside, c.New); err != nil {
		return err
	}
	// An access list is in the mode too, so that it comes after.
	if err := unix.Fchmod(fd, c.New.Mode&^uint32(setIDs)); err != nil {
		return err
	}
	if err := setAttributes(fd, want); err != nil {
		return err
	}
	if c.New.Mode&setIDs != 0 {
		if err := unix.Fchmod(fd, c.New.Mode); err != nil {
			return err
		}
	}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), []unix.Timespec{mine.Atim, mine.Mtim}, 0); err != nil {
		return err
	}
	return to.Sync()
}

// own gives a file that was made aside to its owner. An ordinary user's files are
// his from the beginning, and only their group may be another of his.
func (w *work) own(dir int, name string, f *File) error {
	s, err := lstat(dir, name)
	if err != nil || s.Uid == f.UID && s.Gid == f.GID {
		return err
	}
	uid := int(f.UID)
	if os.Geteuid() != 0 {
		uid = -1
	}
	if err := unix.Fchownat(dir, name, uid, int(f.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("giving it to %d:%d: %w", f.UID, f.GID, err)
	}
	return nil
}

// copySparse copies a file of size bytes without filling its holes.
func copySparse(to, from *os.File, size int64) error {
	if err := to.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole to the end
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(from.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		hole = min(hole, size)
		if _, err := to.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(to, io.NewSectionReader(from, data, hole-data)); err != nil {
			return err
		}
		at = max(hole, data+1)
	}
	return nil
}

// becomes is what a file of the layer is going to be on the host: whose, and with
// which rights.
func (w *work) becomes(c Change) *File {
	if c.New == nil {
		return nil
	}
	f := *c.New
	// A copy has the owner of what it was made of, and so has a file in the place of
	// another of his. What the session made belongs to who owns the session.
	made := c.origin == nil && (c.Old == nil || c.Old.UID != f.UID)
	if owner := w.layer.Owner; os.Geteuid() == 0 && owner != nil && made && f.UID == 0 {
		f.UID, f.GID = owner.UID, owner.GID
	}
	had := c.Kind == Changed && !slices.Contains(c.Parts, PartContent) && c.Old.Mode&setIDs&f.Mode == f.Mode&setIDs
	if f.Type == "file" && f.Mode&setIDs != 0 && !w.options.SetID && !had {
		f.Mode &^= setIDs
		w.note("%s: its set-id bits are not carried over; --set-id keeps them", shown(c.Path))
	}
	return &f
}
