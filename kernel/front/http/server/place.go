package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"cellblock/kernel/front/http/api"
	"cellblock/policy"
)

// places are the roots that the operator lists, canonical.
type places []api.Root

// newPlaces looks at the roots.
func newPlaces(roots []api.Root) (places, error) {
	var out places
	for _, r := range roots {
		real, err := filepath.EvalSymlinks(r.Path)
		if err != nil {
			return nil, fmt.Errorf("root: %w", err)
		}
		if info, err := os.Stat(real); err != nil {
			return nil, fmt.Errorf("root: %w", err)
		} else if !info.IsDir() {
			return nil, fmt.Errorf("root %s: is no directory", r.Path)
		}
		if real == "/" || !filepath.IsAbs(real) {
			return nil, fmt.Errorf("root %q: name a directory in which sessions may be, by its absolute path", r.Path)
		}
		out = append(out, api.Root{Caller: r.Caller, Path: real})
	}
	return out, nil
}

// of are the roots of one caller.
func (p places) of(c caller) []string {
	var out []string
	for _, r := range p {
		if r.Caller == "" || r.Caller == string(c) {
			out = append(out, r.Path)
		}
	}
	return out
}

// find returns the canonical path of the directory that a caller names, which has no
// link on its way from the root. self is the server's own user.
func (p places) find(c caller, directory string, make bool, self int) (string, *answer) {
	outside := func(why string, args ...any) *answer {
		return refuse(http.StatusForbidden, api.CodeDirectory, "directory %.200q: %s", directory, fmt.Sprintf(why, args...))
	}
	roots := p.of(c)
	switch {
	case directory == "":
		return "", refuse(http.StatusBadRequest, api.CodeInvalid, "field \"directory\": missing; name a directory at or beneath a root")
	case strings.ContainsRune(directory, 0) || len(directory) >= unix.PathMax:
		return "", refuse(http.StatusBadRequest, api.CodeInvalid, "field \"directory\": is no path")
	case len(roots) == 0:
		return "", outside("this caller has no root; the operator lists one with --root")
	case !filepath.IsAbs(directory) && len(roots) > 1:
		return "", outside("give its absolute path, since this caller has %d roots", len(roots))
	case !filepath.IsAbs(directory):
		directory = filepath.Join(roots[0], directory)
	}
	clean := filepath.Clean(directory)
	for _, root := range roots {
		if !policy.Within(root, clean) {
			continue
		}
		rel, err := filepath.Rel(root, clean)
		if err != nil {
			return "", outside("%v", err)
		}
		uid, isUser := c.uid()
		foreign := isUser && uid != self && uid != 0
		if make {
			if foreign {
				return "", outside("the server makes none for another user than its own; make it first")
			}
			if err := makeBeneath(root, rel); err != nil {
				return "", outside("%v", err)
			}
		}
		if err := lookBeneath(root, rel, foreign, uid); err != nil {
			return "", outside("%v", err)
		}
		if err := unix.Access(clean, unix.W_OK|unix.X_OK); err != nil {
			return "", outside("the server (user %d) cannot write it: %v", self, err)
		}
		return clean, nil
	}
	return "", outside("is at or beneath none of this caller's roots (%s)", strings.Join(roots, ", "))
}

// makeBeneath makes a directory and those above it, never outside of the root.
func makeBeneath(root, rel string) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.MkdirAll(rel, 0o700)
}

// lookBeneath goes the way down from the root through no link. For a user who is not
// the server's, the directory has to be that user's own, and those above it must not be
// changeable by others: who could exchange one for a link between this look and the
// session's start would choose what is mounted with the server's rights.
func lookBeneath(root, rel string, foreign bool, uid int) error {
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	parts := strings.Split(rel, "/")
	if rel == "." {
		parts = nil
	}
	for i := 0; ; i++ {
		last := i == len(parts)
		if foreign {
			if err := ownership(at, last, uid); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		next, err := unix.Openat2(at, parts[i], &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
		switch {
		case errors.Is(err, unix.ENOENT):
			return errors.New("does not exist: make it first, or set \"make\"")
		case errors.Is(err, unix.ELOOP):
			return fmt.Errorf("%q on its way is a symbolic link", parts[i])
		case errors.Is(err, unix.ENOTDIR):
			return fmt.Errorf("%q on its way is no directory", parts[i])
		case err != nil:
			return fmt.Errorf("%q on its way: %w", parts[i], err)
		}
		unix.Close(at)
		at = next
	}
}

// ownership judges one directory on the way of another user's request.
func ownership(fd int, last bool, uid int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	switch {
	case last && int(stat.Uid) != uid:
		return fmt.Errorf("does not belong to user %d", uid)
	case !last && (int(stat.Uid) == uid || stat.Mode&0o022 != 0):
		return errors.New("a directory above it could be exchanged by others than its operator: it must be the server's own, and writable by nobody else")
	}
	return nil
}
