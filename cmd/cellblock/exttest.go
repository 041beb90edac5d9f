package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/kernel/extension"
)

const extTestLong = `Run an author's tests with pytest: files that are named, or the test_*.py and
*_test.py of directories; without any, those beside the session's extensions.

Each file runs in a trusted worker of its own, with the sys.path that its directory's
extensions are loaded with, and "import cellblock" as they have it. The interpreter is
--ext-python or --python when it has pytest, or else /usr/bin/python3.

What is printed is what pytest reports of each test. A runner that fails without a test
that does is an error of its own. The exit code is 0 when nothing failed, 1 when a test
failed, or could not be run, and 2 for files that cannot be used.`

// extTest is what 'ext test' prints as JSON.
type extTest struct {
	Python  string             `json:"python"`
	Seconds float64            `json:"seconds"`
	Records []extension.Record `json:"records"`
}

func newExtTest(c *console) *cobra.Command {
	var (
		flags        sessionFlags
		junit        string
		asJSON, each bool
	)
	cmd := &cobra.Command{
		Use:     "test [flags] [FILE|DIR]...",
		Short:   "Run an author's tests with pytest",
		Long:    extTestLong,
		Example: "  cellblock ext test extensions",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&junit, "junit", "", "write JUnit's XML to a FILE, too")
	cmd.Flags().BoolVarP(&each, "verbose", "v", false, "print a line for each test")
	flags.addCells(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := flags.options(cmd)
		if err != nil {
			return err
		}
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer cancel()
		start := time.Now()
		python, records, err := kernel.TestExtensions(ctx, options, args)
		if errors.Is(err, context.Canceled) {
			return &exitError{exitRaised, errors.New("ext test: interrupted")}
		}
		if err != nil {
			return &exitError{exitUsage, err}
		}
		report := extTest{python, time.Since(start).Seconds(), append([]extension.Record{}, records...)}
		if junit != "" {
			if err := writeJUnit(junit, report.Seconds, report.junit()); err != nil {
				return &exitError{exitUsage, err}
			}
		}
		if asJSON {
			err = c.printJSON(report)
		} else {
			c.printExtTest(report, each)
		}
		for _, r := range records {
			if err == nil && r.Bad() {
				err = &exitError{code: exitRaised}
			}
		}
		return err
	}
	return cmd
}

func (t extTest) junit() []junitEntry {
	var entries []junitEntry
	for _, r := range t.Records {
		e := junitEntry{suite: r.File, name: r.Node, ms: r.DurationMs, skipped: r.Outcome == extension.Skipped || r.Outcome == extension.XFailed}
		switch r.Outcome {
		case extension.Failed:
			e.failure = r.Message
		case extension.Broken:
			e.broken = r.Message
		}
		entries = append(entries, e)
	}
	return entries
}

func (c *console) printExtTest(t extTest, each bool) {
	counts := map[extension.Outcome]int{}
	for _, r := range t.Records {
		counts[r.Outcome]++
		if !r.Bad() && !each {
			continue
		}
		c.printOut(fmt.Sprintf("%-7s %s (%.0f ms)\n", r.Outcome, named(r.Node), r.DurationMs))
		if r.Message != "" {
			c.printOut("        " + strings.ReplaceAll(strings.TrimSpace(r.Message), "\n", "\n        ") + "\n")
		}
	}
	line := fmt.Sprintf("%d tests: %d passed", len(t.Records), counts[extension.Passed])
	for _, o := range []extension.Outcome{extension.Failed, extension.Broken, extension.Skipped, extension.XFailed, extension.XPassed} {
		if counts[o] > 0 {
			line += fmt.Sprintf(", %d %s", counts[o], o)
		}
	}
	fmt.Fprintf(c.out, "%s (%.1fs)\n", line, t.Seconds)
}
