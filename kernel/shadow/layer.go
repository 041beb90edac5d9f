package shadow

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Tree is a directory of the host that a layer covers.
type Tree struct {
	Path string `json:"path"`
	Dir  string `json:"dir"` // in the layer; "upper" and "work" lie in it
}

// Refusal is a path that an enforced rule keeps from being changed. What a session
// makes there, where there was nothing to refuse with, is a conflict in the diff.
type Refusal struct {
	Path   string `json:"path"`
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
}

// Meta is what a layer knows of itself.
type Meta struct {
	Version   int       `json:"version"`
	Session   string    `json:"session"`
	Directory string    `json:"directory"`       // of the session
	Born      time.Time `json:"born"`            // by the clock of the file system
	Since     *Moment   `json:"since,omitempty"` // just before; nil in layers that do not say so
	Trees     []Tree    `json:"trees"`
	// Trusted is set where a privileged launcher mounts the overlays: their marks are
	// then out of the session's reach, and what the session calls by the names that other
	// overlays have for theirs is none.
	Trusted bool      `json:"trusted,omitempty"`
	Refused []Refusal `json:"refused,omitempty"`
	// Owner is who owns the session directory: what a session of root's has made
	// belongs to him on the host. nil in layers that do not say so.
	Owner *Owner `json:"owner,omitempty"`
}

// Owner is a user and a group of the host.
type Owner struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

const version = 1

// Layer is one session's layer.
type Layer struct {
	ID   string
	Path string
	Meta
	lock *os.File
	step func() // of a test, in the middle of a commit
}

// ErrInUse says that a layer's session still runs, or that another command is
// dropping the layer.
var ErrInUse = errors.New("in use: end its session first, or the command that works on it")

// ErrNone says that there is no layer of this name.
var ErrNone = errors.New("there is none of this name; 'cellblock shadow list' shows them")

var made atomic.Int64

// Create makes an empty layer in dir, which is made when it is missing, and locks
// it: it belongs to one session alone. The upper directories look like those that
// they cover.
func Create(dir string, m Meta, covers []string) (*Layer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("shadow layers: %w", err)
	}
	_ = sweep(dir) // somebody else's leavings stop no session
	id := fmt.Sprintf("%s-%d-%d", time.Now().UTC().Format("20060102T150405.000"), os.Getpid(), made.Add(1))
	l := &Layer{ID: id, Path: filepath.Join(dir, id), Meta: m}
	if err := os.Mkdir(l.Path, 0o700); err != nil {
		return nil, fmt.Errorf("shadow layer: %w", err)
	}
	err := l.fill(covers)
	if err != nil {
		_ = l.remove()
		return nil, fmt.Errorf("shadow layer %s: %w", id, err)
	}
	return l, nil
}

func (l *Layer) fill(covers []string) (err error) {
	if err = l.hold(); err != nil {
		return err
	}
	l.Version = version
	for i, path := range covers {
		tree := Tree{Path: path, Dir: strconv.Itoa(i)}
		upper := filepath.Join(l.Path, tree.Dir, "upper")
		if err := os.MkdirAll(upper, 0o700); err != nil {
			return err
		}
		if err := resemble(upper, path); err != nil {
			return err
		}
		l.Trees = append(l.Trees, tree)
	}
	since, err := moment()
	if err != nil {
		return err
	}
	l.Since = &since
	if l.Born, err = l.tick(); err != nil {
		return err
	}
	return l.write()
}

// resemble gives the upper directory the rights of the one that it covers, since
// they are what the session sees. One that belongs to somebody else, and that this
// launcher cannot give away, becomes the user's with what it lets the user do.
func resemble(upper, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("stat %s: no owner", path)
	}
	mode := stat.Mode & 0o1777
	if os.Geteuid() == 0 {
		if err := os.Chown(upper, int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
	} else if int(stat.Uid) != os.Geteuid() {
		var own uint32
		for bit, access := range map[uint32]uint32{4: unix.R_OK, 2: unix.W_OK, 1: unix.X_OK} {
			if unix.Access(path, access) == nil {
				own |= bit
			}
		}
		mode = mode&^0o700 | own<<6
	}
	return unix.Chmod(upper, mode)
}

// tick waits for the next tick of the clock by which the file system dates
// changes: what was changed before has an earlier time, and what is changed from
// now on this one or a later.
func (l *Layer) tick() (time.Time, error) {
	probe := filepath.Join(l.Path, "tick")
	defer os.Remove(probe)
	at := func() (time.Time, error) {
		if err := os.WriteFile(probe, []byte("."), 0o600); err != nil {
			return time.Time{}, err
		}
		var stat unix.Stat_t
		err := unix.Lstat(probe, &stat)
		return changed(&stat), err
	}
	first, err := at()
	for range 1000 {
		if err != nil {
			return first, err
		}
		now, err := at()
		if err != nil || now.After(first) {
			return now, err
		}
		time.Sleep(time.Millisecond)
	}
	return first, errors.New("the clock of its file system stands still")
}

func changed(s *unix.Stat_t) time.Time { return time.Unix(s.Ctim.Unix()) }

func (l *Layer) write() error {
	text, err := json.MarshalIndent(l.Meta, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(l.Path, "layer.json")
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// hold takes the layer's lock.
func (l *Layer) hold() error {
	lock, err := os.OpenFile(filepath.Join(l.Path, "lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return ErrInUse
	}
	l.lock = lock
	return nil
}

// Hold takes the lock of a layer that was opened. ErrInUse, wrapped, when somebody
// else has it.
func (l *Layer) Hold() error {
	if l.lock != nil {
		return nil
	}
	if err := l.hold(); err != nil {
		return fmt.Errorf("shadow layer %s: %w", l.ID, err)
	}
	return nil
}

// Release gives the lock back.
func (l *Layer) Release() {
	if l.lock != nil {
		l.lock.Close()
		l.lock = nil
	}
}

// Upper is the directory that takes the changes of a tree.
func (l *Layer) Upper(t Tree) string { return filepath.Join(l.Path, t.Dir, "upper") }

// Prepare makes the layer ready for the next generation of its session: overlayfs
// wants a new work directory, since nothing tells it that the last one is whole.
func (l *Layer) Prepare() error {
	for _, t := range l.Trees {
		work := filepath.Join(l.Path, t.Dir, "work")
		if err := removeAll(work); err != nil {
			return fmt.Errorf("shadow layer %s: %w", l.ID, err)
		}
		if err := os.Mkdir(work, 0o700); err != nil {
			return fmt.Errorf("shadow layer %s: %w", l.ID, err)
		}
	}
	return nil
}

// Close ends a session's use of its layer. One in which nothing differs from the
// host is removed, and kept is false.
func (l *Layer) Close() (kept bool, err error) {
	defer l.Release()
	for _, t := range l.Trees {
		if err := removeAll(filepath.Join(l.Path, t.Dir, "work")); err != nil {
			return true, fmt.Errorf("shadow layer %s: %w", l.ID, err)
		}
	}
	diff, err := l.Diff()
	if err != nil || len(diff.Changes) > 0 || len(diff.Unread) > 0 {
		return true, err
	}
	return false, l.remove()
}

// Discard removes the layer and everything in it. The host is not touched.
// What a commit that was cut off has left beside files of the host goes first.
func (l *Layer) Discard(before func(Diff) error) error {
	if err := l.Hold(); err != nil {
		return err
	}
	seen, err := l.carried()
	if err == nil {
		w := &work{layer: l, seen: seen, result: &Commit{}}
		err = w.recover()
		w.close()
	}
	if err != nil {
		l.Release()
		return fmt.Errorf("shadow layer %s: finishing the last commit: %w", l.ID, err)
	}
	if before == nil {
		return l.remove()
	}
	d, err := l.Diff()
	if err != nil {
		d.Unread = append(d.Unread, Unread{Path: "/", Why: err.Error()})
	}
	if err := before(d); err != nil {
		l.Release()
		return err
	}
	return l.remove()
}

// goneLayer begins the names of layers that are being removed.
const goneLayer = ".gone-"

// remove takes the layer out of sight in one step, and then from the disk. What a
// kill leaves of that goes with the next layer, or the next that is made.
func (l *Layer) remove() error {
	defer l.Release()
	dir := filepath.Dir(l.Path)
	err := os.Rename(l.Path, filepath.Join(dir, goneLayer+l.ID))
	if err == nil {
		err = sweep(dir)
	}
	if err != nil {
		return fmt.Errorf("shadow layer %s: %w", l.ID, err)
	}
	return nil
}

// sweep removes what is left of layers that are out of sight.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), goneLayer) {
			err = errors.Join(err, removeAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// removeAll removes a tree whose directories may have been closed to their owner.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close()
	opened := func(name string) {
		if info, err := root.Lstat(name); err == nil && info.IsDir() {
			_ = root.Chmod(name, 0o700) // what stays closed the removal tells
		}
	}
	base := filepath.Base(path)
	opened(base)
	_ = fs.WalkDir(root.FS(), base, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			opened(name)
		}
		return nil
	})
	return os.RemoveAll(path)
}

// Open finds a layer in dir by its id, by the name of its session, or as "last".
func Open(dir, name string) (*Layer, error) {
	all, err := List(dir)
	if err != nil {
		return nil, err
	}
	var found *Layer
	for _, l := range all {
		switch {
		case l.ID == name, name == "last":
			return l, nil
		case l.Session == name && found != nil:
			return nil, fmt.Errorf("shadow layer %q: %s and %s have this name: give one of these", name, found.ID, l.ID)
		case l.Session == name:
			found = l
		}
	}
	if found == nil {
		return nil, fmt.Errorf("shadow layer %q: %w", name, ErrNone)
	}
	return found, nil
}

// List returns the layers in dir, the newest first.
func List(dir string) ([]*Layer, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("shadow layers: %w", err)
	}
	var out []*Layer
	for i := len(entries) - 1; i >= 0; i-- {
		if strings.HasPrefix(entries[i].Name(), ".") {
			continue // being removed
		}
		l := &Layer{ID: entries[i].Name(), Path: filepath.Join(dir, entries[i].Name())}
		text, err := os.ReadFile(filepath.Join(l.Path, "layer.json"))
		if err != nil {
			continue // half made
		}
		if err := json.Unmarshal(text, &l.Meta); err != nil {
			return nil, fmt.Errorf("shadow layer %s: layer.json: %w", l.ID, err)
		}
		if l.Version != version {
			return nil, fmt.Errorf("shadow layer %s: its layout is version %d, this build knows %d: remove %s", l.ID, l.Version, version, l.Path)
		}
		for _, t := range l.Trees {
			if !filepath.IsAbs(t.Path) || t.Dir == "" || strings.ContainsAny(t.Dir, "/.") {
				return nil, fmt.Errorf("shadow layer %s: layer.json names the tree %q in %q: remove %s", l.ID, t.Path, t.Dir, l.Path)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// Live reports whether the layer's session still runs.
func (l *Layer) Live() bool {
	if l.lock != nil {
		return true
	}
	if err := l.hold(); err != nil {
		return errors.Is(err, ErrInUse)
	}
	l.Release()
	return false
}
