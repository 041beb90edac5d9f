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
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

//go:embed runtime/boot.py runtime/_cellblock/*.py
var embedded embed.FS

// Package is the directory of modules beside boot.py.
const Package = "_cellblock"

// MinVersion is the oldest CPython that the worker runs on.
const MinVersion = "3.9"

// Files returns the worker's source: boot.py and the package _cellblock.
func Files() fs.FS {
	sub, err := fs.Sub(embedded, "runtime")
	if err != nil {
		panic(err) // the embedded name is a constant
	}
	return sub
}

// Digest is the SHA-256 of all names and contents, in hexadecimal.
var Digest = sync.OnceValue(func() string {
	sum := sha256.New()
	_ = fs.WalkDir(Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := fs.ReadFile(Files(), name)
		fmt.Fprintf(sum, "%s %d\n%s", name, len(body), body)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))
})

// WriteTo writes the worker's source below dir, which must exist. Files get
// mode 0644 and directories 0755.
func WriteTo(dir string) error {
	return fs.WalkDir(Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if d.IsDir() {
			if err := os.MkdirAll(to, 0o755); err != nil {
				return fmt.Errorf("write worker runtime: %w", err)
			}
			return nil
		}
		body, err := fs.ReadFile(Files(), name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, body, 0o644); err != nil {
			return fmt.Errorf("write worker runtime: %w", err)
		}
		return nil
	})
}

// Command is the argument vector that starts a worker: python is the
// interpreter, dir where WriteTo put the source as the worker sees it, fd the
// number of the wire's descriptor in the worker. The interpreter is isolated from
// its environment and from user packages (-I), writes no byte code (-B) and uses
// UTF-8 whatever the locale says (PEP 540).
func Command(python, dir string, fd int) []string {
	return []string{python, "-I", "-B", "-X", "utf8", filepath.Join(dir, "boot.py"), strconv.Itoa(fd)}
}
