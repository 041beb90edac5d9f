package extension

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
)

// Trust is what an operator has looked at in one directory: each file's name and the
// SHA-256 of what it held then. A project's extensions run with the operator's rights,
// and a project can come from anybody, also from a session; being there is no reason to
// run one.
type Trust struct {
	Directory string            `json:"directory"`
	Files     map[string]string `json:"files"`
}

// trustPath is where a store keeps what it knows of a directory.
func trustPath(store, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(store, hex.EncodeToString(sum[:16])+".json")
}

// ReadTrust returns what a store knows of a directory: nothing, when it knows none. An
// empty store knows none. On an error nothing is trusted.
func ReadTrust(store, dir string) (*Trust, error) {
	none := &Trust{Directory: dir}
	if store == "" {
		return none, nil
	}
	text, err := os.ReadFile(trustPath(store, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	var kept Trust
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err == nil && kept.Directory != dir {
		err = fmt.Errorf("it is that of %q", kept.Directory)
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w", trustPath(store, dir), err)
	}
	return &kept, nil
}

// Keep makes a store remember every file of a root as it is now, and returns them. What
// would not be loaded for another reason is not trusted either, and is warned of. A root
// without files is forgotten. The error is the store's, or says that the root cannot be
// read.
func Keep(store string, root Root) (Trust, []Warning, error) {
	found := Trust{Directory: root.Dir, Files: map[string]string{}}
	dir, err := openRoot(root)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil, Forget(store, root.Dir)
	}
	if err != nil {
		return found, nil, fmt.Errorf("%s: %s", root.Dir, reason(err))
	}
	defer dir.Close()
	if why := others(dir); why != "" {
		return found, nil, fmt.Errorf("%s: the directory %s", root.Dir, why)
	}
	var warnings []Warning
	names, err := entries(dir)
	if err != nil {
		return found, nil, fmt.Errorf("%s: %w", root.Dir, err)
	}
	for _, name := range names {
		digest, err := digestOf(dir, name)
		if err != nil {
			warnings = append(warnings, Warning{filepath.Join(root.Dir, name), err.Error()})
			continue
		}
		found.Files[name] = digest
	}
	if len(found.Files) == 0 {
		return found, warnings, Forget(store, root.Dir)
	}
	text, err := json.Marshal(found)
	if err != nil {
		return found, warnings, err
	}
	if err := os.MkdirAll(store, 0o700); err != nil {
		return found, warnings, err
	}
	fresh, err := os.CreateTemp(store, "new-*")
	if err != nil {
		return found, warnings, err
	}
	defer os.Remove(fresh.Name())
	_, err = fresh.Write(text)
	if err = errors.Join(err, fresh.Close()); err != nil {
		return found, warnings, err
	}
	return found, warnings, os.Rename(fresh.Name(), trustPath(store, root.Dir))
}

// Forget makes a store know nothing of a directory.
func Forget(store, dir string) error {
	err := os.Remove(trustPath(store, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// entries are the names of a root that could be imported or loaded.
func entries(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return name[0] == '.' || name == "__pycache__" }), err
}

// digestOf is that of a file that is the operator's own, or why there is none.
func digestOf(dir *os.File, name string) (string, error) {
	file, err := openEntry(dir, name)
	if err != nil {
		return "", errors.New(reason(err))
	}
	defer file.Close()
	if why := others(file); why != "" {
		return "", errors.New(why)
	}
	return sumOf(file)
}

// sumOf is the digest of what an open file holds.
func sumOf(file *os.File) (string, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", err
	case info.IsDir():
		return "", errors.New("is a directory: of a project only files are trusted, put its modules beside each other")
	case info.Size() > maxTrusted:
		return "", fmt.Errorf("has more than %d bytes", maxTrusted)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(file, maxTrusted)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// maxTrusted bounds one file, such as a native module, in bytes.
const maxTrusted = 256 << 20

// doubt says why a file is not used although it is the operator's own; empty for one
// that is trusted as it is, and where no trust is asked for.
func (t *Trust) doubt(name, digest string) string {
	if t == nil {
		return ""
	}
	switch known, ok := t.Files[name]; {
	case !ok:
		return "is not trusted: a project's extensions run with your rights; read it, then run 'cellblock ext trust --session DIR'"
	case known != digest:
		return "has changed since it was trusted: read it, then run 'cellblock ext trust --session DIR'"
	}
	return ""
}
