package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"cellblock/kernel/bench"
)

func newBench(c *console) *cobra.Command {
	var (
		opts   bench.Options
		asJSON bool
		file   string
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure sessions beside what else could run the same code here",
		Long: `Measure sessions on this machine beside the bare interpreter and what is
installed of bubblewrap, crun, runc, firejail and ipykernel: medians and p99 after
a warm-up, all ways in turn, and the goals that they are held to.

Take the ratios, not the times, and give the machine nothing else to do. What is
not installed is listed as missing. It takes some minutes; --rows takes a part:
` + strings.Join(bench.RowNames(), ", ") + `. The row idle is measured with --idle N only.`,
		Example: `  cellblock bench --quick --rows cold,cell
  cellblock bench --quick --rows write --out bench.json`,
		Args: atMost(0),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of a table")
	cmd.Flags().StringVar(&file, "out", "", "write JSON to this file, besides")
	cmd.Flags().StringSliceVar(&opts.Rows, "rows", nil, "measure these rows only")
	cmd.Flags().IntVar(&opts.Rounds, "rounds", 40, "how often each way is measured, after the warm-up")
	cmd.Flags().IntVar(&opts.Idle, "idle", 0, "hold so many sessions at once in the row idle; each takes some 8 MB")
	cmd.Flags().BoolVar(&opts.Quick, "quick", false, "do little, to see that each way can be had; the figures mean nothing")
	cmd.Flags().StringVar(&opts.Python, "python", "", "interpreter of all ways but ipykernel's (default /usr/bin/python3, or that of PATH)")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("rows", cobra.FixedCompletions(bench.RowNames(), cobra.ShellCompDirectiveNoFileComp)))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if opts.Rounds < 1 || opts.Idle < 0 {
			return usage(cmd, fmt.Errorf("flags --rounds %d, --idle %d: give numbers above zero", opts.Rounds, opts.Idle))
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		program, err := os.Executable()
		if err != nil {
			return err
		}
		opts.Program = program
		report, err := bench.Run(ctx, opts)
		if errors.As(err, new(*bench.RowError)) {
			return usage(cmd, fmt.Errorf("flag --rows: %w", err))
		}
		if err != nil {
			return &exitError{exitJail, err}
		}
		if file != "" {
			body, err := json.MarshalIndent(report, "", "  ")
			if err == nil {
				err = os.WriteFile(file, append(body, '\n'), 0o644)
			}
			if err != nil {
				return &exitError{exitUsage, fmt.Errorf("flag --out: %w", err)}
			}
		}
		if asJSON {
			return c.printJSON(report)
		}
		report.Print(c.out)
		return nil
	}
	return cmd
}
