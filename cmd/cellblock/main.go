// Command cellblock runs Python cells in a persistent interpreter that lives in
// a jail.
//
// This package knows people: flags, printing, exit codes. Everything else is
// the business of the package kernel, and nothing but this package prints to
// people.
//
// # Exit codes
//
// The code of run and repl is the highest of all cells'.
//
//	0  every cell ended without an error
//	1  a cell raised
//	2  usage: flags, arguments, files or directories that cannot be used
//	3  a cell reached its time limit
//	4  the worker died
//	5  the jail, or the worker in it, could not be started
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"cellblock/jail"
	"cellblock/kernel"
)

// Exit codes. They are part of the command's contract.
const (
	exitOK      = 0
	exitRaised  = 1
	exitUsage   = 2
	exitTimeout = 3
	exitDied    = 4
	exitJail    = 5
)

// exitError ends the command with a code. A nil err means that everything has
// been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// openError tells what the host cannot do from what was asked wrongly. An option
// is named by its flag.
func openError(cmd *cobra.Command, err error) error {
	var missing *jail.MissingFeatureError
	if errors.As(err, &missing) {
		return &exitError{exitJail, err}
	}
	var option *kernel.OptionError
	if errors.As(err, &option) {
		flag := strings.ReplaceAll(strings.TrimPrefix(option.Option, "cell "), " ", "-")
		return usage(cmd, fmt.Errorf("flag --%s: %s", flag, option.Why))
	}
	return &exitError{exitUsage, err}
}

func main() { os.Exit(execute(os.Args[1:], newConsole())) }

// execute runs one command line and returns the exit code.
func execute(args []string, c *console) int {
	root := newRoot(c)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{exitUsage, err}
	}
	if e.err != nil {
		c.say("%v", e.err)
	}
	return e.code
}
