package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"cellblock/profiles"
)

func newProfile(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "profile", Short: "List the built-in jail profiles, or show one", Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "List the profiles", Args: atMost(0), RunE: func(*cobra.Command, []string) error {
			for _, name := range profiles.List() {
				p, err := profiles.Get(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.out, "%-10s %s\n", name, p.Description)
			}
			return nil
		}},
		&cobra.Command{Use: "show PROFILE", Short: "Print a profile's document, every entry with its reason", Args: needProfile,
			ValidArgs: profiles.List(), RunE: func(cmd *cobra.Command, args []string) error {
				text, err := profiles.Document(args[0])
				if err != nil {
					return usage(cmd, err)
				}
				_, err = c.out.Write(text)
				return err
			}},
	)
	return cmd
}

// needProfile wants the name of one profile.
func needProfile(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage(cmd, fmt.Errorf("argument PROFILE: none given, there are %s", strings.Join(profiles.List(), ", ")))
	}
	return atMost(1)(cmd, args)
}
