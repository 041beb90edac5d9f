package shadow

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Size is what the layer takes on the disk, in bytes, hard links counted once. It
// stops counting when more than enough is found. A session may be at work in it:
// what goes away meanwhile is not counted.
func (l *Layer) Size(enough int64) (int64, error) {
	s := sizing{enough: enough, linked: map[uint64]bool{}}
	for _, t := range l.Trees {
		fd, err := hostDir(filepath.Join(l.Path, t.Dir))
		if err != nil {
			return s.total, err
		}
		s.directory(fd, 0)
		unix.Close(fd)
	}
	return s.total, nil
}

type sizing struct {
	total, enough int64
	seen          int
	linked        map[uint64]bool
}

func (s *sizing) directory(fd, depth int) {
	list, err := names(fd)
	if err != nil || depth > maxDepth {
		// Closed to the launcher by the session: what is in it takes room.
		s.total = s.enough + 1
		return
	}
	for _, name := range list {
		if s.seen++; s.total > s.enough || s.seen > maxEntries {
			s.total = max(s.total, s.enough+1)
			return
		}
		stat, err := lstat(fd, name)
		if err != nil {
			continue
		}
		if stat.Nlink > 1 && stat.Mode&unix.S_IFMT == unix.S_IFREG {
			if s.linked[stat.Ino] {
				continue
			}
			s.linked[stat.Ino] = true
		}
		s.total += stat.Blocks * 512
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		in, err := openDir(fd, name, unix.RESOLVE_NO_XDEV)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			if name == "work" && depth <= 1 {
				continue // overlayfs's own, which is closed and holds files on their way only
			}
			s.total = s.enough + 1
			return
		}
		s.directory(in, depth+1)
		unix.Close(in)
	}
}
