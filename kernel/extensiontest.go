package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"cellblock/kernel/extension"
	"cellblock/pyruntime"
)

// systemPython is where a distribution has the interpreter that its pytest is for.
const systemPython = "/usr/bin/python3"

// TestExtensions runs tests of extensions with pytest, each file in a trusted worker of
// its own: the files that the paths name, or without any those in the roots of a session
// with these options. It returns the interpreter and what pytest reports of each test.
// The error says why nothing could be run, or is the context's.
func TestExtensions(ctx context.Context, opts Options, paths []string) (python string, records []extension.Record, err error) {
	s, err := newSession(opts)
	if err != nil {
		return "", nil, err
	}
	if len(paths) == 0 {
		roots, _ := extensionRoots(s.opts, s.dir, s.home, s.ownHidden())
		for _, r := range roots {
			if isThere(r.Dir) {
				paths = append(paths, r.Dir)
			}
		}
	}
	files, err := extension.TestFiles(paths)
	if err == nil && len(files) == 0 {
		err = errors.New("tests: there are none: name files, or directories with test_*.py or *_test.py")
	}
	if err != nil {
		return "", nil, err
	}
	own, err := s.extensionPython()
	if err != nil {
		return "", nil, err
	}
	candidates := []string{own}
	if isThere(systemPython) && own != systemPython {
		candidates = append(candidates, systemPython)
	}
	if python, err = extension.Pytest(ctx, candidates...); err != nil {
		return "", nil, err
	}
	source, err := os.MkdirTemp("", "cellblock-tests-")
	if err != nil {
		return "", nil, fmt.Errorf("tests: %w", err)
	}
	defer os.RemoveAll(source)
	if err := pyruntime.WriteExtensionTo(source); err != nil {
		return "", nil, err
	}
	launch := extension.Launch{Python: python, Source: source, Limits: s.opts.ExtensionLimits}
	for _, file := range files {
		found, err := extension.Test(ctx, launch, filepath.Clean(file))
		records = append(records, found...)
		if err != nil {
			return python, records, err
		}
	}
	return python, records, nil
}
