package kernel

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"

	"cellblock/policy"
)

// interpreterPaths lists what of an interpreter lies beneath one of the covered
// paths, which hold nothing of the host inside a jail: its installation, its
// virtual environment, or the file alone where there is neither. Each is to be
// shown at its own path.
func interpreterPaths(python string, covered []string) []string {
	var out []string
	add := func(path string) {
		beneath := false
		for _, c := range covered {
			if !policy.Within(c, path) {
				continue
			}
			if policy.Within(path, c) {
				return // never a covered place as a whole
			}
			beneath = true
		}
		for _, o := range out {
			if policy.Within(o, path) {
				return
			}
		}
		if beneath {
			out = append(out, path)
		}
	}
	prefix := filepath.Dir(filepath.Dir(python))
	home := environmentHome(prefix)
	if home != "" {
		add(prefix)
		add(filepath.Dir(home))
	}
	if real, err := filepath.EvalSymlinks(python); err == nil {
		if install := filepath.Dir(filepath.Dir(real)); filepath.Base(filepath.Dir(real)) == "bin" {
			add(install)
		}
		add(real)
	}
	add(python)
	return out
}

// environmentHome is where the interpreter behind a virtual environment lies, or
// empty when prefix is none.
func environmentHome(prefix string) string {
	file, err := os.Open(filepath.Join(prefix, "pyvenv.cfg"))
	if err != nil {
		return ""
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if ok && strings.TrimSpace(key) == "home" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
