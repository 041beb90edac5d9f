package kernel

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"cellblock/policy"
)

// maxLinks is how many symbolic links Linux follows on one way (path_resolution(7)).
const maxLinks = 40

// lookup finds out what the host has at an absolute path: its canonical form,
// the symbolic links on the way, and whether it is there. A stub of ours counts
// as nothing.
func lookup(path string) policy.Found { return hostTree{}.lookup(path) }

// hostTree is what the host had at a moment, by path, for many look-ups at once.
type hostTree map[string]hostPlace

type hostPlace struct {
	info os.FileInfo
	err  error
}

func (h hostTree) lstat(path string) (os.FileInfo, error) {
	known, ok := h[path]
	if !ok {
		known.info, known.err = os.Lstat(path)
		h[path] = known
	}
	return known.info, known.err
}

func (h hostTree) lookup(path string) policy.Found {
	found := policy.Found{Path: "/"}
	todo := split(path)
	var info os.FileInfo
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			found.Path, info = filepath.Dir(found.Path), nil
			continue
		}
		at := filepath.Join(found.Path, name)
		var err error
		info, err = h.lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			found.Path = filepath.Join(append([]string{at}, todo...)...)
			return found
		case err != nil:
			found.Path, found.Err = filepath.Join(append([]string{at}, todo...)...), cause(err)
			return found
		case info.Mode()&fs.ModeSymlink == 0:
			found.Path = at
			continue
		}
		target, err := os.Readlink(at)
		if err != nil || len(found.Links) == maxLinks {
			found.Path, found.Err = filepath.Join(append([]string{at}, todo...)...), "too many symbolic links"
			return found
		}
		found.Links = append(found.Links, policy.HostLink{Path: at, Target: target})
		info = nil
		if filepath.IsAbs(target) {
			found.Path = "/"
		}
		todo = append(split(target), todo...)
	}
	if info == nil { // the way has ended in .. or at the root
		info, _ = h.lstat(found.Path)
	}
	if info != nil && isBareStub(found.Path, info) {
		return found
	}
	found.Exists = true
	found.Dir = info != nil && info.IsDir()
	return found
}

// topLinks are the symbolic links in the root directory that lead to something.
func topLinks() (top []policy.TopLink) {
	entries, err := os.ReadDir("/")
	if err != nil {
		return nil // what nobody can list is shown by no list either
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		at := "/" + e.Name()
		if target, err := os.Readlink(at); err == nil {
			if found := lookup(at); found.Exists {
				top = append(top, policy.TopLink{HostLink: policy.HostLink{Path: at, Target: target}, Leads: found.Path})
			}
		}
	}
	return top
}

func split(path string) []string {
	var out []string
	for part := range strings.SplitSeq(path, "/") {
		if part != "" && part != "." {
			out = append(out, part)
		}
	}
	return out
}

// cause is an error of the file system without the path, which stands before it.
func cause(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}
