package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"cellblock/jail"
	"cellblock/kernel"
	"cellblock/kernel/delegate"
	"cellblock/policy"
	"cellblock/profiles"
)

func newPolicy(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Show policies, check them, and explain what they decide", Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newPolicyList(c), newPolicyShow(c), newPolicyCheck(c), newPolicyExplain(c), newPolicyDiff(c), newPolicyReplay(c), newPolicySuggest(c), newPolicyTest(c))
	return cmd
}

// loadPolicy reads a policy: a built-in one by its name, or a file.
func loadPolicy(name string) (policy.Document, error) {
	if !strings.ContainsAny(name, "/.") {
		if doc, err := kernel.BuiltInPolicy(name); err == nil {
			return doc, nil
		}
	}
	file, err := os.Open(name)
	if err != nil {
		if os.IsNotExist(err) {
			return policy.Document{}, fmt.Errorf("policy %q: there is no such file, and the built-in ones are %s", name, strings.Join(profiles.PolicyNames(), ", "))
		}
		return policy.Document{}, fmt.Errorf("policy: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, policy.MaxDocument+1))
	if err != nil {
		return policy.Document{}, fmt.Errorf("policy: %w", err)
	}
	doc, err := policy.Parse(name, text)
	if err != nil {
		return doc, err
	}
	return doc, readRego(&doc)
}

func newPolicyList(c *console) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the built-in policies", Args: atMost(0), RunE: func(*cobra.Command, []string) error {
		for _, name := range profiles.PolicyNames() {
			doc, err := kernel.BuiltInPolicy(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.out, "%-10s %s\n", name, doc.Description)
		}
		return nil
	}}
}

func newPolicyShow(c *console) *cobra.Command {
	return &cobra.Command{Use: "show NAME", Short: "Print a built-in policy's document, every entry with its reason", Args: cobra.ExactArgs(1),
		ValidArgs: profiles.PolicyNames(), RunE: func(cmd *cobra.Command, args []string) error {
			text, err := profiles.Policy(args[0])
			if err != nil {
				return usage(cmd, err)
			}
			_, err = c.out.Write(text)
			return err
		}}
}

func newPolicyCheck(c *console) *cobra.Command {
	var (
		flags  sessionFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Look for rules that do nothing, contradict each other or cannot be kept here",
		Long: `Read a policy and look for what its author may want to change: rules that no
operation reaches, allows of what does not exist, and rules that nothing on this
host can enforce.

The exit code is 0 when there is nothing or only notes, 1 with warnings, and 2 when
no session could be opened with the policy.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	flags.addSession(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := flags.options(cmd)
		if err != nil {
			return err
		}
		doc, err := loadPolicy(args[0])
		if err != nil {
			return err
		}
		options.Policy = &doc
		found, err := kernel.CheckPolicy(options, jail.Probe())
		if err != nil {
			return err
		}
		if r := doc.Tools.Rego; r != nil {
			asked, err := delegate.Start(regoProgram(), *r)
			if err != nil {
				found = append(found, policy.Finding{Line: r.Line, Level: policy.LevelError, Text: "tools.rego: " + err.Error()})
			} else {
				asked.Close()
			}
		}
		code := exitOK
		for _, f := range found {
			switch f.Level {
			case policy.LevelError:
				code = exitUsage
			case policy.LevelWarning:
				code = max(code, exitRaised)
			}
			if !asJSON {
				rule := ""
				if f.Rule != "" {
					rule = "rule " + f.Rule + ": "
				}
				fmt.Fprintf(c.out, "%s:%d: %s: %s%s\n", doc.File, f.Line, f.Level, rule, f.Text)
			}
		}
		if asJSON {
			if found == nil {
				found = []policy.Finding{}
			}
			if err := c.printJSON(found); err != nil {
				return err
			}
		}
		if code != exitOK {
			return &exitError{code: code}
		}
		return nil
	}
	return cmd
}

func newPolicyDiff(c *console) *cobra.Command {
	var (
		flags  sessionFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "diff OLD NEW [AUDIT...]",
		Short: "Tell what two policies decide differently",
		Long: `Compile two policies for one session and ask both about everything that either
names. A line tells the operations, the path, and both decisions: allow, deny
(Linux refuses) or report (done, and reported), each with its rule. The path DIR/…
stands for whatever lies beneath DIR and has no rule of its own.

With records of sessions, tell instead which decisions change on what they record;
'cellblock policy replay --help' says what that is.

The exit code is 1 when something differs, and when a record is not as it was written.`,
		Args: cobra.MinimumNArgs(2),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	flags.addSession(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := flags.options(cmd)
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("mode") {
			options.Mode = policy.Enforce
		}
		var docs [2]policy.Document
		for i := range docs {
			if docs[i], err = loadPolicy(args[i]); err != nil {
				return err
			}
		}
		if len(args) > 2 {
			return c.diffRecorded(cmd, &flags, docs, args[2:], asJSON)
		}
		var both [2]policy.Policy
		for i := range docs {
			options.Policy = &docs[i]
			if both[i], _, err = kernel.Policy(options); err != nil {
				return err
			}
		}
		changes := policy.Diff(both[0], both[1])
		if asJSON {
			if changes == nil {
				changes = []policy.Change{}
			}
			if err := c.printJSON(changes); err != nil {
				return err
			}
		} else {
			for _, change := range changes {
				fmt.Fprintf(c.out, "%s: %s -> %s\n", change.What, change.Old, change.New)
			}
		}
		if len(changes) > 0 {
			return &exitError{code: exitRaised}
		}
		return nil
	}
	return cmd
}

// absolute is a path of the command line as policies know it.
func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return kernel.Canonical(abs), nil
}
