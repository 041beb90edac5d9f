package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"cellblock/kernel/definition"
)

func newDefinitions(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "definitions",
		Short: "Look at what sessions keep with --keep-definitions, and forget it",
		Long: `With --keep-definitions NAME the functions, classes, imports and plain constants
that cells define are kept as source, below $XDG_STATE_HOME/cellblock/definitions
(by default ~/.local/state). The next session with the same NAME runs them, statement
by statement in its jail, before its first cell, and so does a new worker after one
that has died. What else a variable held is not kept.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noCommand(cmd, args); err != nil {
				return err
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newDefinitionsList(c), newDefinitionsShow(c), newDefinitionsForget(c))
	return cmd
}

// definitionsDir is where definitions are kept. Empty when there is no home.
func definitionsDir() string {
	if dir := stateDir(); dir != "" {
		return filepath.Join(dir, "definitions")
	}
	return ""
}

var errNoDefinitions = errors.New("definitions: there is no home to keep them in: set XDG_STATE_HOME or HOME")

// definitionsLine is what definitions list tells of a name.
type definitionsLine struct {
	Name      string   `json:"name"`
	Directory string   `json:"directory"`
	Saved     string   `json:"saved"`
	Names     []string `json:"definitions"`
	Failed    int      `json:"failed,omitempty"` // could not be restored the last time
}

func newDefinitionsList(c *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "list", Short: "List the names under which definitions are kept", Args: atMost(0)}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line a name")
	cmd.RunE = func(*cobra.Command, []string) error {
		dir := definitionsDir()
		if dir == "" {
			return errNoDefinitions
		}
		all, err := definition.List(dir)
		for _, k := range all {
			line := definitionsLine{Name: k.Name, Directory: k.Directory, Saved: k.Saved.UTC().Format("2006-01-02T15:04:05Z"), Names: k.Names()}
			for _, s := range k.Statements {
				if s.Failed != "" {
					line.Failed++
				}
			}
			if asJSON {
				if err := c.printJSON(line); err != nil {
					return err
				}
				continue
			}
			text := line.Name + ": " + orElse(strings.Join(line.Names, ", "), "nothing")
			if line.Failed > 0 {
				text += fmt.Sprintf("  (%d could not be restored)", line.Failed)
			}
			c.printOut(text + "\n")
		}
		if len(all) == 0 && err == nil && !asJSON {
			c.say("no session has kept definitions")
		}
		return err
	}
	return cmd
}

func newDefinitionsShow(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Print the source that is kept under a name",
		Args:  cobra.ExactArgs(1),
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		dir := definitionsDir()
		if dir == "" {
			return errNoDefinitions
		}
		all, err := definition.List(dir)
		for _, k := range all {
			if k.Name != args[0] {
				continue
			}
			for _, s := range k.Statements {
				if s.Failed != "" {
					c.printOut("# not restored: " + s.Failed + "\n")
				}
				c.printOut(s.Source + "\n")
			}
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("definitions %q: there are none; 'cellblock definitions list' shows the names", args[0])
	}
	return cmd
}

func newDefinitionsForget(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget NAME [DEFINITION...]",
		Short: "Forget what is kept under a name, or single definitions of it",
		Args:  cobra.MinimumNArgs(1),
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		dir := definitionsDir()
		if dir == "" {
			return errNoDefinitions
		}
		n, err := definition.Forget(dir, args[0], args[1:]...)
		if err != nil {
			return err
		}
		c.say("%d statements are forgotten", n)
		return nil
	}
	return cmd
}
