package extension

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Bounds of discovery.
const (
	maxFile  = 4 << 20 // bytes of one file
	maxFiles = 256     // files of one root
)

// Root is a directory of extensions.
type Root struct {
	Dir string // absolute
	// Within, when set, is the directory from which on the way to Dir must be without
	// symbolic links, such as the session's: who puts a link there chooses what runs.
	Within string
	// Trust, when set, is what of the root may be used; nil for all.
	Trust *Trust
}

// File is an extension's file, as it was read.
type File struct {
	Path   string `json:"path"`
	Root   string `json:"root,omitempty"` // goes on sys.path; empty when others could write in it
	Digest string `json:"digest"`         // SHA-256 of the text, in hexadecimal
	source string
}

// Warning says why a file, or a root, is not used. It never stops anything.
type Warning struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

func (w Warning) String() string { return fmt.Sprintf("extension %q: %s", w.Path, w.Why) }

// Discover reads the files of the roots, in their order and each root's by name. A
// root that does not exist holds none. Names that begin with an underscore or a dot
// are helpers, and test_*.py, *_test.py and conftest.py are tests: none of them is
// an extension.
func Discover(roots []Root) ([]File, []Warning) {
	var files []File
	var warnings []Warning
	for _, root := range roots {
		found, warned := discover(root)
		for _, f := range found {
			if !slices.ContainsFunc(files, func(o File) bool { return o.Path == f.Path }) {
				files = append(files, f)
			}
		}
		warnings = append(warnings, warned...)
	}
	return files, warnings
}

func discover(root Root) (files []File, warnings []Warning) {
	warn := func(path, why string) { warnings = append(warnings, Warning{path, why}) }
	dir, err := openRoot(root)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) && !exists(root.Dir) {
		return nil, nil
	}
	if err != nil {
		warn(root.Dir, reason(err))
		return nil, warnings
	}
	defer dir.Close()
	if why := others(dir); why != "" {
		warn(root.Dir, "the directory "+why+": nothing in it is loaded")
		return nil, warnings
	}
	names, err := entries(dir)
	if err != nil {
		warn(root.Dir, reason(err))
		return nil, warnings
	}
	// One foreign module is enough: any file may import it.
	importable := root.Dir
	for _, name := range names {
		path := filepath.Join(root.Dir, name)
		f, loads, err := inspect(dir, name, root)
		var foreign foreignError
		if errors.As(err, &foreign) {
			importable = ""
		}
		switch {
		case err != nil:
			warn(path, err.Error())
		case loads && len(files) == maxFiles:
			warn(path, fmt.Sprintf("there are more than %d files in the directory", maxFiles))
		case loads:
			files = append(files, f)
		}
	}
	if importable == "" {
		warn(root.Dir, "its files cannot import each other, because of the names above")
	}
	for i := range files {
		files[i].Root = importable
	}
	return files, warnings
}

// foreignError says why what a name stands for may be somebody else's.
type foreignError string

func (e foreignError) Error() string { return string(e) }

// inspect reads an entry of a root; loads says that it is an extension.
func inspect(dir *os.File, name string, root Root) (f File, loads bool, err error) {
	file, err := openEntry(dir, name)
	if err != nil {
		return f, false, foreignError(reason(err))
	}
	defer file.Close()
	if why := others(file); why != "" {
		return f, false, foreignError(why)
	}
	digest := ""
	loads = strings.HasSuffix(name, ".py") && !isHelper(name)
	if loads {
		if f, err = read(file, filepath.Join(root.Dir, name)); err != nil {
			return f, false, err
		}
		digest = f.Digest
	} else if root.Trust != nil {
		if digest, err = sumOf(file); err != nil {
			return f, false, foreignError(err.Error())
		}
	}
	if why := root.Trust.doubt(name, digest); why != "" {
		return f, false, foreignError(why)
	}
	return f, loads, nil
}

func isHelper(name string) bool {
	return strings.HasPrefix(name, "_") || IsTest(name) || name == "conftest.py"
}

// IsTest reports whether a file's name is that of tests: test_*.py or *_test.py.
func IsTest(name string) bool {
	return strings.HasSuffix(name, "_test.py") || strings.HasPrefix(name, "test_") && strings.HasSuffix(name, ".py")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// openRoot opens the directory itself: not one that a link in its place leads to.
func openRoot(root Root) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	if rest, ok := strings.CutPrefix(root.Dir, strings.TrimSuffix(root.Within, "/")+"/"); ok && root.Within != "" {
		base, err := unix.Open(root.Within, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		defer unix.Close(base)
		how := &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH}
		fd, err := unix.Openat2(base, rest, how)
		return asFile(fd, root.Dir, err)
	}
	fd, err := unix.Open(root.Dir, flags|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) && isLink(root.Dir) {
		err = unix.ELOOP
	}
	return asFile(fd, root.Dir, err)
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

func openEntry(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	return asFile(fd, name, err)
}

func asFile(fd int, name string, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// reason is an error in the operator's words.
func reason(err error) string {
	if errors.Is(err, unix.ELOOP) {
		return "is a symbolic link, or lies behind one: put the file or directory itself there"
	}
	return err.Error()
}

// others says who else than the operator can change what is open; empty for nobody.
func others(file *os.File) string {
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return "has no owner that can be read"
	case int(stat.Uid) != os.Geteuid() && stat.Uid != 0:
		return fmt.Sprintf("belongs to uid %d, not to you: change its owner, or remove it", stat.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Sprintf("can be written by others (mode %04o): chmod go-w", info.Mode().Perm())
	case !info.IsDir() && !info.Mode().IsRegular():
		return "is not a regular file"
	}
	return ""
}

func read(file *os.File, path string) (File, error) {
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return File{}, err
	case len(text) > maxFile:
		return File{}, fmt.Errorf("has more than %d bytes", maxFile)
	case !utf8.Valid(text):
		return File{}, errors.New("is not UTF-8")
	case !utf8.ValidString(path):
		return File{}, errors.New("has a name that is not UTF-8")
	}
	sum := sha256.Sum256(text)
	return File{Path: path, Digest: hex.EncodeToString(sum[:]), source: string(text)}, nil
}
