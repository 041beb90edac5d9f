package audit

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// Sync says when records are forced to the disk.
type Sync int

// The policies. A record that Append has acknowledged survives the end of the
// process under each of them; they differ in what the end of the machine takes.
const (
	// SyncBounds forces the record that starts a session, in the background, the
	// one that ends it, and the whole at Close.
	SyncBounds Sync = iota
	// SyncEach forces every Append before it returns.
	SyncEach
	// SyncNone leaves it to Linux, which writes within half a minute.
	SyncNone
)

// DefaultMaxBytes bounds a log for which nothing else was said, so that a guest
// cannot fill the disk of the host by what is written about it.
const DefaultMaxBytes = 1 << 30

// ParseSync reads a policy's name: bounds, each or none.
func ParseSync(name string) (Sync, error) {
	for s, known := range []string{"bounds", "each", "none"} {
		if name == known {
			return Sync(s), nil
		}
	}
	return 0, fmt.Errorf("audit sync %q: unknown; choose bounds, each or none", name)
}

// Options of a log. The zero value is the default of each.
type Options struct {
	Masks    *Masks // nil: DefaultMasks
	Sync     Sync
	MaxBytes int64 // of the file; 0 is DefaultMaxBytes
}

// Log is the one writer of a file. Its methods may be called from any goroutine.
type Log struct {
	path  string
	masks *Masks
	sync  Sync
	limit int64

	mu     sync.Mutex
	file   *os.File
	head   *headFile
	size   int64
	line   []byte
	broken error // nothing more can be written: the file is not what was written
	closed bool

	syncing sync.WaitGroup
	lost    error // of a sync in the background
}

// WriteError says that records could not be written. None of the records of
// that Append is in the log, and a later Append may succeed.
type WriteError struct {
	Path string
	Err  error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("audit log %s: %v%s", e.Path, e.Err, roomFor(e.Err))
}

// roomFor is what to do about a file for which there is no room.
func roomFor(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG), errors.Is(err, ErrLimit):
		return ": make room, or name another file"
	}
	return ""
}

func (e *WriteError) Unwrap() error { return e.Err }

// Causes of a WriteError or of an error of Open.
var (
	ErrLimit   = errors.New("the limit of its size is reached")
	ErrChanged = errors.New("it was changed under its writer")
	ErrClosed  = errors.New("closed")
	ErrLocked  = errors.New("another process writes it")
)

// Path is the log's file.
func (l *Log) Path() string { return l.path }

// Head is what the log comes to now.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head.Head
}

// Append writes records in their order, with one write(2). All of them are
// acknowledged by a nil error; with any other, none of them is in the log, or,
// where fdatasync(2) failed, nobody knows what the disk has of them.
func (l *Log) Append(records ...Record) error {
	if len(records) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := ErrClosed
	if !l.closed {
		err = l.append(records)
	}
	if err != nil {
		return &WriteError{l.path, err}
	}
	return nil
}

func (l *Log) append(records []Record) error {
	if l.broken != nil {
		return l.broken
	}
	next := l.head.Head
	buffer, force, background := l.line[:0], l.sync == SyncEach, false
	for _, r := range records {
		line := len(buffer)
		var err error
		if r, err = l.masks.record(r); err != nil {
			return err
		}
		next.Count++
		r.Seq, r.Prev = next.Count, next.Hash
		if r.Time.IsZero() {
			r.Time = time.Now()
		}
		if buffer, err = appendRecord(buffer, &r); err != nil {
			return err
		}
		if n := len(buffer) - line; n > MaxLine {
			return fmt.Errorf("record %s: %d bytes, at most %d", r.Op, n, MaxLine)
		}
		next.Hash = hashOf(buffer[line:])
		buffer = append(buffer, '\n')
		force = force || l.sync == SyncBounds && r.Op == OpSessionEnd
		background = background || l.sync == SyncBounds && r.Op == OpSessionStart
	}
	if cap(buffer) <= 256<<10 {
		l.line = buffer
	}
	if err := l.write(buffer); err != nil {
		return err
	}
	if err := l.head.set(next); err != nil {
		return l.undo(int64(len(buffer)), err)
	}
	switch {
	case force && !l.closed:
		if err := fdatasync(l.file); err != nil {
			return fmt.Errorf("fdatasync: %w", err)
		}
	case background:
		l.syncing.Go(l.force)
	}
	return nil
}

// write adds whole lines, or nothing.
func (l *Log) write(b []byte) error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(l.file.Fd()), &stat); err != nil {
		return err
	}
	if stat.Size != l.size || stat.Nlink == 0 {
		l.broken = ErrChanged
		return l.broken
	}
	if l.size+int64(len(b)) > l.limit {
		return ErrLimit
	}
	n, err := l.file.Write(b)
	l.size += int64(n)
	if err != nil {
		return l.undo(int64(n), err)
	}
	return nil
}

// undo takes the last n bytes back, so that the next line begins on its own.
func (l *Log) undo(n int64, cause error) error {
	var path *os.PathError
	if errors.As(cause, &path) {
		cause = path.Err // our error names the file
	}
	if err := l.file.Truncate(l.size - n); err != nil {
		l.broken = fmt.Errorf("%w, and what was half written cannot be taken back: %w", cause, err)
		return l.broken
	}
	l.size -= n
	return cause
}

func fdatasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return err
		}
	}
}

// force puts the log, its head and their names on the disk.
func (l *Log) force() {
	err := errors.Join(fdatasync(l.file), fdatasync(l.head.file), syncDirectory(l.path))
	l.mu.Lock()
	l.lost = errors.Join(l.lost, err)
	l.mu.Unlock()
}

// Close writes the last records, marks the log as ended, forces it to the disk
// and lets go of it. A second Close does nothing.
func (l *Log) Close(last ...Record) error {
	l.mu.Lock()
	done := l.closed
	l.closed = true
	l.mu.Unlock()
	if done {
		return nil
	}
	l.syncing.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.lost
	if len(last) > 0 {
		err = errors.Join(err, l.append(last))
	}
	if l.broken == nil {
		next := l.head.Head
		next.Closed = true
		err = errors.Join(err, l.head.set(next))
	}
	if l.sync != SyncNone {
		// Side by side: the file system puts both into one commit of its journal.
		headSync := make(chan error, 1)
		go func() { headSync <- fdatasync(l.head.file) }()
		err = errors.Join(err, fdatasync(l.file), <-headSync)
	}
	err = errors.Join(err, l.head.file.Close(), l.file.Close())
	if err != nil {
		return &WriteError{l.path, err}
	}
	return nil
}
