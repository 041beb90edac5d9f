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
func lookup(path string) policy.Found {
	found := policy.Found{Path: "/"}
	todo := split(path)
	var info os.FileInfo
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			found.Path = filepath.Dir(found.Path)
			continue
		}
		at := filepath.Join(found.Path, name)
		var err error
		info, err = os.Lstat(at)
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
		if filepath.IsAbs(target) {
			found.Path = "/"
		}
		todo = append(split(target), todo...)
	}
	if info != nil && isBareStub(found.Path, info) {
		return found
	}
	found.Exists = true
	if info, err := os.Stat(found.Path); err == nil {
		found.Dir = info.IsDir()
	}
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
