package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"cellblock/policy"
	"cellblock/policy/audit"
)

// denial is what a session attempted and the policy does not allow, all times
// together.
type denial struct {
	Op       string    `json:"op"`
	Target   string    `json:"target"`
	Decision string    `json:"decision"`
	Rule     string    `json:"rule"`
	Reason   string    `json:"reason"`
	Source   string    `json:"source"`
	Count    int64     `json:"count"`
	Last     time.Time `json:"last"`
	Cell     int       `json:"cell,omitempty"`
	Line     string    `json:"line,omitempty"`
	Nearest  []string  `json:"nearest,omitempty"` // where the same thing is allowed
	Change   string    `json:"change,omitempty"`  // the rule that would allow it
}

func newViolations(c *console) *cobra.Command {
	var (
		session string
		asJSON  bool
		number  int
	)
	cmd := &cobra.Command{
		Use:   "violations [--session NAME|DIR|FILE]",
		Short: "Print what a session attempted outside its policy, and what to change",
		Args:  atMost(0),
	}
	cmd.Flags().StringVar(&session, "session", "", "a session's name, its directory, or the file of its record (default: the newest)")
	cmd.Flags().IntVarP(&number, "number", "n", 20, "how many, the latest last")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line each")
	cmd.RunE = func(_ *cobra.Command, _ []string) error {
		path, err := logOf(session)
		if err != nil {
			return err
		}
		found, broken, err := denials(path)
		if err != nil {
			return err
		}
		if n := len(found) - max(number, 0); n > 0 {
			found = found[n:]
		}
		for _, d := range found {
			if asJSON {
				if err := c.printJSON(d); err != nil {
					return err
				}
				continue
			}
			c.printOut(d.text())
		}
		if len(found) == 0 && !asJSON {
			c.printOut(fmt.Sprintf("nothing outside the policy in %s\n", path))
		}
		if broken > 0 {
			c.say("%s: line %d is not a record; 'cellblock audit verify' says more", path, broken)
		}
		return nil
	}
	return cmd
}

// logOf finds the record that --session means.
func logOf(session string) (string, error) {
	if session == "" {
		return newest()
	}
	if info, err := os.Stat(session); err == nil && info.Mode().IsRegular() {
		return session, nil
	}
	dir := session
	if abs, err := filepath.Abs(session); err == nil {
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			dir = real
		}
	}
	for _, path := range logs() {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		for e, err := range audit.Read(f) {
			if err == nil && (e.Record.Session == session || e.Record.Facts["directory"] == dir) {
				f.Close()
				return path, nil
			}
			break
		}
		f.Close()
	}
	return "", fmt.Errorf("session %q: no record in %s has this name or directory", session, orElse(auditDir(), "a home directory, which there is none of"))
}

// denials gathers what a log says was not allowed, in the order of the last time.
func denials(path string) (found []*denial, broken int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	type key struct{ op, target, decision, rule string }
	seen := map[key]*denial{}
	for e, err := range audit.Read(f) {
		switch {
		case errors.Is(err, audit.ErrTorn):
			continue // a writer at work
		case errors.Is(err, audit.ErrNoRecord), errors.Is(err, audit.ErrLineTooLong):
			broken = e.Line
			continue
		case err != nil:
			return nil, 0, err
		}
		r := e.Record
		if !r.Denial() {
			continue
		}
		k := key{r.Op, r.Target, r.Decision, r.Rule}
		d := seen[k]
		if d == nil {
			d = &denial{Op: r.Op, Target: r.Target, Decision: r.Decision, Rule: r.Rule, Reason: r.Reason, Source: string(r.Source)}
			seen[k] = d
			d.Change = change(r)
		}
		d.Count += r.Times()
		d.Last, d.Cell = r.Time, r.Cell
		if line := r.Facts["line"]; line != nil {
			d.Line = fmt.Sprint(line)
		}
		if nearest, ok := r.Facts["nearest"].([]any); ok {
			d.Nearest = nil
			for _, n := range nearest {
				d.Nearest = append(d.Nearest, fmt.Sprint(n))
			}
		}
	}
	for _, d := range seen {
		found = append(found, d)
	}
	slices.SortFunc(found, func(a, b *denial) int {
		if c := a.Last.Compare(b.Last); c != 0 {
			return c
		}
		return strings.Compare(a.Op+a.Target, b.Op+b.Target)
	})
	return found, broken, nil
}

// change is the rule of a policy that would allow what a record tells; empty
// where no rule can be told.
func change(r audit.Record) string {
	if r.Rule == "net.unlisted" && r.Op == string(policy.Connect) {
		if host, port, err := net.SplitHostPort(r.Target); err == nil {
			return fmt.Sprintf("{host: %q, port: %s, reason: …}", host, port)
		}
	}
	at := audit.Unescape(r.Target)
	if !strings.HasPrefix(at, "/") || r.Source == audit.SourceHost || !utf8.ValidString(at) {
		return ""
	}
	access := "write"
	switch kind := policy.ParseKind(r.Op); kind {
	case policy.Read:
		access = "read"
	case policy.Exec, policy.Load:
		access = "exec"
	default:
		// A name is made and removed in its directory. Where nothing is now, a rule for the
		// name itself would have nothing to stand on.
		_, err := os.Lstat(at)
		if err != nil || slices.Contains([]policy.OpKind{policy.Create, policy.Mkdir, policy.Remove, policy.Rmdir, policy.Rename, policy.RenameFrom,
			policy.RenameTo, policy.Link, policy.Symlink}, kind) {
			at = filepath.Dir(at)
		}
	}
	return fmt.Sprintf("{path: %q, access: [%s], effect: allow, reason: …}", at, access)
}

func (d *denial) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s", named(d.Decision), named(d.Op), orElse(named(d.Target), "(several targets)"))
	if d.Count > 1 {
		fmt.Fprintf(&b, ", %d times", d.Count)
	}
	if d.Cell > 0 {
		fmt.Fprintf(&b, ", last in cell %d", d.Cell)
	}
	if d.Line != "" {
		fmt.Fprintf(&b, ", line %s", d.Line)
	}
	fmt.Fprintf(&b, "\n    because of rule %s: %s\n", named(d.Rule), named(d.Reason))
	if len(d.Nearest) > 0 {
		fmt.Fprintf(&b, "    %s %s\n", nearest(d.Op), strings.Join(d.Nearest, ", "))
	}
	if d.Change != "" {
		beside := "under net.allow"
		if strings.HasPrefix(d.Target, "/") {
			beside = "(a rule that denies the same path wins)"
		}
		fmt.Fprintf(&b, "    the rule that allows it: %s %s\n", d.Change, beside)
	}
	return b.String()
}
