package main

import (
	"os"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/profiles"
)

// profileNames are the built-in profiles, for messages and completion.
func profileNames() []string { return profiles.List() }

func newPlan(c *console) *cobra.Command {
	var (
		flags  sessionFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "plan [flags] [PROFILE]",
		Short: "Print the steps by which a jail starts here, each with its reason",
		Args:  atMost(1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	flags.addCells(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := flags.options(cmd)
		if err != nil {
			return err
		}
		if len(args) == 1 {
			options.Profile = args[0]
		}
		if options.SessionDir == "" {
			if options.SessionDir, err = os.Getwd(); err != nil {
				return err
			}
		}
		p, err := kernel.Plan(options)
		if err != nil {
			return openError(cmd, err)
		}
		if asJSON {
			return c.printJSON(p)
		}
		_, err = c.out.Write([]byte(p.String()))
		return err
	}
	return cmd
}
