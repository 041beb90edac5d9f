package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cellblock/policy/audit"
)

func newAudit(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Read, verify and export the records of sessions",
		Long: `Every session of run, repl and mcp is recorded: its start with what was tried
against its jail, each cell, what the policy does not allow, its end. A record is
a line of JSON that carries the hash of the line before it.

Records lie in $XDG_STATE_HOME/cellblock/audit (by default below ~/.local/state),
one file a session, and stay until somebody removes them. So do those of 'shadow
commit' and 'shadow discard', whose names end in -shadow.jsonl. 'run --audit FILE' names
another file, 'run --audit none' keeps no record.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noCommand(cmd, args); err != nil {
				return err
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newAuditTail(c), newAuditVerify(c), newAuditExport(c))
	return cmd
}

// auditDir is where the records of sessions lie that name no file. Empty when
// there is no home.
func auditDir() string {
	if dir := stateDir(); dir != "" {
		return filepath.Join(dir, "audit")
	}
	return ""
}

// auditName is the name of a new session's record: the newest sorts last.
func auditName() string {
	return fmt.Sprintf("%s-%d.jsonl", time.Now().UTC().Format("20060102T150405.000"), os.Getpid())
}

// logs lists the records of sessions in the audit directory, the newest first.
func logs() []string {
	found, _ := filepath.Glob(filepath.Join(auditDir(), "*.jsonl"))
	found = slices.DeleteFunc(found, func(path string) bool { return strings.HasSuffix(path, layerSuffix) })
	slices.Sort(found)
	slices.Reverse(found)
	return found
}

// newest is the file that a command means which was given none.
func newest() (string, error) {
	if found := logs(); len(found) > 0 {
		return found[0], nil
	}
	return "", fmt.Errorf("audit records: none in %s; run a session first, or name a file", orElse(auditDir(), "a home directory, which there is none of"))
}

func newAuditVerify(c *console) *cobra.Command {
	var (
		asJSON bool
		head   string
	)
	cmd := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Find any change, gap or truncation of records, and name the record",
		Long: `Compare each record of a log with the hash in the one after it, and the last one
with the head beside the log. The exit code is 1 when something is not as it was
written. Notes name the host calls of which nobody knows whether they were done: a
crash came between their records, or their tool broke off.

The chain has no key: who may write both the log and its head can make new ones.
Note the head's hash in another place, and give it to --head later.`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line a file")
	cmd.Flags().StringVar(&head, "head", "", "a hash that was noted earlier: one of the records must have it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if head != "" && len(args) != 1 {
			return usage(cmd, errors.New("flag --head: belongs to one file"))
		}
		code := exitOK
		for _, path := range args {
			v, err := audit.Verify(path, audit.Expect(head))
			if err != nil {
				return err
			}
			if !v.Clean() {
				code = exitRaised
			}
			if asJSON {
				if err := c.printJSON(struct {
					File string `json:"file"`
					audit.Verification
				}{path, v}); err != nil {
					return err
				}
				continue
			}
			c.printVerification(path, v)
		}
		if code != exitOK {
			return &exitError{code: code}
		}
		return nil
	}
	return cmd
}

func (c *console) printVerification(path string, v audit.Verification) {
	for _, f := range v.Findings {
		c.printOut(fmt.Sprintf("%s: %s\n", path, f))
	}
	for _, n := range v.Notes {
		c.printOut(fmt.Sprintf("%s: note: %s\n", path, n))
	}
	word := "as they were written"
	if !v.Clean() {
		word = "NOT as they were written"
	}
	c.printOut(fmt.Sprintf("%s: %d records, %s; head %s\n", path, v.Records, word, v.Head))
}

func newAuditExport(c *console) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "export --format jsonl|csv|ocsf FILE",
		Short: "Print a log as JSON lines, as CSV or as OCSF events",
		Long: `Print a log in another form. In CSV no cell begins as a formula does. OCSF events
are of version 1.5.0: File System Activity (1001), Process Activity (1007), Network
Activity (4001), API Activity (6003) for calls to the launcher, and Application
Lifecycle (6002) for the session's own life, with the profile Security Control.

The exit code is 1 when lines were left out that are no records.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&format, "format", string(audit.JSONLines), "jsonl, csv or ocsf")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl", "csv", "ocsf"}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := audit.ParseFormat(format)
		if err != nil {
			return usage(cmd, err)
		}
		in, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		host, _ := os.Hostname()
		err = audit.Export(c.out, in, f, host)
		if errors.As(err, new(*audit.Skipped)) {
			return &exitError{exitRaised, err}
		}
		return err
	}
	return cmd
}
