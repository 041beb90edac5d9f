package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"cellblock/kernel"
)

const extTrustLong = `Trust the files in .cellblock/extensions of the session directory, as they are now.

They run with your rights, outside of the jail: read them first. What is added or changed
later is not loaded until it is trusted, too. Each file is printed with its SHA-256, so
that it can be compared with what you have read. Extensions in ~/.cellblock/extensions,
and those of --extensions, need no trust: they are yours already.`

func newExtTrust(c *console) *cobra.Command {
	var (
		session string
		forget  bool
	)
	cmd := &cobra.Command{Use: "trust", Short: "Trust the extensions of a session directory", Long: extTrustLong, Args: atMost(0)}
	cmd.Flags().StringVar(&session, "session", ".", "session directory")
	cmd.Flags().BoolVar(&forget, "forget", false, "trust none of them any more")
	_ = cmd.MarkFlagDirname("session")
	cmd.RunE = func(*cobra.Command, []string) error {
		state := stateDir()
		if state == "" {
			return errors.New("ext trust: there is no place to remember it: set HOME or XDG_STATE_HOME")
		}
		trusted, warnings, err := kernel.TrustExtensions(filepath.Join(state, "trust"), session, forget)
		if err != nil {
			return fmt.Errorf("ext trust: %w", err)
		}
		for _, w := range warnings {
			c.say("%v", w)
		}
		if len(trusted.Files) == 0 && !forget {
			return &exitError{exitUsage, fmt.Errorf("ext trust: %s has no extension that could be trusted", named(trusted.Directory))}
		}
		if len(trusted.Files) == 0 {
			fmt.Fprintf(c.out, "%s: no file is trusted\n", named(trusted.Directory))
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(trusted.Files)) {
			fmt.Fprintf(c.out, "%s  %s\n", trusted.Files[name], named(filepath.Join(trusted.Directory, name)))
		}
		return nil
	}
	return cmd
}
