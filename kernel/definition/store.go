package definition

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse says that a session which runs keeps its definitions under the name.
var ErrInUse = errors.New("a session that runs keeps its own under this name")

const suffix = ".json"

// Store is what is kept under one name. One session at a time has it.
type Store struct {
	dir, name, path string
	lock            *os.File
}

// Open takes the name for one session; dir is made when it is missing. The error
// is ErrInUse when another session has it.
func Open(dir, name string) (*Store, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("definitions: %w", err)
	}
	if err := ours(dir); err != nil {
		return nil, err
	}
	path := fileOf(dir, name)
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("definitions %q: %w", name, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("definitions %q: %w", name, ErrInUse)
		}
		return nil, fmt.Errorf("definitions %q: lock: %w", name, err)
	}
	return &Store{dir: dir, name: name, path: path, lock: lock}, nil
}

// fileOf names the file of a name, which may have any characters.
func fileOf(dir, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(dir, hex.EncodeToString(sum[:16])+suffix)
}

// ours refuses a directory in which anybody else could put code.
func ours(dir string) error {
	var s unix.Stat_t
	if err := unix.Lstat(dir, &s); err != nil {
		return fmt.Errorf("definitions %q: %w", dir, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR || int(s.Uid) != os.Geteuid() || s.Mode&0o022 != 0 {
		return fmt.Errorf("definitions %q: is not a directory that only its user can change; chmod go-w it, or name another", dir)
	}
	return nil
}

// Load returns what is kept; nothing where nothing is.
func (s *Store) Load() (Kept, error) {
	k, err := load(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Kept{Name: s.name}, nil
	}
	if err == nil && k.Name != s.name {
		err = fmt.Errorf("is of the name %q", k.Name)
	}
	if err != nil {
		return Kept{}, fmt.Errorf("definitions %q: %w; 'cellblock definitions forget' drops them", s.name, err)
	}
	return k, nil
}

func load(path string) (Kept, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Kept{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Kept{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return Kept{}, fmt.Errorf("%s: is no file of definitions", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Kept{}, err
	}
	k, err := decode(data)
	if err != nil {
		return Kept{}, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// Save keeps k instead of what is there, whole or not at all: a launcher that is
// killed leaves the one or the other.
func (s *Store) Save(k Kept) error {
	k.Name = s.name
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	made, err := os.CreateTemp(s.dir, ".new-") // 0600
	if err != nil {
		return fmt.Errorf("definitions %q: %w", s.name, err)
	}
	_, err = made.Write(data)
	err = errors.Join(err, made.Close())
	if err == nil {
		err = os.Rename(made.Name(), s.path)
	}
	if err != nil {
		os.Remove(made.Name())
		return fmt.Errorf("definitions %q: %w", s.name, err)
	}
	return nil
}

// Close gives the name back.
func (s *Store) Close() {
	if s != nil {
		_ = s.lock.Close() // which it was opened for; nothing was written to it
	}
}

// List returns what is kept in dir, by name. What cannot be read is in the error,
// beside the rest.
func List(dir string) ([]Kept, error) {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("definitions: %w", err)
	}
	var all []Kept
	var failed []error
	for _, e := range found {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		k, err := load(filepath.Join(dir, e.Name()))
		if err != nil {
			failed = append(failed, fmt.Errorf("definitions: %w", err))
			continue
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Kept) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(failed...)
}

// Forget removes what is kept under a name: all of it, or with names the statements
// that define one of them. It returns how many statements those were. A session
// that runs must end first.
func Forget(dir, name string, names ...string) (int, error) {
	if _, err := os.Lstat(fileOf(dir, name)); err != nil {
		return 0, fmt.Errorf("definitions %q: there are none; 'cellblock definitions list' shows the names", name)
	}
	s, err := Open(dir, name)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	k, err := s.Load()
	if len(names) == 0 {
		// Also what cannot be read.
		if err := os.Remove(s.path); err != nil {
			return 0, fmt.Errorf("definitions %q: %w", name, err)
		}
		// The lock's file stays: two sessions that each lock a file of the same name
		// could otherwise hold two different ones.
		return len(k.Statements), nil
	}
	if err != nil {
		return 0, err
	}
	before := len(k.Statements)
	for _, n := range names {
		at := len(k.Statements)
		k.Statements = slices.DeleteFunc(k.Statements, func(s Statement) bool { return slices.Contains(s.Names, n) })
		if len(k.Statements) == at {
			return 0, fmt.Errorf("definitions %q: %s is not among them", name, n)
		}
	}
	return before - len(k.Statements), s.Save(k)
}
