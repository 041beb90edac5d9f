package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/kernel/shadow"
)

func newShadow(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Look at what sessions in mode shadow have changed, carry it over, or drop it",
		Long: `In mode shadow what a session changes outside of its directory goes to a layer of
its own, and the host's files stay as they are. A layer in which something differs
stays when its session ends, below $XDG_STATE_HOME/cellblock/shadow (by default
~/.local/state), until it is carried over to the host or dropped.

SESSION is the name of a layer, the name of its session, or "last".`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noCommand(cmd, args); err != nil {
				return err
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newShadowList(c), newShadowDiff(c), newShadowCommit(c), newShadowDiscard(c))
	return cmd
}

// shadowDir is where the layers lie. Empty when there is no home.
func shadowDir() string {
	if dir := stateDir(); dir != "" {
		return filepath.Join(dir, "shadow")
	}
	return ""
}

// openLayer finds the layer that an argument names.
func openLayer(name string) (*shadow.Layer, error) {
	dir := shadowDir()
	if dir == "" {
		return nil, errors.New("shadow layers: there is no home to look in: set XDG_STATE_HOME or HOME")
	}
	return shadow.Open(dir, name)
}

// absolutes makes paths that somebody has typed absolute.
func absolutes(paths []string) ([]string, error) {
	all := make([]string, len(paths))
	for i, p := range paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		all[i] = abs
	}
	return all, nil
}

// layerLine is what shadow list tells of a layer.
type layerLine struct {
	Layer     string `json:"layer"`
	Session   string `json:"session"`
	Directory string `json:"directory"`
	Born      string `json:"born"`
	Live      bool   `json:"live,omitempty"`
	Changes   int    `json:"changes"`
	Flagged   int    `json:"flagged,omitempty"`
	Unread    int    `json:"unread,omitempty"`
}

func newShadowList(c *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the layers, the newest first",
		Args:  atMost(0),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line a layer")
	cmd.RunE = func(*cobra.Command, []string) error {
		layers, err := shadow.List(shadowDir())
		if err != nil {
			return err
		}
		for _, l := range layers {
			d, err := l.Diff()
			if err != nil {
				c.say("%v", err)
			}
			line := layerLine{Layer: l.ID, Session: l.Session, Directory: l.Directory, Born: l.Born.UTC().Format("2006-01-02T15:04:05Z"), Live: l.Live(),
				Changes: len(d.Changes), Flagged: d.Flagged(), Unread: len(d.Unread)}
			if asJSON {
				if err := c.printJSON(line); err != nil {
					return err
				}
				continue
			}
			text := fmt.Sprintf("%s  %d changes", line.Layer, line.Changes)
			if line.Flagged > 0 {
				text += fmt.Sprintf(", %d of them flagged", line.Flagged)
			}
			text += "  session " + line.Session + " in " + line.Directory
			if line.Live {
				text += "  (in use)"
			}
			c.printOut(text + "\n")
		}
		if len(layers) == 0 && !asJSON {
			c.say("no session in mode shadow has left changes")
		}
		return nil
	}
	return cmd
}

func newShadowDiff(c *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff SESSION [PATH...]",
		Short: "Tell how a layer differs from the host",
		Long: `Compare a layer with the host as it is now: files that were created, changed,
renamed, replaced or deleted. A "!" says why the host would execute or load the
file by itself later; "conflict" says why it should not be copied to the host
as it is. A file that was copied and then removed is told as renamed while there is
not too much to compare, and else as created and deleted.

The exit code is 1 when something differs.`,
		Example: `  cellblock shadow diff last
  cellblock shadow diff last /etc`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		l, err := openLayer(args[0])
		if err != nil {
			return err
		}
		d, err := l.Diff()
		if err != nil {
			return err
		}
		paths, err := absolutes(args[1:])
		if err != nil {
			return err
		}
		if err := d.Within(paths); err != nil {
			return err
		}
		if asJSON {
			if err := c.printJSON(d); err != nil {
				return err
			}
		} else {
			for _, change := range d.Changes {
				c.printOut(change.String() + "\n")
			}
		}
		for _, u := range d.Unread {
			c.say("not looked at: %s", u)
		}
		if len(d.Changes)+len(d.Unread) > 0 {
			return &exitError{code: exitRaised}
		}
		return nil
	}
	return cmd
}

func newShadowDiscard(c *console) *cobra.Command {
	var record recordFlags
	cmd := &cobra.Command{
		Use:   "discard SESSION",
		Short: "Drop a layer with everything in it; the host stays as it is",
		Long: `Drop a layer with everything in it; the host stays as it is. What was in it is
recorded before it goes (see 'cellblock audit').`,
		Args: cobra.ExactArgs(1),
	}
	record.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := openLayer(args[0])
		if err != nil {
			return err
		}
		log, err := record.open(cmd)
		if err != nil {
			return err
		}
		err = kernel.DiscardLayer(l, log)
		if log != nil {
			if failed := log.Close(); err == nil {
				err = failed
			}
		}
		if err != nil {
			return err
		}
		c.say("layer %s is dropped", l.ID)
		return nil
	}
	return cmd
}
