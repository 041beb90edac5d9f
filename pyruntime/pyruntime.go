// Package pyruntime holds the Python side of a worker: the standard library
// only, CPython 3.9 to 3.14, embedded as source.
//
//	dir, err := os.MkdirTemp("", "runtime-")
//	err = pyruntime.WriteTo(dir)
//	argv := pyruntime.Command("/usr/bin/python3", dir, 3)
//
// # Limitations
//
// What runs here runs beside the guest's code and can be patched by it. It
// explains and reports; the jail decides.
package pyruntime

import (
	"embed"
	"path/filepath"
	"strconv"
	"sync"
)

//go:embed runtime/boot.py runtime/parent.py runtime/_cellblock/*.py
var embedded embed.FS

// Package is the directory of modules beside boot.py.
const Package = "_cellblock"

// MinVersion is the oldest CPython that the worker runs on.
const MinVersion = "3.9"

// workerSource is the sandbox worker's source: boot.py and the package _cellblock.
var workerSource = source{part{embedded, "runtime", nil}}

// Digest is the SHA-256 of all names and contents of the sandbox worker's source, in
// hexadecimal.
var Digest = sync.OnceValue(func() string { return workerSource.digest() })

// WriteTo writes the sandbox worker's source below dir, which must exist. Files get
// mode 0644 and directories 0755.
func WriteTo(dir string) error { return workerSource.writeTo(dir) }

// Command is the argument vector that starts a worker: python is the
// interpreter, dir where WriteTo put the source as the worker sees it, fd the
// number of the wire's descriptor in the worker. The interpreter is isolated from
// its environment and from user packages (-I), writes no byte code (-B) and uses
// UTF-8 whatever the locale says (PEP 540).
func Command(python, dir string, fd int) []string {
	return []string{python, "-I", "-B", "-X", "utf8", filepath.Join(dir, "boot.py"), strconv.Itoa(fd)}
}

// ParentCommand starts a warm parent, from which workers are forked: python is the
// interpreter, dir where WriteTo put the source, control and ends the numbers of the
// descriptors on which it is asked and tells of ends. Without site directories (-S), since
// it is in no jail; its workers look at theirs. The rest is as in Command.
func ParentCommand(python, dir string, control, ends int) []string {
	return []string{python, "-I", "-S", "-B", "-X", "utf8", filepath.Join(dir, "parent.py"), strconv.Itoa(control), strconv.Itoa(ends)}
}
