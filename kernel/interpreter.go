package kernel

import (
	"bytes"
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
	s, err := newSession(o)
	if err != nil {
		return "", err
	}
	return interpreter(s.opts.PythonBin, s.places())
}

// places are where sessions may change files.
type places []string

// placesOf are those of a policy's sessions. What they may change without a jail is not told
// apart from what the operator may.
func placesOf(p policy.Policy, tier Tier, sessionDir string) places {
	found := places{sessionDir}
	for _, r := range p.Allow {
		if tier == TierJail && r.Access&policy.AccessWrite != 0 {
			found = append(found, r.Path)
		}
	}
	return found
}

func (s *Session) places() places { return placesOf(s.policy, s.opts.Tier, s.dir) }

// above is the place that a path lies in; empty for none.
func (p places) above(path string) string {
	for _, place := range p {
		if policy.Within(place, path) {
			return place
		}
	}
	return ""
}

// overlapping is the place in which something could be changed of what an interpreter runs: it,
// its library and that of the environment it belongs to; empty for none.
func (p places) overlapping(python string) string {
	own := []string{python}
	if real, err := filepath.EvalSymlinks(python); err == nil {
		own = append(own, real)
	}
	if home := environmentHome(filepath.Dir(filepath.Dir(python))); home != "" {
		own = append(own, filepath.Join(home, "python3"))
	}
	for _, program := range own {
		prefix := filepath.Dir(filepath.Dir(program))
		libraries, _ := filepath.Glob(filepath.Join(prefix, "lib*", "python3*"))
		for _, part := range append(libraries, program, filepath.Join(prefix, "pyvenv.cfg")) {
			for _, place := range p {
				if policy.Overlap(place, part) {
					return place
				}
			}
		}
	}
	return ""
}

// interpreter finds the executable that PythonBin names: a path, a name on PATH, or
// a virtual environment's directory. A script, such as a version chooser's shim,
// is asked once which interpreter it stands for, since starting through it costs
// every session its time. One where sessions may change it is not asked, since a
// cell may have written it.
func interpreter(bin string, theirs places) (string, error) {
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
	if real, err := filepath.EvalSymlinks(path); err != nil || theirs.above(real) != "" || theirs.above(path) != "" {
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
