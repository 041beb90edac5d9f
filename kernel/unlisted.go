package kernel

import (
	"os"
	"path/filepath"

	"cellblock/jail/observe"
	"cellblock/policy"
)

// onHost looks where the host has what a session is not shown, since no list has it: the
// operation as it would be there, and whether it would come about. It follows no link of
// the session's: what it looks at lies outside of all that a session can change.
func onHost(op observe.Op) (observe.Op, bool) {
	dir := lookup(filepath.Dir(op.Path))
	at := filepath.Join(dir.Path, filepath.Base(op.Path))
	_, err := os.Lstat(at)
	there, isDir := err == nil, false
	if kind := (policy.Op{Kind: policy.OpKind(op.Kind)}); !kind.Names() {
		found := lookup(op.Path)
		at, there, isDir = found.Path, found.Exists, found.Dir
	}
	op.Path = at
	if op.Opens {
		return op, !isDir && (there || dir.Dir)
	}
	switch op.Kind {
	case observe.Create, observe.Mkdir, observe.Link, observe.Symlink:
		return op, dir.Dir && !there
	case observe.RenameTo:
		op.Replaces = there
		return op, dir.Dir
	case observe.Write:
		op.Creates = op.Creates && !there
		return op, !isDir && (there || op.Creates && dir.Dir)
	case observe.Truncate:
		return op, there && !isDir
	}
	return op, there
}
