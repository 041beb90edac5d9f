package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/kernel/shadow"
	"cellblock/policy"
	"cellblock/policy/suggest"
)

func newPolicySuggest(c *console) *cobra.Command {
	var (
		flags      sessionFlags
		base       string
		generalise bool
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "suggest AUDIT...",
		Short: "Print the smallest policy under which recorded sessions are clean",
		Long: `Print a policy: a base, and a rule for each place where the recorded sessions did
what the base does not allow, with what it was needed for. Rules name files where
files were changed, and the directory where names were made or removed, since
nothing less can allow that.

Nothing is suggested that the base or the built-in default hides, no directory in
which the whole host lives, no connection and no call to the launcher: what stays
denied is listed at the top of the policy, with the reason. A record holds what its
session's policy did not allow: record in mode report, under the base, what the
policy is to be made for.

The exit code is 1 when something stays denied.`,
		Example: `  cellblock run --session s --audit log/a.jsonl job.py
  cellblock policy suggest log/a.jsonl > mine.yaml
  cellblock run --session s --mode enforce --policy mine.yaml job.py`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().StringVar(&base, "base", kernel.DefaultProfile, "policy to begin with: a FILE, or the name of a built-in one")
	cmd.Flags().BoolVar(&generalise, "generalise", false, "let several files of one directory become the directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the policy, each rule's evidence and what is left out as JSON")
	flags.addSession(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		doc, err := loadPolicy(base)
		if err != nil {
			return usage(cmd, fmt.Errorf("flag --base: %w", err))
		}
		made, err := c.suggest(cmd, &flags, doc, args, suggest.Options{Generalise: generalise})
		if err != nil {
			return err
		}
		if asJSON {
			err = c.printJSON(made)
		} else {
			_, err = c.out.Write(made.Document.YAML(made.Comments()))
		}
		if err != nil {
			return err
		}
		if n := len(made.Left); n > 0 {
			c.say("%d of the recorded operations stay denied; the policy's first lines say which, and why", n)
			return &exitError{code: exitRaised}
		}
		return nil
	}
	return cmd
}

func (c *console) suggest(cmd *cobra.Command, flags *sessionFlags, base policy.Document, files []string, how suggest.Options) (suggest.Suggestion, error) {
	var made suggest.Suggestion
	options, err := flags.options(cmd)
	if err != nil {
		return made, err
	}
	options.Mode = policy.Enforce
	standard, err := kernel.BuiltInPolicy(kernel.DefaultProfile)
	if err != nil {
		return made, err
	}
	var sessions []suggest.Session
	said := map[string]bool{}
	for _, file := range files {
		recording, _, err := c.recording(cmd, flags, file)
		if err != nil {
			return made, err
		}
		if recording.Left > 0 {
			c.say("%s: %d operations are only counted in it, and not looked at", file, recording.Left)
		}
		bases, err := c.compileAll(options, base, recording.Runs, said)
		if err != nil {
			return made, fmt.Errorf("audit %s: %w", file, err)
		}
		guards, err := c.compileAll(options, standard, recording.Runs, map[string]bool{})
		if err != nil {
			return made, fmt.Errorf("audit %s: %w", file, err)
		}
		first := len(sessions)
		for i, run := range recording.Runs {
			s := suggest.Session{Run: run, Base: bases[i]}
			for _, r := range guards[i].Deny {
				if r.Access.Has(policy.AccessRead) {
					s.Guards = append(s.Guards, r)
				}
			}
			sessions = append(sessions, s)
		}
		for _, o := range recording.Operations {
			s := &sessions[first+o.Run]
			operation := suggest.Operation{Operation: o}
			if op, ok := o.FileOp(); ok && op.Kind.Changes() {
				operation.Flag = shadow.FlagOf(op.Path)
			}
			s.Operations = append(s.Operations, operation)
		}
	}
	host := map[string]policy.Found{}
	for _, p := range suggest.Paths(sessions) {
		host[p] = kernel.Lookup(p)
	}
	made = suggest.Make(base, sessions, host, how)
	// What was made is asked, before anybody relies on it.
	options.Policy = &made.Document
	var compiled []policy.Policy
	for _, s := range sessions {
		p, _, err := kernel.RecordedPolicy(options, s.Run)
		if err != nil {
			return made, fmt.Errorf("the suggestion cannot be used: %w", err)
		}
		compiled = append(compiled, p)
	}
	made.Check(sessions, compiled)
	return made, nil
}
