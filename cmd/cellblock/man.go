package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan(c *console) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man [COMMAND]",
		Short: "Print the manual page of cellblock or of one command",
		Long: `Print the manual page of cellblock or of one command, in roff.

With --dir every page is written into that directory, as cellblock.1,
cellblock-run.1 and so on.`,
		Example: "  cellblock man run | man -l -\n  cellblock man --dir /usr/local/share/man/man1",
		Args:    cobra.ArbitraryArgs,
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all pages into this directory")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		header := &doc.GenManHeader{Title: "CELLBLOCK", Section: "1", Source: "cellblock " + versionText(), Manual: "cellblock"}
		root := cmd.Root()
		if dir != "" {
			header.Title = ""
			return doc.GenManTree(root, header, dir)
		}
		page, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			return usage(cmd, fmt.Errorf("command %q: there is none of this name", strings.Join(args, " ")))
		}
		return doc.GenMan(page, header, c.out)
	}
	return cmd
}
