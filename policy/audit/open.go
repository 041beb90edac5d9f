package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Open opens a log for appending, or makes it, and the directory it is in. The
// directory must be the caller's own, with nobody else's rights on it (0700): in
// another one the log could be taken away under its name. A log that is written
// by another process, that its head does not fit, or that is no plain file of
// the caller's is refused; so nothing is ever appended to what was tampered with.
func Open(path string, o Options) (*Log, error) {
	l, err := open(path, o)
	if err != nil {
		var named *os.PathError
		if errors.As(err, &named) && named.Path == path {
			err = named.Err
		}
		return nil, &OpenError{path, err}
	}
	return l, nil
}

// OpenError says why a log cannot be written to.
type OpenError struct {
	Path string
	Err  error
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("audit log %s: %v%s", e.Path, e.Err, roomFor(e.Err))
}

func (e *OpenError) Unwrap() error { return e.Err }

func open(path string, o Options) (l *Log, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := ownDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, errors.New("is a symbolic link: name the file itself")
	}
	if err != nil {
		return nil, err
	}
	l = &Log{path: path, file: file, masks: o.Masks, sync: o.Sync, limit: o.MaxBytes}
	if l.masks == nil {
		l.masks = DefaultMasks()
	}
	if l.limit <= 0 {
		l.limit = DefaultMaxBytes
	}
	if err := l.take(); err != nil {
		file.Close()
		return nil, err
	}
	if err := l.resume(); err != nil {
		if l.head != nil {
			l.head.file.Close()
		}
		file.Close()
		return nil, err
	}
	return l, nil
}

// ownDirectory makes the directory or checks that it is nobody else's.
func ownDirectory(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("directory %s belongs to another user: use one of your own", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("directory %s is open to others (mode %04o): chmod 700, or name a directory that does not exist yet", dir, info.Mode().Perm())
	}
	return nil
}

// take locks the file and checks that it is what its name names.
func (l *Log) take() error {
	var err error
	for try := 0; ; try++ {
		err = syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		// Verify holds a shared lock for a moment.
		if !errors.Is(err, syscall.EWOULDBLOCK) || try == 20 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%w: name another file", ErrLocked)
	}
	if err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(l.path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case !os.SameFile(info, named):
		return errors.New("another file has taken its name: try again")
	case !ok || int(stat.Uid) != os.Geteuid() || stat.Nlink != 1:
		return errors.New("belongs to another user, or has a second name: name another file")
	}
	l.size = info.Size()
	return l.file.Chmod(0o600)
}

// resume finds out where an existing log ends. What a killed writer had half
// written is cut off, and that is said in a record.
func (l *Log) resume() error {
	head, whole, err := readHead(l.path)
	if l.size == 0 && (errors.Is(err, errNoHead) || errors.Is(err, errHeadBroken)) {
		l.head, err = createHead(l.path)
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: keep it, and name another file", err)
	}
	if _, err := l.file.Seek(0, 0); err != nil {
		return err
	}
	c := checker{head: head, whole: true, found: Verification{Head: Genesis}}
	found, err := c.run(l.file)
	if err != nil {
		return err
	}
	if !found.Clean() {
		return fmt.Errorf("%s: keep it as it is, and name another file", found.Findings[0])
	}
	f, err := os.OpenFile(l.path+HeadSuffix, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	l.head = &headFile{file: f, Head: head}
	torn := l.size - c.bytes // no line was a finding
	if torn > 0 {
		if err := l.file.Truncate(l.size - torn); err != nil {
			return err
		}
		l.size -= torn
	}
	ahead := c.last - head.Count
	next := Head{Count: c.last, Hash: c.hash}
	// Twice: a slot that the end of the machine has damaged is whole again.
	if err := errors.Join(l.head.set(next), l.head.set(next)); err != nil {
		return err
	}
	if torn == 0 && ahead == 0 && whole {
		return nil
	}
	facts := map[string]any{"tornBytes": torn, "unacknowledged": ahead, "headWhole": whole}
	return l.Append(Record{Op: OpRepair, Source: SourceKernel, Facts: facts,
		Reason: "the writer before was ended: a last line without an end was cut off, whole ones were kept"})
}

func syncDirectory(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
