package extension

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Outcome is what came of one test.
type Outcome string

// The outcomes. An error is a test that could not be run as it is meant to, or a file
// whose runner failed.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Broken  Outcome = "error"
	Skipped Outcome = "skipped"
	XFailed Outcome = "xfailed" // failed, as was expected
	XPassed Outcome = "xpassed" // passed, which was not expected
)

// Record is what pytest reports of one test.
type Record struct {
	File       string  `json:"file"`
	Node       string  `json:"node"`
	Outcome    Outcome `json:"outcome"`
	Message    string  `json:"message,omitempty"`
	DurationMs float64 `json:"durationMs"`
}

// Bad reports whether the record makes a run fail.
func (r Record) Bad() bool { return r.Outcome == Failed || r.Outcome == Broken }

// maxRecord bounds a line of the runner.
const maxRecord = 1 << 20

// TestFiles finds the files of tests that the paths name: a file is one whatever it is
// called, and a directory has those beneath it by their names.
func TestFiles(paths []string) ([]string, error) {
	var files []string
	for _, p := range paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		err = filepath.WalkDir(abs, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != abs && (strings.HasPrefix(d.Name(), ".") || d.Name() == "__pycache__"):
				return fs.SkipDir
			case !d.IsDir() && (path == abs || IsTest(d.Name())) && !slices.Contains(files, path):
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("tests %q: %w", p, err)
		}
	}
	return files, nil
}

// Pytest is the first of the interpreters that has pytest. The error names them.
func Pytest(ctx context.Context, interpreters ...string) (string, error) {
	for _, python := range interpreters {
		cmd := exec.CommandContext(ctx, python, "-I", "-B", "-c", "import pytest")
		cmd.Dir = "/"
		if cmd.Run() == nil {
			return python, nil
		}
	}
	return "", fmt.Errorf("pytest: not found with %s: install it there (Debian's package is python3-pytest), or name an interpreter that has it", strings.Join(interpreters, " or "))
}

// Test runs one file of tests in a worker of its own, with the sys.path that its
// directory's extensions are loaded with. What it returns is what pytest reports of each
// test; a runner that failed without a test that did is a record of its own. The error
// is that of a worker that could not be started, or ctx's.
func Test(ctx context.Context, launch Launch, file string) ([]Record, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("tests %q: %w", file, err)
	}
	defer read.Close()
	defer write.Close()
	l, output, err := newLog(launch.LogDir, "tests")
	if err != nil {
		return nil, err
	}
	defer l.close()
	defer output.Close()
	p, err := startProcess(launch, "tests", write, output, filepath.Dir(file), file)
	if err != nil {
		return nil, fmt.Errorf("tests %q: python %q: %w", file, launch.Python, err)
	}
	write.Close()
	output.Close()
	defer context.AfterFunc(ctx, p.kill)()
	run := testRun{file: file}
	run.read(read, p)
	if run.ended == nil {
		run.broken("the runner ended (%s): %s", p.death(), l.last())
	}
	p.end()
	if ctx.Err() != nil {
		return run.records, ctx.Err()
	}
	run.judge(l.last())
	return run.records, nil
}

// testRun gathers what a runner tells.
type testRun struct {
	file    string
	running string // the test that has begun
	records []Record
	tests   *int // as many as pytest was to run; nil until it has found them
	run     int  // as many as have ended
	ended   *int // with which code pytest ended
}

// read takes lines until the runner has ended, or has been told of.
func (r *testRun) read(from *os.File, p *process) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		// A process that a test has left behind may hold the other end.
		select {
		case <-p.exited:
			_ = from.SetReadDeadline(time.Now().Add(reapTime))
		case <-done:
		}
	}()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxRecord)
	for r.ended == nil && lines.Scan() {
		var line struct {
			Record
			Begin     string `json:"begin"`
			Collected *int   `json:"collected"`
			Ended     *int   `json:"ended"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			r.broken("the runner told what is no record: %v", err)
			return
		}
		switch {
		case line.Begin != "":
			r.running = line.Begin
		case line.Collected != nil:
			r.tests = line.Collected
		case line.Ended != nil:
			r.ended = line.Ended
		default:
			line.File = r.file
			r.records = append(r.records, line.Record)
			if r.running != "" {
				r.running = ""
				r.run++
			}
		}
	}
}

func (r *testRun) broken(format string, args ...any) {
	node := r.running
	if node == "" {
		node = filepath.Base(r.file)
	}
	r.records = append(r.records, Record{File: r.file, Node: node, Outcome: Broken, Message: fmt.Sprintf(format, args...)})
}

// judge adds what no record says: what the exit code of pytest does, and that not all of
// the tests have run, whatever that code is.
func (r *testRun) judge(printed string) {
	if slices.ContainsFunc(r.records, Record.Bad) || r.ended == nil {
		return
	}
	switch {
	case r.running != "":
		r.broken("the run was ended while this test was running (pytest's exit code is %d; %s)", *r.ended, printed)
		return
	case r.tests == nil && r.run == 0 && *r.ended == 0:
		r.broken("the run was ended before the tests were found (pytest's exit code is 0; %s)", printed)
		return
	case r.tests != nil && r.run < *r.tests:
		r.broken("the run was ended after %d of %d tests (pytest's exit code is %d; %s)", r.run, *r.tests, *r.ended, printed)
		return
	case *r.ended == 0:
		return
	}
	why := map[int]string{1: "tests failed of which none is told", 2: "the run was interrupted", 3: "pytest broke", 4: "pytest was used wrongly", 5: "no tests were found"}[*r.ended]
	if *r.ended == 5 && len(r.records) > 0 {
		return // all of them were skipped as a module
	}
	if why == "" {
		why = "the runner failed"
	}
	r.broken("%s (pytest's exit code is %d; %s)", why, *r.ended, printed)
}
