package kernel

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"cellblock/policy"
)

// probeTime bounds what is run to find an interpreter behind a script.
const probeTime = 5 * time.Second

// Interpreter returns the path of the interpreter that PythonBin names, as sessions find
// it, or what keeps it from being one.
func (o Options) Interpreter() (string, error) {
	return interpreter(cmp.Or(o.PythonBin, DefaultPython), o.SessionDir)
}

// interpreter finds the executable that PythonBin names: a path, a name on PATH, or
// a virtual environment's directory. A script, such as a version chooser's shim,
// is asked once which interpreter it stands for, since starting through it costs
// every session its time. One inside the session directory is not asked, since a
// cell may have written it.
func interpreter(bin, sessionDir string) (string, error) {
	path := bin
	if !strings.ContainsRune(bin, '/') {
		found, err := exec.LookPath(bin)
		if err != nil {
			return "", fmt.Errorf("python %q: not found on PATH: install it, or name another interpreter", bin)
		}
		path = found
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("python %q: %w", bin, err)
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		inner := filepath.Join(path, "bin", "python3")
		if _, err := os.Lstat(inner); err != nil {
			return "", fmt.Errorf("python %q: is a directory, and no virtual environment: it has no bin/python3", path)
		}
		path = inner
		info, err = os.Stat(path)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		if target, lerr := os.Readlink(path); lerr == nil {
			return "", fmt.Errorf("python %q: points to %q, which is gone: make the virtual environment again", path, target)
		}
		return "", fmt.Errorf("python %q: does not exist: install it, or name another interpreter", path)
	case err != nil:
		return "", fmt.Errorf("python %q: %w", path, err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("python %q: is not a file", path)
	case info.Mode()&0o111 == 0:
		return "", fmt.Errorf("python %q: is not executable: name another interpreter", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("python %q: %w", path, err)
	}
	defer file.Close()
	var magic [4]byte
	_, _ = file.Read(magic[:])
	if bytes.Equal(magic[:], []byte("\x7fELF")) {
		return path, nil
	}
	if string(magic[:2]) != "#!" {
		return "", fmt.Errorf("python %q: is no program: name another interpreter", path)
	}
	// The script runs with the operator's rights, outside any jail.
	if real, err := filepath.EvalSymlinks(path); err != nil || policy.Within(sessionDir, real) || policy.Within(sessionDir, path) {
		return "", fmt.Errorf("python %q: is a script that cells can change: name the interpreter itself", path)
	}
	return behindScript(path, info)
}

// behind remembers what a script answered: a session's later generations, and the
// next session, need not ask again.
var behind sync.Map // script → interpreter

type script struct {
	path    string
	size    int64
	changed time.Time
}

func behindScript(path string, info os.FileInfo) (string, error) {
	key := script{path, info.Size(), info.ModTime()}
	if found, ok := behind.Load(key); ok {
		return found.(string), nil
	}
	found, err := askScript(path)
	if err == nil {
		behind.Store(key, found)
	}
	return found, err
}

func askScript(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-I", "-S", "-c", "import sys; print(sys.executable)")
	cmd.Stdin = nil
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	found := lines[len(lines)-1]
	if err != nil || !filepath.IsAbs(found) {
		why := "it answered nothing"
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit) && len(bytes.TrimSpace(exit.Stderr)) > 0:
			why = firstLine(string(exit.Stderr))
		case err != nil:
			why = err.Error()
		}
		return "", fmt.Errorf("python %q: the script does not lead to an interpreter: %s", path, why)
	}
	return found, nil
}

// changeable is the place in which sessions like this one may change a path; empty for one
// that they may not.
func (s *Session) changeable(path string) string {
	if policy.Within(s.dir, path) {
		return s.dir
	}
	for _, r := range s.policy.Allow {
		if s.opts.Tier == TierJail && r.Access&policy.AccessWrite != 0 && policy.Within(r.Path, path) {
			return r.Path
		}
	}
	return ""
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// oldPython says whether version is older than want, both as "3.9.2".
func oldPython(version, want string) bool {
	a, b := strings.Split(version, "."), strings.Split(want, ".")
	for i := range min(len(a), len(b)) {
		x, _ := strconv.Atoi(a[i])
		y, _ := strconv.Atoi(b[i])
		if x != y {
			return x < y
		}
	}
	return false
}
