package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/kernel/front/http/client"
	"cellblock/policy"
)

// cellSession is a session that a command runs cells in: one of this process, or of a
// server.
type cellSession interface {
	Call(context.Context, kernel.Call) kernel.Result
	Interrupt() bool
	Abort()
	Close() error
}

// connectFlags name a server in place of a session of this process.
type connectFlags struct {
	address, tokenFile string
}

func (f *connectFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.address, "connect", "", "run in a session of 'cellblock serve': the path of its socket, http://127.0.0.1:PORT, or default")
	set.StringVar(&f.tokenFile, "token-file", "", "with --connect to a port: file that holds the token")
}

// session opens the session that the flags describe, here or at a server, and returns what
// a model is to be told of the tool. With questions, a cell may ask the terminal.
func (f *sessionFlags) session(cmd *cobra.Command, c *console, questions bool) (cellSession, string, error) {
	if f.connect.address != "" {
		s, err := f.connected(cmd, c)
		if err != nil {
			return nil, "", err
		}
		if s.Approve = f.Approve; questions {
			s.Input, s.Approve = c.answering()
		}
		return s, s.Description, nil
	}
	if f.connect.tokenFile != "" {
		return nil, "", usage(cmd, errors.New("flag --token-file: is for --connect, which is missing"))
	}
	options, err := f.options(cmd)
	if err != nil {
		return nil, "", err
	}
	if questions {
		options.Input, options.Approve = c.answering()
	}
	s, err := f.open(cmd, c, options)
	if err != nil {
		return nil, "", err
	}
	return s, kernel.ToolDescription(options), nil
}

// served are the flags that a server takes over from a request; the rest is its own.
var served = []string{"session", "mode", "timeout", "on-timeout", "max-output", "limit", "net", "connect", "token-file",
	"command", "cells", "json", "help"}

// connected opens a session of the server that the flags name.
func (f *sessionFlags) connected(cmd *cobra.Command, c *console) (*client.Session, error) {
	var other error
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if !slices.Contains(served, flag.Name) {
			other = fmt.Errorf("flag --%s: is the server's to decide; leave it out with --connect", flag.Name)
		}
	})
	if other != nil {
		return nil, usage(cmd, other)
	}
	ask, err := f.request(cmd)
	if err != nil {
		return nil, err
	}
	address, token := f.connect.address, ""
	if address == "default" {
		if address, err = defaultSocket(); err != nil {
			return nil, usage(cmd, err)
		}
	}
	if f.connect.tokenFile != "" {
		if token, err = readToken(f.connect.tokenFile); err != nil {
			return nil, usage(cmd, err)
		}
	}
	server, err := client.New(address, token)
	if err != nil {
		return nil, usage(cmd, fmt.Errorf("flag --connect: %w", err))
	}
	s, err := server.Create(context.Background(), ask)
	var problem *api.Problem
	switch {
	case errors.As(err, &problem) && problem.Code == api.CodeHost:
		return nil, &exitError{exitJail, err}
	case err != nil:
		return nil, &exitError{exitUsage, err}
	}
	c.inbound(s.Info.Inbound)
	return s, nil
}

// request is what the flags ask a server for. What was not given is the server's.
func (f *sessionFlags) request(cmd *cobra.Command) (api.Create, error) {
	var ask api.Create
	dir, err := filepath.Abs(f.SessionDir)
	if err != nil {
		return ask, usage(cmd, err)
	}
	ask.Directory = dir
	given := cmd.Flags().Changed
	if given("mode") {
		if ask.Mode, err = policy.ParseMode(f.mode); err != nil {
			return ask, usage(cmd, fmt.Errorf("flag --mode: %w", err))
		}
	}
	if given("timeout") {
		if f.CellTimeout < time.Millisecond {
			return ask, usage(cmd, fmt.Errorf("flag --timeout: %v is no time limit; give one such as 2s", f.CellTimeout))
		}
		ask.TimeoutSeconds = f.CellTimeout.Seconds()
	}
	if given("on-timeout") {
		ask.OnTimeout = kernel.OnTimeout(f.onTimeout)
	}
	if given("max-output") {
		ask.MaxOutput = f.MaxOutput
	}
	ask.Net = policy.Net(f.net)
	for _, name := range policy.LimitNames() {
		if n := *f.limits.Field(name); n != 0 {
			if ask.Limits == nil {
				ask.Limits = map[string]string{}
			}
			ask.Limits[name] = fmt.Sprint(n)
		}
	}
	return ask, nil
}

// maxTokenFile bounds what is read of a file that holds a token, in bytes.
const maxTokenFile = 64 << 10

// readToken reads the token in a file: the last word of its first line that is none of
// comment, as the server's own file has it.
func readToken(path string) (string, error) {
	f, err := api.OpenTokens(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			return words[len(words)-1], nil
		}
	}
	return "", fmt.Errorf("token file %s: has no token", path)
}

// inbound tells where the ports of a session are reached.
func (c *console) inbound(ports []kernel.Inbound) {
	for _, i := range ports {
		c.say("inbound %s: %s leads to port %d of the session", i.Name, i.Address, i.Port)
	}
}
