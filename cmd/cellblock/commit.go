package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/kernel/shadow"
)

func newShadowCommit(c *console) *cobra.Command {
	var o shadow.CommitOptions
	var asJSON bool
	var record recordFlags
	cmd := &cobra.Command{
		Use:   "commit SESSION [PATH...]",
		Short: "Carry a layer over to the host, whole or by path",
		Long: `Make on the host what a session has changed in its layer: content, rights, times,
access lists and the user's own attributes, links, new directories, new names, and
removals. With PATH only what lies at or beneath it, and the directories above that
the host does not have. What was carried over leaves the layer; a layer in which
nothing is left is removed.

Everything is checked first, and nothing is changed when one change cannot be carried
over: the host has changed there since the session began, a rule of the policy
refuses it, it is a device, FIFO or socket, or its directory cannot be written.
--skip-conflicts leaves such changes out instead. Files that the host would execute
or load by itself ("!" in the diff) are such changes too, unless --executable is
given. They are known by their names: hooks and configuration of git, libraries, start
files, units, jobs, what gives rights, files of builds. What else runs a file because
of what is in it nobody knows: look at the diff. A file is replaced whole or not at
all; what a commit that was killed has not done, the next does.

It is recorded (see 'cellblock audit'): each change before it is made, and what was
not carried over, with the reason. What cannot be recorded is not made.

The exit code is 0 when all of it was carried over, 1 when something was not, and 2
when the commit could not begin or ended at an error.`,
		Example: `  cellblock shadow commit last --dry-run
  cellblock shadow commit last
  cellblock shadow commit last ~/project --skip-conflicts`,
		Args: cobra.MinimumNArgs(1),
	}
	f := cmd.Flags()
	f.BoolVar(&o.SkipConflicts, "skip-conflicts", false, "carry over what can be, and leave the rest in the layer")
	f.BoolVar(&o.Executable, "executable", false, "carry over what the host would execute or load by itself, too")
	f.BoolVar(&o.SetID, "set-id", false, "keep set-user-id and set-group-id bits of files")
	f.BoolVar(&o.DryRun, "dry-run", false, "tell what would be done, and change nothing")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	record.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if slices.Contains(args[1:], "") {
			return usage(cmd, errors.New("a path is empty: name one, or none for the whole layer"))
		}
		if o.Paths, err = absolutes(args[1:]); err != nil {
			return err
		}
		l, err := openLayer(args[0])
		if err != nil {
			return err
		}
		if o.DryRun {
			record.audit = "none"
		}
		log, err := record.open(cmd)
		if err != nil {
			return err
		}
		res, err := kernel.CommitLayer(l, o, log)
		if log != nil {
			if failed := log.Close(); err == nil {
				err = failed
			}
		}
		if asJSON {
			if err := c.printJSON(res); err != nil {
				return err
			}
		} else {
			tellCommit(c, res)
		}
		switch {
		case errors.Is(err, shadow.ErrRefused), errors.Is(err, shadow.ErrMoved):
			return &exitError{exitRaised, err}
		case err == nil && len(res.Refused) > 0:
			return &exitError{code: exitRaised}
		}
		return err
	}
	return cmd
}

func tellCommit(c *console, res shadow.Commit) {
	for _, change := range res.Done {
		c.printOut(change.String() + "\n")
	}
	for _, r := range res.Refused {
		c.say("not carried over: %s", r)
	}
	for _, note := range res.Notes {
		c.say("%s", note)
	}
	switch {
	case res.Removed:
		c.say("layer %s is empty and was removed", res.Layer)
	case res.DryRun && len(res.Done) > 0:
		c.say("nothing was changed: this is what a commit would do")
	}
}
