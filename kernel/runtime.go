package kernel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"cellblock/pyruntime"
)

// Writing the worker's source and compiling it costs a start more than all the
// rest that Python does for it. Both are done once for an interpreter and kept in
// the launcher's own state, which no session can change; each jail gets a
// read-only view of them.

// compile is told what to compile, so that nothing is looked for. PEP 552's
// unchecked kind, because the directory's name already is the digest of the source. The
// code has no path in it, which would be the launcher's.
const compile = `import os, py_compile, sys
for package in sys.argv[1:]:
    for name in sorted(os.listdir(package)):
        if name.endswith(".py"):
            path = os.path.join(package, name)
            py_compile.compile(path, None, name, True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
`

// unused is how long a runtime that nobody has started is kept.
const unused = 7 * 24 * time.Hour

// keptSource is a worker's source that can be kept.
type keptSource struct {
	digest   func() string
	writeTo  func(dir string) error
	packages []string // the directories in it that are compiled
}

var (
	workerSource    = keptSource{pyruntime.Digest, pyruntime.WriteTo, []string{pyruntime.Package}}
	extensionSource = keptSource{pyruntime.ExtensionDigest, pyruntime.WriteExtensionTo, pyruntime.ExtensionPackages()}
)

// runtimeDir returns the directory with the worker's source for an interpreter:
// from the store, made there now, or else in temp, where it lasts for one
// generation and is compiled by the worker. An interpreter that a cell may have
// changed is never run outside of a jail, so nothing is kept for it.
func runtimeDir(store, python string, theirs places, temp string) (string, error) {
	if kept, err := storedSource(workerSource, store, python, theirs); err == nil {
		return kept, nil
	}
	own := filepath.Join(temp, "runtime")
	if err := os.Mkdir(own, 0o755); err != nil {
		return "", fmt.Errorf("worker source: %w", err)
	}
	return own, pyruntime.WriteTo(own)
}

func storedSource(source keptSource, store, python string, theirs places) (string, error) {
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		return "", err
	}
	if store == "" || theirs.overlapping(python) != "" {
		return "", os.ErrNotExist
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d\x00%d", source.digest(), compile, real, info.Size(), info.ModTime().UnixNano()))
	kept := filepath.Join(store, hex.EncodeToString(sum[:16]))
	if _, err := os.Lstat(kept); err != nil {
		if err := makeRuntime(source, python, store, kept); err != nil {
			return "", err
		}
	}
	for _, dir := range []string{store, kept} {
		if !oursAlone(dir) {
			return "", fmt.Errorf("worker source %q: others can write there", dir)
		}
	}
	now := time.Now()
	return kept, os.Chtimes(kept, now, now)
}

// makeRuntime fills a directory that takes its name when it is whole.
func makeRuntime(source keptSource, python, store, kept string) error {
	if err := os.MkdirAll(store, 0o700); err != nil {
		return err
	}
	forget(store)
	made, err := os.MkdirTemp(store, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	if err := os.Chmod(made, 0o755); err != nil {
		return err
	}
	if err := source.writeTo(made); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	arguments := []string{"-I", "-S", "-c", compile}
	for _, name := range source.packages {
		arguments = append(arguments, filepath.Join(made, name))
	}
	if err := exec.CommandContext(ctx, python, arguments...).Run(); err != nil {
		return err
	}
	if err := os.Rename(made, kept); err != nil && !os.IsExist(err) {
		return err // another launcher was quicker: its directory is as good
	}
	return nil
}

// forget removes what no session has started for long. A session that runs keeps
// its view, but loads parts of it late.
func forget(store string) {
	found, err := os.ReadDir(store)
	if err != nil {
		return
	}
	for _, e := range found {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unused {
			_ = os.RemoveAll(filepath.Join(store, e.Name()))
		}
	}
}

// oursAlone says whether a directory can be changed by the launcher's user only.
func oursAlone(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
