package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

const rootLong = `cellblock runs Python cells in one persistent interpreter inside a jail.

Variables, imports and functions stay from cell to cell. The interpreter sees
the host read-only or with its user's rights, depending on the mode, and may
write the session directory.

Exit codes: 0 ok, 1 a cell raised, 2 usage, 3 a cell timed out, 4 the worker
died, 5 the jail or the worker in it could not be started. With several cells it
is the highest of theirs.`

// newRoot returns the tree of commands that prints to c.
func newRoot(c *console) *cobra.Command {
	root := &cobra.Command{
		Use:               "cellblock",
		Short:             "Run Python cells in a persistent interpreter inside a jail",
		Long:              rootLong,
		Args:              noCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		// Letters that a typing slip changes; without it nothing but a beginning is near.
		SuggestionsMinimumDistance: 2,
	}
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, err) })
	root.AddCommand(
		newRun(c), newRepl(c), newMCP(c), newServe(c),
		newDoctor(c), newPlan(c), newProfile(c), newPolicy(c), newBench(c),
		newAudit(c), newViolations(c), newShadow(c), newDefinitions(c), newExt(c),
		newVersion(c), newMan(c),
	)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			// Cobra's own prints help and succeeds for a shell that it does not know.
			cmd.Args = noCommand
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			// Cobra's own succeeds for a command that there is not.
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				about, left, err := root.Find(args)
				if err != nil || len(left) > 0 {
					return noCommand(root, args)
				}
				about.InitDefaultHelpFlag()
				return about.Help()
			}
		}
	}
	pointToHelp(root)
	return root
}

// pointToHelp has what cobra says of a wrong number of arguments tell where the help is.
func pointToHelp(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil || errors.As(err, new(*exitError)) {
				return err
			}
			return usage(cmd, err)
		}
	}
	for _, below := range cmd.Commands() {
		pointToHelp(below)
	}
}

// usage turns err into one that says where the command's help is.
func usage(cmd *cobra.Command, err error) error {
	return &exitError{exitUsage, fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
}

// noCommand refuses words that name no command.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("command %q: there is none of this name", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w, did you mean %q", err, near[0])
	}
	return usage(cmd, err)
}

// atMost accepts up to n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usage(cmd, fmt.Errorf("argument %q: one too many", args[n]))
		}
		return nil
	}
}
