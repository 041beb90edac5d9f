package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// replayed is one recorded operation and what a policy decides on it now.
type replayed struct {
	Audit   string `json:"audit"`
	Session string `json:"session"`
	audit.Operation
	Now *policy.Decision `json:"now,omitempty"`
	Why string           `json:"undecided,omitempty"` // why there is no decision
}

func newPolicyReplay(c *console) *cobra.Command {
	var (
		flags  sessionFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "replay POLICY AUDIT...",
		Short: "Say what a policy would have decided on what sessions are recorded to have done",
		Long: `Ask a policy about every operation that the records of sessions tell, with the
session directory (or that of --session) and the home of the record. Printed is what would be denied.

A record tells what the policy of its session did not allow, and calls to the
launcher; what was allowed is not in it. Recorded in mode report under a policy
that allows little, a record tells the most. Paths that the policy names are looked
for on this host, as it is now.

The exit code is 1 when something would be denied, and when a record is not as it was
written: what it does not tell may be what would be.`,
		Args: cobra.MinimumNArgs(2),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print every operation, as JSON")
	flags.addSession(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		doc, err := loadPolicy(args[0])
		if err != nil {
			return err
		}
		all, left, broken, err := c.replay(cmd, &flags, []policy.Document{doc}, args[1:])
		if err != nil {
			return err
		}
		denied, unknown := 0, 0
		for _, r := range all[0] {
			switch {
			case r.Why != "":
				unknown++
			case !r.Now.Allowed():
				denied++
			default:
				continue
			}
			if !asJSON {
				c.printOut(r.text())
			}
		}
		if asJSON {
			err = c.printJSON(struct {
				Policy     string     `json:"policy"`
				Operations []replayed `json:"operations"`
				Left       int64      `json:"notToldApart,omitempty"`
			}{doc.Name, orEmpty(all[0]), left})
		} else {
			fmt.Fprintf(c.out, "%d operations recorded: %d would be denied, %d allowed%s\n", len(all[0]), denied, len(all[0])-denied-unknown, remainder(unknown, left))
		}
		if err == nil && (denied > 0 || broken) {
			err = &exitError{code: exitRaised}
		}
		return err
	}
	return cmd
}

// remainder tells of what nobody can decide again.
func remainder(unknown int, left int64) string {
	text := ""
	if unknown > 0 {
		text += fmt.Sprintf(", %d cannot be told", unknown)
	}
	if left > 0 {
		text += fmt.Sprintf("; %d more are only counted in the record", left)
	}
	return text
}

func (r replayed) text() string {
	what := fmt.Sprintf("%s %s", named(r.Op), named(r.Target))
	if r.Count > 1 {
		what += fmt.Sprintf(", %d times", r.Count)
	}
	if r.Program != "" {
		what += ", by " + named(r.Program)
	}
	if r.Why != "" {
		return fmt.Sprintf("not decided: %s (%s)\n", what, r.Why)
	}
	return fmt.Sprintf("denied: %s (%s: %s)\n", what, r.Now.Rule, r.Now.Reason)
}

// replay asks documents about what the files record: for each document the same
// operations in the same order. Left counts those that are not told apart any more; broken
// says that some file is not as it was written.
func (c *console) replay(cmd *cobra.Command, flags *sessionFlags, docs []policy.Document, files []string) (all [][]replayed, left int64, broken bool, err error) {
	options, err := flags.options(cmd)
	if err != nil {
		return nil, 0, false, err
	}
	if !cmd.Flags().Changed("mode") {
		options.Mode = policy.Enforce
	}
	all = make([][]replayed, len(docs))
	said := map[string]bool{}
	for _, file := range files {
		recording, whole, err := c.recording(cmd, flags, file)
		if err != nil {
			return nil, 0, false, err
		}
		left += recording.Left
		broken = broken || !whole
		for i := range docs {
			policies, err := c.compileAll(options, docs[i], recording.Runs, said)
			if err != nil {
				return nil, 0, false, fmt.Errorf("audit %s: %w", file, err)
			}
			for _, o := range recording.Operations {
				r := replayed{Audit: file, Session: recording.Runs[o.Run].Session, Operation: o}
				d, err := o.Decide(policies[o.Run])
				var undecidable *audit.UndecidableError
				switch {
				case errors.As(err, &undecidable):
					r.Why = undecidable.Why
				case err != nil:
					return nil, 0, false, err
				default:
					r.Now = &d
				}
				all[i] = append(all[i], r)
			}
		}
	}
	return all, left, broken, nil
}

// compileAll compiles a document for each run. What is worth telling of it is said once.
func (c *console) compileAll(options kernel.Options, doc policy.Document, runs []audit.Run, said map[string]bool) ([]policy.Policy, error) {
	options.Policy = &doc
	policies := make([]policy.Policy, len(runs))
	for i, run := range runs {
		p, notes, err := kernel.RecordedPolicy(options, run)
		if err != nil {
			return nil, err
		}
		policies[i] = p
		for _, n := range notes {
			text := fmt.Sprintf("%s:%d: rule %s: %s", doc.File, n.Line, n.Rule, n.Text)
			// A built-in policy names many places that most hosts lack.
			if strings.HasSuffix(n.Text, "does not exist") && !said[text] {
				said[text] = true
				c.say("%s", text)
			}
		}
	}
	return policies, nil
}

// recording reads what a file tells of operations. A file that is not as it was
// written is read all the same, and that is said. --session, where it is given, stands
// for the directory of its sessions. whole is false for a file that is not as it was written.
func (c *console) recording(cmd *cobra.Command, flags *sessionFlags, file string) (recording audit.Recording, whole bool, err error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return recording, false, fmt.Errorf("audit: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return recording, false, fmt.Errorf("audit %s: not a regular file", file)
	}
	v, err := audit.Verify(file)
	if err != nil {
		return recording, false, fmt.Errorf("audit: %w", err)
	}
	if len(v.Findings) > 0 {
		c.say("%s: %s; 'cellblock audit verify' says more", file, v.Findings[0])
	}
	recording, err = audit.Operations(f)
	if err != nil {
		return recording, false, fmt.Errorf("audit %s: %w", file, err)
	}
	if len(recording.Runs) == 0 {
		return recording, false, fmt.Errorf("audit %s: there is no record of a session's start in it; name one that a run has written with --audit", file)
	}
	if cmd.Flags().Changed("session") {
		dir, err := absolute(flags.SessionDir)
		if err != nil {
			return recording, false, err
		}
		for i := range recording.Runs {
			recording.Runs[i].Directory = dir
		}
	}
	return recording, len(v.Findings) == 0, nil
}

// orEmpty is a list that JSON shows as one when it is empty.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// changed is a recorded operation on which two policies decide differently.
type changed struct {
	Audit   string `json:"audit"`
	Session string `json:"session"`
	audit.Operation
	Old policy.Decision `json:"old"`
	New policy.Decision `json:"new"`
}

// diffRecorded tells which decisions on recorded operations change.
func (c *console) diffRecorded(cmd *cobra.Command, flags *sessionFlags, both [2]policy.Document, files []string, asJSON bool) error {
	all, left, broken, err := c.replay(cmd, flags, both[:], files)
	if err != nil {
		return err
	}
	var changes []changed
	unknown := 0
	for i, r := range all[0] {
		now := all[1][i]
		switch {
		case r.Now == nil || now.Now == nil:
			unknown++
		case r.Now.Effect != now.Now.Effect || r.Now.Enforced != now.Now.Enforced:
			changes = append(changes, changed{r.Audit, r.Session, r.Operation, *r.Now, *now.Now})
		}
	}
	if asJSON {
		err = c.printJSON(orEmpty(changes))
	} else {
		for _, change := range changes {
			times := ""
			if change.Count > 1 {
				times = fmt.Sprintf(", %d times", change.Count)
			}
			c.printOut(fmt.Sprintf("%s %s%s: %s -> %s\n", change.Op, named(change.Target), times, change.Old.Brief(), change.New.Brief()))
		}
		fmt.Fprintf(c.out, "%d operations recorded: %d decided differently%s\n", len(all[0]), len(changes), remainder(unknown, left))
	}
	if err == nil && (len(changes) > 0 || broken) {
		err = &exitError{code: exitRaised}
	}
	return err
}
