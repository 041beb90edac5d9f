package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	"cellblock/kernel"

	"github.com/spf13/cobra"
)

const runLong = `Run cells in a fresh session and end it.

The code is -c, a FILE, or standard input. Each -c is a cell of its own; a file
is one cell unless --cells splits it at lines that begin with "# %%". Cells share
one interpreter. What a cell prints appears while it runs; the value of its last
expression and its traceback follow.

With --json nothing is streamed: each cell gives one line, the tool's result
{content, details, isError}.`

const runExample = `  cellblock run -c 'x = 6' -c 'x * 7'
  cellblock run --cells --session ~/project analysis.py
  echo 'import os; os.getcwd()' | cellblock run --mode enforce
  cellblock run --timeout 2s --limit memory=256MiB,tasks=64 --json job.py`

func newRun(c *console) *cobra.Command {
	var (
		flags  sessionFlags
		src    source
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "run [flags] [FILE]",
		Short:   "Run cells from a command line, a file or standard input",
		Long:    runLong,
		Example: runExample,
		Args:    atMost(1),
	}
	cmd.Flags().StringArrayVarP(&src.commands, "command", "c", nil, "code of a cell (repeatable)")
	cmd.Flags().BoolVar(&src.split, "cells", false, `split the code at lines that begin with "# %%"`)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON a cell")
	flags.addCells(cmd.Flags())
	flags.addRecord(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			src.file = args[0]
		}
		cells, err := src.cells(c)
		if err != nil {
			return usage(cmd, err)
		}
		collectLater()
		session, _, err := flags.session(cmd, c, !asJSON)
		if err != nil {
			return err
		}
		return runCells(c, session, cells, asJSON)
	}
	return cmd
}

// collectLater lets Go's collector begin at 16 MB instead of 4. What a start makes is
// less, and to collect it would cost a command of one cell a twentieth of its time. Who
// has set GOGC has it so.
func collectLater() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// runCells runs the cells in a session and ends it. It goes on after a cell
// that failed, since the exit code is the worst of all, but not after a Ctrl-C.
func runCells(c *console, session cellSession, cells []string, asJSON bool) error {
	defer c.closeSession(session)
	stop := watchSignals(session)
	defer stop.done()
	c.questions.begin()
	defer c.questions.end()

	worst := exitOK
	for n, code := range cells {
		call := kernel.Call{Code: code}
		var result kernel.Result
		if asJSON {
			result = session.Call(context.Background(), call)
			if err := c.printJSON(result); err != nil {
				return &exitError{exitUsage, fmt.Errorf("write result: %w", err)}
			}
		} else {
			live := newLive(c)
			call.Output = live.output
			result = session.Call(context.Background(), call)
			live.finish(result)
		}
		worst = max(worst, exitCode(result))
		if n == 0 {
			c.warnOfExtensions(session)
		}
		if stop.asked() {
			break
		}
	}
	if worst != exitOK {
		return &exitError{code: worst}
	}
	return nil
}

// warnOfExtensions tells which extensions are not used, and why. The first cell has waited
// until that was known.
func (c *console) warnOfExtensions(session cellSession) {
	s, ours := session.(*kernel.Session)
	if !ours {
		return // it is the server's operator who loads them
	}
	_, warnings := s.Extensions(context.Background())
	for _, w := range warnings {
		c.say("%v", w)
	}
}

// exitCode is the code that one cell's result asks for.
func exitCode(r kernel.Result) int {
	if r.Details.Error != nil {
		switch r.Details.Error.Name {
		case kernel.KernelTimeout:
			return exitTimeout
		case kernel.KernelExited, kernel.KernelKilled, kernel.KernelRetired:
			return exitDied
		case kernel.ToolError:
			return exitJail
		}
	}
	if r.IsError {
		return exitRaised
	}
	return exitOK
}

// printJSON writes v as one line.
func (c *console) printJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.out.Write(append(cleanJSON(line), '\n'))
	return err
}
