package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"cellblock/jail"
	"cellblock/kernel"
)

// doctorReport is what doctor prints with --json.
type doctorReport struct {
	Features jail.Features  `json:"features"`
	Jail     string         `json:"jail"` // one of the constants, or why a jail cannot be built
	Skills   []kernel.Skill `json:"skills"`
}

const (
	jailWorks   = "works"
	jailUntried = "not tried: tier process has none"
)

func newDoctor(c *console) *cobra.Command {
	var (
		flags  sessionFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host can enforce, and what to do about the rest",
		Long: `Try what a jail needs on this host, start one, and list the skills.

In mode report, writes outside the session directory are done with your rights
and reported from what Python's audit hook sees: not those of child processes or
native code. Only enforce refuses them.

The exit code is 5 when a jail cannot be built here.`,
		Args: atMost(0),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	flags.addCells(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		options, err := flags.options(cmd)
		if err != nil {
			return err
		}
		report := doctorReport{Features: jail.ProbeAll(), Jail: jailWorks, Skills: kernel.Skills(options.SkillRoots)}
		if options.Tier == kernel.TierProcess {
			report.Jail = jailUntried
		}
		if err := tryJail(cmd, options); err != nil {
			var option *kernel.OptionError
			if errors.As(err, &option) {
				return openError(cmd, err)
			}
			report.Jail = err.Error()
		}
		if asJSON {
			err = c.printJSON(report)
		} else {
			c.printDoctor(report)
		}
		if err == nil && report.Jail != jailWorks && report.Jail != jailUntried {
			err = &exitError{code: exitJail}
		}
		return err
	}
	return cmd
}

// tryJail starts a session the way run does, and ends it.
func tryJail(cmd *cobra.Command, options kernel.Options) error {
	if !cmd.Flags().Changed("session") {
		dir, err := os.MkdirTemp("", "cellblock-doctor-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		options.SessionDir = dir
	}
	session, err := kernel.Open(options)
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Start(context.Background())
}

func (c *console) printDoctor(r doctorReport) {
	fmt.Fprintf(c.out, "Linux %s, uid %d, cgroup %s, Landlock ABI %d\n", r.Features.Kernel, r.Features.UID, r.Features.CgroupMode, r.Features.LandlockABI)
	fmt.Fprintf(c.out, "jail: %s\n\n", r.Jail)
	for _, name := range slices.Sorted(maps.Keys(r.Features.Findings)) {
		f := r.Features.Findings[name]
		fmt.Fprintf(c.out, "%-15s %-14s %s\n", name, f.Answer, f.Why)
		if f.Remedy != "" && !f.Yes() {
			fmt.Fprintf(c.out, "%-15s -> %s\n", "", f.Remedy)
		}
	}
	fmt.Fprintln(c.out)
	for _, s := range r.Skills {
		if s.Skipped != "" {
			fmt.Fprintf(c.out, "skill %s: skipped: %s\n", s.Name, s.Skipped)
		} else {
			fmt.Fprintf(c.out, "skill %s: import %s\n", s.Name, s.Module)
		}
	}
}
