package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"cellblock/kernel"
)

func newDoctor(c *console) *cobra.Command {
	var (
		flags  sessionFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host can enforce, and what to do about the rest",
		Long: `Try what a jail needs on this host, start one, tell what was tried from
inside it and what keeps each of its limits, and list the skills and extensions.

In mode report, writes outside the session directory are done with your rights
and reported, also those of child processes and native code; without
seccomp-notify only those that Python's audit hook sees. Not seen are writes
through a descriptor that is open already, and what is reached on loopback,
which is the host's there. Only enforce refuses them.

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
		if !cmd.Flags().Changed("session") {
			options.SessionDir = "" // one of its own
		}
		report, err := kernel.Doctor(context.Background(), options)
		if err != nil {
			return openError(cmd, err)
		}
		if asJSON {
			err = c.printJSON(report)
		} else {
			c.printDoctor(report)
		}
		if err == nil && report.Jail != kernel.JailWorks && report.Jail != kernel.JailUntried {
			err = &exitError{code: exitJail}
		}
		return err
	}
	return cmd
}

func (c *console) printDoctor(r kernel.DoctorReport) {
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
	if len(r.Witness) > 0 {
		fmt.Fprintf(c.out, "witness: %d forbidden acts were tried from inside, and each was refused (--json lists them)\n", len(r.Witness))
	}
	for _, l := range r.Limits {
		fmt.Fprintf(c.out, "limit %s: %d, kept by %s\n", l.Name, l.Value, l.By)
	}
	for _, d := range r.Degraded {
		fmt.Fprintf(c.out, "degraded: %s: %s\n", d.Feature, d.Why)
	}
	for _, s := range r.Skills {
		if s.Skipped != "" {
			fmt.Fprintf(c.out, "skill %s: skipped: %s\n", s.Name, s.Skipped)
		} else {
			fmt.Fprintf(c.out, "skill %s: import %s\n", s.Name, s.Module)
		}
	}
	for _, e := range r.Extensions {
		fmt.Fprintf(c.out, "extension %s: %d tools, from %s\n", e.Name, len(e.Tools), named(e.File.Path))
	}
	for _, w := range r.ExtensionWarnings {
		fmt.Fprintf(c.out, "extension %s: not used: %s\n", named(w.Path), clean(w.Why, c.outTTY))
	}
}
