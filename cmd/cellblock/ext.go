package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/kernel/extension"
)

const extLong = `Extensions are Python files of yours whose tools a session's cells may call. They run
with your rights, outside of the jail, in processes that share nothing with it.

They are looked for in ~/.cellblock/extensions and in .cellblock/extensions of the
session directory; sessions neither see nor change those. The session directory's are
loaded only when you have trusted them, as they are: 'cellblock ext trust'. Which of
their tools a cell may call is the policy's to say: without a rule, none.`

func newExt(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "ext", Short: "List, trust and test extensions", Long: extLong, Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newExtList(c), newExtTrust(c), newExtTest(c))
	return cmd
}

// extList is what 'ext list' prints as JSON.
type extList struct {
	Extensions []extension.Extension `json:"extensions"`
	Warnings   []extension.Warning   `json:"warnings"`
}

func newExtList(c *console) *cobra.Command {
	var (
		flags  sessionFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List extensions, their tools, and why some are not used",
		Long:  extLong,
		Args:  atMost(0),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	flags.addCells(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		options, err := flags.options(cmd)
		if err != nil {
			return err
		}
		found, warnings, err := kernel.FindExtensions(context.Background(), options)
		if err != nil {
			return openError(cmd, err)
		}
		if asJSON {
			return c.printJSON(extList{append([]extension.Extension{}, found...), append([]extension.Warning{}, warnings...)})
		}
		c.printExtensions(found)
		for _, w := range warnings {
			c.say("%v", w)
		}
		return nil
	}
	return cmd
}

func (c *console) printExtensions(found []extension.Extension) {
	for _, e := range found {
		fmt.Fprintf(c.out, "%s  %s\n", e.Name, named(e.File.Path))
		for _, t := range e.Tools {
			doc, _, _ := strings.Cut(t.Doc, "\n")
			line := "  " + e.Name + "." + t.Name + named(t.Signature)
			if t.Preflight {
				line += "  [declares what it will do]"
			}
			if doc != "" {
				line += "  " + named(doc)
			}
			fmt.Fprintln(c.out, line)
		}
		for _, s := range e.Slash {
			fmt.Fprintf(c.out, "  /%s  %s\n", s.Name, named(s.Doc))
		}
		for _, h := range e.Hooks {
			fmt.Fprintf(c.out, "  hook %s\n", named(h))
		}
	}
}
