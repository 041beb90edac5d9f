// Package artefact tells which files a cell has made or changed in its session
// directory.
//
//	watch, err := artefact.Begin(dir)
//	if err != nil { … }
//	defer watch.Close()
//	// … the cell runs …
//	files, notes := watch.End()
//
// A file counts when its inode, its size or its change time (st_ctime, which no program
// can set; inode(7)) differs, so that other content of equal length is found, and a time of
// modification that was set back hides nothing.
//
// # Limitations
//
// It is told what is there when the cell ends: of a file that a cell makes and removes
// there is nothing to tell. What a process of an earlier cell writes while a cell runs is
// told of with that cell. Directories whose names begin with a dot, symbolic links, other
// file systems and everything beyond [MaxEntries] are not looked at; the last is said in a
// note.
package artefact

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of one look and of what is told.
const (
	MaxEntries = 10_000 // files and directories of a session directory
	MaxDepth   = 32     // of directories in one another
	MaxFiles   = 100    // that are told of one cell
)

// What has become of a file.
const (
	Created = "created"
	Changed = "changed"
)

// File is one artefact.
type File struct {
	Path   string `json:"path"`   // within the session directory, in valid UTF-8
	Bytes  int64  `json:"bytes"`  // its size
	Change string `json:"change"` // created or changed
}

// Watch is one session directory while one cell runs.
type Watch struct {
	dir    int
	before state
}

// Begin takes down what is there; the directory may later be renamed. Whatever is written
// after it returns gets another time.
func Begin(path string) (*Watch, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "artefacts: open", Path: path, Err: err}
	}
	w := &Watch{dir: fd}
	w.before = w.look()
	// Linux takes change times from a clock that moves once in a tick, 1 to 10 ms (before
	// 6.13, and on some file systems after it).
	for range 20 {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil || now.Nano() > w.before.newest.Nano() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return w, nil
}

// Close gives the directory back.
func (w *Watch) Close() error { return unix.Close(w.dir) }

// stamp is what changes with a file's content.
type stamp struct {
	inode uint64
	size  int64
	ctime unix.Timespec
}

// state is what has been found in the directory.
type state struct {
	files  map[string]stamp
	newest unix.Timespec // of the change times
	more   bool          // there is more than was looked at
	closed int           // directories that the session has closed to the launcher
}

// End lists what is new or other than at the beginning, by name, and says in notes what it
// cannot tell.
func (w *Watch) End() (files []File, notes []string) {
	return w.look().since(w.before)
}

// look follows nothing and opens directories alone, so that nothing in them can hold it up.
func (w *Watch) look() state {
	s := state{files: map[string]stamp{}}
	left := MaxEntries
	if fd, err := openDir(w.dir, "."); err == nil {
		s.directory(fd, "", 0, &left)
	} else {
		s.closed++
	}
	return s
}

func (s *state) directory(fd int, at string, depth int, left *int) {
	dir := os.NewFile(uintptr(fd), "directory")
	defer dir.Close()
	for {
		// In parts: a session may make a directory as large as it likes.
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			if *left--; *left < 0 {
				s.more = true
				return
			}
			s.entry(fd, at, name, depth, left)
		}
		if err != nil || len(names) == 0 {
			return
		}
	}
}

func (s *state) entry(fd int, at, name string, depth int, left *int) {
	var stat unix.Stat_t
	if err := unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return // it has gone meanwhile
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.files[at+name] = stamp{stat.Ino, stat.Size, stat.Ctim}
		if stat.Ctim.Nano() > s.newest.Nano() {
			s.newest = stat.Ctim
		}
	case unix.S_IFDIR:
		if strings.HasPrefix(name, ".") {
			return
		}
		if depth == MaxDepth {
			s.more = true
			return
		}
		in, err := openDir(fd, name)
		switch {
		case err == nil:
			s.directory(in, at+name+"/", depth+1, left)
		case err != unix.ENOENT && err != unix.EXDEV:
			s.closed++
		}
	}
}

func openDir(at int, name string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV}
	for {
		fd, err := unix.Openat2(at, name, how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

func (s state) since(before state) (files []File, notes []string) {
	for path, now := range s.files {
		old, was := before.files[path]
		switch {
		case !was && !before.more:
			files = append(files, File{strings.ToValidUTF8(path, "\ufffd"), now.size, Created})
		case was && now != old:
			files = append(files, File{strings.ToValidUTF8(path, "\ufffd"), now.size, Changed})
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	if len(files) > MaxFiles {
		notes = append(notes, fmt.Sprintf("artefacts: %d more files were made or changed than the %d that are told of", len(files)-MaxFiles, MaxFiles))
		files = files[:MaxFiles]
	}
	if s.more || before.more {
		notes = append(notes, fmt.Sprintf("artefacts: the session directory holds more than %d files and directories, or directories more than %d deep; those beyond are not told of", MaxEntries, MaxDepth))
	}
	if s.closed > 0 {
		notes = append(notes, fmt.Sprintf("artefacts: %d directories cannot be read by the launcher; what is in them is not told of", s.closed))
	}
	return files, notes
}
