package shadow

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// CommitOptions say what a commit carries over.
type CommitOptions struct {
	// Paths are absolute; what lies at or beneath them is carried over, with the
	// directories above that the host does not have. Everything when there are none.
	Paths []string
	// SkipConflicts leaves out what cannot be carried over. Without it nothing is,
	// when there is any such change.
	SkipConflicts bool
	// Executable carries over what the host executes or loads by itself.
	Executable bool
	// SetID keeps set-user-id and set-group-id bits of files; without it they are
	// left out and that is noted.
	SetID bool
	// DryRun looks and changes nothing.
	DryRun bool
	// Before is told of each change before it is made; an error stops the commit there.
	// Nil for nobody.
	Before func(Change) error
}

// Refused is a change that was not carried over.
type Refused struct {
	Path      string `json:"path"`
	PathBytes []byte `json:"path_bytes,omitempty"` // where Path is not UTF-8
	Kind      Kind   `json:"kind,omitempty"`       // empty for what could not be looked at
	Why       string `json:"why"`
}

// String is the refusal on one line.
func (r Refused) String() string { return shown(r.Path) + ": " + r.Why }

// Commit is what a commit has done, or with DryRun would do.
type Commit struct {
	Layer   string    `json:"layer"`
	Session string    `json:"session"`
	DryRun  bool      `json:"dry_run,omitempty"`
	Done    []Change  `json:"done"`
	Refused []Refused `json:"refused"`
	// Notes say what is not as it was in the layer, and what lies about.
	Notes []string `json:"notes,omitempty"`
	// Left counts the changes that are still in the layer. A layer without any is
	// removed.
	Left    int  `json:"left"`
	Removed bool `json:"removed,omitempty"`
}

// ErrRefused says that there are changes that cannot be carried over.
var ErrRefused = errors.New("nothing was changed on the host: some changes cannot be carried over; name others, or leave these out with --skip-conflicts")

// ErrMoved says that the host was changed while a commit was at work.
var ErrMoved = errors.New("not everything was carried over: the host was changed meanwhile")

// Commit carries changes of the layer over to the host, and takes them out of the
// layer. Everything is checked before anything is changed. Each file is whole: it
// is made beside its place, written to the disk and given its name in one step, in
// which what it replaces is known again. A commit that was cut off is finished by
// the next.
//
// ErrRefused, wrapped, where a change is refused and SkipConflicts is not set;
// ErrMoved, wrapped, where one was refused later; ErrInUse where the session
// lives. Any other error stops the commit at what is not in Done.
func (l *Layer) Commit(o CommitOptions) (res Commit, err error) {
	res = Commit{Layer: l.ID, Session: l.Session, DryRun: o.DryRun, Done: []Change{}, Refused: []Refused{}}
	if err := l.Hold(); err != nil {
		return res, err
	}
	defer l.Release()
	seen, err := l.carried()
	if err != nil {
		return res, err
	}
	w := &work{layer: l, options: o, seen: seen, result: &res, clean: map[string]bool{}, touched: map[string]bool{}, failed: map[string]bool{}}
	defer w.close()
	if !o.DryRun {
		if err := w.recover(); err != nil {
			return res, fmt.Errorf("shadow layer %s: finishing the last commit: %w", l.ID, err)
		}
	}
	d, err := l.Diff()
	if err != nil {
		return res, err
	}
	p, err := l.planOf(d, o)
	if err != nil {
		return res, err
	}
	res.Left = len(d.Changes)
	for i, c := range p.changes {
		if p.why[i] != "" {
			w.refuse(c, p.why[i])
		}
	}
	for _, u := range d.Unread {
		if concerns(u, o.Paths) {
			res.Refused = append(res.Refused, Refused{Path: u.Path, PathBytes: bytesOf(u.Path), Why: "not looked at: " + u.Why})
		}
	}
	if len(res.Refused) > 0 && !o.SkipConflicts {
		return res, fmt.Errorf("shadow layer %s: %w", l.ID, ErrRefused)
	}
	if o.DryRun {
		for i, c := range p.changes {
			if p.goes(i) {
				c.New = w.becomes(c)
				res.Done = append(res.Done, c)
			}
		}
		return res, nil
	}
	refused := len(res.Refused)
	if err := w.run(p); err != nil {
		return res, fmt.Errorf("shadow layer %s: %w", l.ID, err)
	}
	if len(res.Refused) > refused {
		return res, fmt.Errorf("shadow layer %s: %w", l.ID, ErrMoved)
	}
	return res, nil
}

// work is a commit under way.
type work struct {
	layer   *Layer
	options CommitOptions
	seen    *carried
	result  *Commit
	clean   map[string]bool // directories of the host, by file key: nobody else has changed them
	touched map[string]bool // directories of the host, by path, that are to be written to the disk
	failed  map[string]bool // paths whose directory was to be made, and was not
	roots   map[string]int
}

// step comes before each change of the host or the layer; tests stop there.
func (w *work) step() {
	if w.layer.step != nil {
		w.layer.step()
	}
}

func (w *work) close() {
	for _, fd := range w.roots {
		unix.Close(fd)
	}
}

func (w *work) refuse(c Change, why string) {
	w.result.Refused = append(w.result.Refused, Refused{c.Path, bytesOf(c.Path), c.Kind, why})
}

func (w *work) note(format string, args ...any) {
	w.result.Notes = append(w.result.Notes, fmt.Sprintf(format, args...))
}

// moved is the error of a change under which the host has changed since it was
// looked at.
type moved struct{ why string }

func (m moved) Error() string { return m.why }

// run carries the plan out, and leaves the layer with the rest.
func (w *work) run(p *plan) error {
	if err := w.announce(p); err != nil {
		return err
	}
	var done []Change
	var failure error
	for _, i := range p.order {
		c := p.changes[i]
		if above := w.lost(c.Path); above != "" {
			w.refuse(c, "it lies in "+shown(above)+", which was not carried over")
			continue
		}
		c.New = w.becomes(c)
		if w.options.Before != nil {
			if err := w.options.Before(c); err != nil {
				failure = err
				break
			}
		}
		err := w.apply(c)
		var later moved
		if errors.As(err, &later) {
			w.failed[c.Path] = true
			w.refuse(c, later.why)
			continue
		}
		if err != nil {
			failure = fmt.Errorf("%s: %w", shown(c.Path), err)
			break
		}
		done = append(done, c)
	}
	if err := w.finish(done); failure == nil {
		failure = err
	}
	return failure
}

// lost is the directory above a path that was to be made and was not.
func (w *work) lost(p string) string {
	for dir := path.Dir(p); len(w.failed) > 0 && dir != "/"; dir = path.Dir(dir) {
		if w.failed[dir] {
			return dir
		}
	}
	return ""
}

// finish gives directories their rights, writes everything to the disk, and takes
// what is done out of the layer.
func (w *work) finish(done []Change) error {
	var failure error
	for i := len(done) - 1; i >= 0; i-- {
		if c := done[i]; c.New != nil && c.New.Type == "directory" {
			if err := w.rights(c); err != nil {
				failure = errors.Join(failure, fmt.Errorf("%s: %w", shown(c.Path), err))
			}
		}
	}
	if err := w.sync(); err != nil {
		return errors.Join(failure, err)
	}
	if failure != nil {
		return failure // the layer keeps everything; what is alike is not told again
	}
	w.result.Done = done
	if err := w.leaveAll(done); err != nil {
		return fmt.Errorf("taking what was carried over out of the layer: %w", err)
	}
	d, err := w.layer.Diff()
	if err != nil {
		return err
	}
	if w.result.Left = len(d.Changes); len(d.Changes)+len(d.Unread) > 0 {
		return nil
	}
	w.result.Removed = true
	return w.layer.remove()
}
