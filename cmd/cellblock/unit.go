package main

import (
	"embed"
	"fmt"

	"github.com/spf13/cobra"
)

//go:embed systemd/cellblock.service systemd/cellblock.socket
var units embed.FS

func newServeUnit(c *console) *cobra.Command {
	kinds := []string{"service", "socket"}
	return &cobra.Command{
		Use:       "unit service|socket",
		Short:     "Print a unit for systemd: a hardened service with socket activation",
		Example:   "  cellblock serve unit service > cellblock.service\n  cellblock serve unit socket > cellblock.socket",
		ValidArgs: kinds,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != kinds[0] && args[0] != kinds[1] {
				return usage(cmd, fmt.Errorf("argument: name service or socket"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := units.ReadFile("systemd/cellblock." + args[0])
			if err != nil {
				return err
			}
			_, err = c.out.Write(text)
			return err
		},
	}
}
