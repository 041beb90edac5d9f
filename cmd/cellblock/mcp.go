package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/kernel/front/mcp"
)

func newMCP(c *console) *cobra.Command {
	var flags sessionFlags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the python tool to an MCP client on standard input and output",
		Long: `Serve one session to one client of the Model Context Protocol, on standard
input and output. Cells have pipes of their own and share neither. A line that is no
message is answered with a JSON-RPC error, and the session goes on.`,
		Args: atMost(0),
	}
	flags.addCells(cmd.Flags())
	flags.addRecord(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		flags.Approve = mcp.Approve // the client's user, where the client asks
		session, description, err := flags.session(cmd, c, false)
		if err != nil {
			return err
		}
		defer c.closeSession(session)
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer cancel()
		if own, ok := session.(*kernel.Session); ok {
			description = own.Description(ctx)
		}
		err = mcp.Serve(ctx, session, versionText(), description, mcp.Lines(os.Stdin, os.Stdout))
		if ctx.Err() != nil {
			return nil // asked to end
		}
		return err
	}
	return cmd
}
