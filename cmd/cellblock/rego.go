package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"cellblock/kernel/delegate"
	"cellblock/kernel/trial"
	"cellblock/policy"
)

// regoProgram is the program that evaluates Rego, beside this one; empty when nobody
// knows where this one is.
func regoProgram() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	return filepath.Join(filepath.Dir(self), "cellblock-rego")
}

// readRego reads the modules that a document names, which lie beside it.
func readRego(doc *policy.Document) error {
	r := doc.Tools.Rego
	if r == nil || len(r.Files) == 0 {
		return nil
	}
	var sources []policy.RegoSource
	total := 0
	for _, name := range r.Files {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(doc.File), name)
		}
		text, err := readModule(path)
		if total += len(text); err == nil && total > policy.MaxRego {
			err = fmt.Errorf("more than %d bytes of modules", policy.MaxRego)
		}
		if err != nil {
			return &policy.Error{File: doc.File, Line: r.Line, What: fmt.Sprintf("tools.rego: %v", err), Do: "name files beside the document, or below it"}
		}
		sources = append(sources, policy.RegoSource{Name: path, Text: text})
	}
	doc.Tools.Rego = r.WithSources(sources)
	return nil
}

func readModule(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, policy.MaxRego+1))
	return string(text), err
}

// evaluators answer the queries of the policies of cases, one program for each policy.
type evaluators struct {
	mu    sync.Mutex
	known map[string]*delegate.Delegate
}

func (e *evaluators) of(s trial.Suite) (policy.Evaluator, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.known[s.Policy.File]; known != nil {
		return known, nil
	}
	asked, err := delegate.Start(regoProgram(), *s.Policy.Tools.Rego)
	if err != nil {
		return nil, fmt.Errorf("policy %s: tools.rego: %w", s.Policy.Name, err)
	}
	if e.known == nil {
		e.known = map[string]*delegate.Delegate{}
	}
	e.known[s.Policy.File] = asked
	return asked, nil
}

func (e *evaluators) close() {
	for _, asked := range e.known {
		asked.Close()
	}
}

// regoTests runs the tests of a directory's modules, together with those that the
// policies of its cases name, as results of cases. There are none where no rule's name
// in them begins as a test's does.
func regoTests(dir string, suites []trial.Suite) ([]trial.Result, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.rego"))
	if err != nil {
		return nil, err
	}
	var modules []policy.RegoSource
	seen := map[string]bool{}
	total := 0
	tests := false
	add := func(m policy.RegoSource) {
		path := m.Name
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		if seen[path] || m.Text == "" {
			return
		}
		seen[path] = true
		total += len(m.Text)
		tests = tests || strings.Contains(m.Text, "test_")
		modules = append(modules, m)
	}
	for _, path := range found {
		text, err := readModule(path)
		if err != nil {
			return nil, fmt.Errorf("policy test: %w", err)
		}
		add(policy.RegoSource{Name: path, Text: text})
	}
	for _, s := range suites {
		if r := s.Policy.Tools.Rego; r != nil && len(r.Files) > 0 {
			for _, m := range r.Sources {
				add(m)
			}
		}
	}
	if !tests {
		return nil, nil
	}
	if total > policy.MaxRego {
		return nil, fmt.Errorf("policy test: %s: more than %d bytes of modules", dir, policy.MaxRego)
	}
	outcomes, err := delegate.Test(regoProgram(), modules)
	if err != nil {
		return nil, fmt.Errorf("policy test: %w", err)
	}
	var out []trial.Result
	for _, o := range outcomes {
		r := trial.Result{File: o.File, Line: o.Line, Name: o.Name, Mode: "rego", Skipped: o.Skipped, DurationMs: o.DurationMs}
		if !o.Passed && !o.Skipped {
			r.Failure = orElse(o.Why, "false or undefined")
		}
		out = append(out, r)
	}
	return out, nil
}
