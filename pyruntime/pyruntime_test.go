package pyruntime

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// interpreters lists one CPython of each version to test on: those named by
// CELLBLOCK_PYTHONS, or what PATH, the system and pyenv have.
func interpreters(t *testing.T) []string {
	t.Helper()
	candidates := filepath.SplitList(os.Getenv("CELLBLOCK_PYTHONS"))
	if len(candidates) == 0 {
		if p, err := exec.LookPath("python3"); err == nil {
			candidates = append(candidates, p)
		}
		candidates = append(candidates, "/usr/bin/python3")
		root := os.Getenv("PYENV_ROOT")
		if root == "" {
			home, _ := os.UserHomeDir()
			root = filepath.Join(home, ".pyenv")
		}
		more, _ := filepath.Glob(filepath.Join(root, "versions", "3.*", "bin", "python3"))
		candidates = append(candidates, more...)
	}
	var found []string
	seen := map[string]bool{}
	for _, c := range candidates {
		out, err := exec.Command(c, "-I", "-S", "-c", "import sys; print(sys.executable if sys.version_info >= (3, 9) else '')").Output()
		path := strings.TrimSpace(string(out))
		if err != nil || path == "" {
			continue
		}
		if real, err := filepath.EvalSymlinks(path); err == nil && !seen[real] {
			seen[real] = true
			found = append(found, path)
		}
	}
	return found
}

func TestWorkerOnEveryInterpreter(t *testing.T) {
	found := interpreters(t)
	if len(found) == 0 {
		t.Fatal("no CPython 3.9 or later: install python3, or name interpreters in CELLBLOCK_PYTHONS")
	}
	dir, extension := t.TempDir(), t.TempDir()
	if err := errors.Join(WriteTo(dir), WriteExtensionTo(extension)); err != nil {
		t.Fatal(err)
	}
	for _, python := range found {
		t.Run(strings.ReplaceAll(strings.Trim(python, "/"), "/", "_"), func(t *testing.T) {
			t.Parallel() // each waits more than it computes
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, python, "-B", "-m", "unittest", "-v", "test_cells", "test_keep", "test_worker", "test_calls", "test_extension", "test_declare", "test_parent")
			cmd.Dir = "tests"
			cmd.Env = append(os.Environ(), "CELLBLOCK_RUNTIME="+dir, "CELLBLOCK_EXTENSION="+extension)
			out, err := cmd.CombinedOutput()
			if err != nil {
				// The failures are what unittest prints last, behind a double line.
				_, failures, found := strings.Cut(string(out), "\n======")
				if !found {
					failures = string(out)
				}
				t.Fatalf("%v\n%s", err, failures)
			}
			if !strings.Contains(string(out), "\nOK") {
				t.Fatalf("unittest did not say OK:\n%s", out)
			}
		})
	}
}

func TestDigestNamesTheSource(t *testing.T) {
	if a, b := Digest(), Digest(); a != b || len(a) != 64 {
		t.Fatalf("digest %q, then %q", a, b)
	}
	if a := ExtensionDigest(); a == Digest() || len(a) != 64 {
		t.Fatalf("digest %q", a)
	}
}
