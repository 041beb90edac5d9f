package kernel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"cellblock/policy"
	"cellblock/pyruntime"
)

// Compiling the worker's source costs a start more than all the rest that Python
// does for it. What the interpreter compiled once is kept in the launcher's own
// state, which no session can see, and put beside the source of each worker.

// compile reads a directory of source and writes byte code to another one. It is
// told which, so that nothing is looked for; PEP 552's unchecked kind, because
// the directory's name already is the digest of the source.
const compile = `import os, py_compile, sys
for name in sorted(os.listdir(sys.argv[1])):
    if name.endswith(".py"):
        made = os.path.join(sys.argv[2], name[:-3] + "." + sys.implementation.cache_tag + ".pyc")
        py_compile.compile(os.path.join(sys.argv[1], name), made, name, True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
`

const maxBytecode = 1 << 20 // bytes of one file that is taken from the store

// addBytecode puts byte code for python beside the worker's source, made now when
// there is none yet. A store that cannot be used, and an interpreter that a cell
// may have changed, leave the source to be compiled by the worker.
func addBytecode(store, python, source, sessionDir string) {
	real, err := filepath.EvalSymlinks(python)
	if store == "" || err != nil || policy.Within(sessionDir, real) || policy.Within(sessionDir, python) {
		return
	}
	info, err := os.Stat(real)
	if err != nil {
		return
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d", pyruntime.Digest(), real, info.Size(), info.ModTime().UnixNano()))
	kept := filepath.Join(store, hex.EncodeToString(sum[:16]))
	into := filepath.Join(source, pyruntime.Package, "__pycache__")
	if copyBytecode(kept, into) == nil {
		return
	}
	if err := makeBytecode(python, filepath.Join(source, pyruntime.Package), store, kept); err == nil {
		_ = copyBytecode(kept, into)
	}
}

// makeBytecode compiles into a directory of its own, which takes its name when
// it is whole.
func makeBytecode(python, source, store, kept string) error {
	if err := os.MkdirAll(store, 0o700); err != nil {
		return err
	}
	made, err := os.MkdirTemp(store, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	if err := exec.CommandContext(ctx, python, "-I", "-S", "-c", compile, source, made).Run(); err != nil {
		return err
	}
	prune(store)
	return os.Rename(made, kept)
}

const maxKept = 32 // interpreters, each with one version of the worker

// prune removes the oldest when there are too many.
func prune(store string) {
	found, err := os.ReadDir(store)
	if err != nil || len(found) < maxKept {
		return
	}
	age := func(e os.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(found, func(a, b os.DirEntry) int { return age(a).Compare(age(b)) })
	for _, e := range found[:len(found)-maxKept+1] {
		_ = os.RemoveAll(filepath.Join(store, e.Name()))
	}
}

// copyBytecode takes files only from a directory that is the launcher's alone.
func copyBytecode(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return errors.New("byte code: the store belongs to somebody else")
	}
	found, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, entry := range found {
		if info, err := entry.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > maxBytecode {
			return fmt.Errorf("byte code %s: %w", entry.Name(), fs.ErrInvalid)
		}
		body, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, entry.Name()), body, 0o644); err != nil {
			return err
		}
	}
	return nil
}
