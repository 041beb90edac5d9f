package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/kernel/delegate"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// explanation is what policy explain prints with --json.
type explanation struct {
	Policy    string                     `json:"policy"`
	Operation string                     `json:"operation"`
	Argument  string                     `json:"argument"`
	Modes     map[string]policy.Decision `json:"modes"`
}

const explainLong = `Say what a policy decides on one operation, by which rule and why, in each mode.

OP and ARG are an operation on files and a path:
  read, exec, write, create, truncate, mkdir, remove, rmdir, rename, link, symlink,
  chmod, chown, utime, xattr, rename-from, rename-to
or a connection and HOST:PORT, or a port:
  connect, bind
or a look-up and the name that is looked up:
  lookup
or a host call and its name, with its arguments as JSON after it:
  tool

A path is followed through symbolic links as on this host. For connect, HOST is
asked for at the way out of the session; HOST@ADDRESS:PORT is a name that leads to
an address.

With --last the operation is the latest that a session's record tells as not allowed;
--session is then the session's name, its directory, or the file of its record, and
the newest record without it.

The exit code is 0 when the operation is allowed and 1 when it is denied.`

func newPolicyExplain(c *console) *cobra.Command {
	var (
		flags         sessionFlags
		asJSON        bool
		role, purpose string
		calls         int64
		last          bool
	)
	cmd := &cobra.Command{
		Use:   "explain FILE OP ARG [ARGUMENTS] | FILE --last",
		Short: "Say which rule decides an operation, and why, in each mode",
		Long:  explainLong,
		Example: `  cellblock policy explain default write /etc/hosts
  cellblock policy explain mine.yaml connect pypi.org:443
  cellblock policy explain mine.yaml tool files.read '{"path": "/srv/x"}'
  cellblock policy explain mine.yaml --last`,
		Args: func(cmd *cobra.Command, args []string) error {
			if last {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.RangeArgs(3, 4)(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "explain the latest denial of a session")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&role, "role", policy.Roles[0], "of a host call: who makes it, "+strings.Join(policy.Roles, " or "))
	cmd.Flags().StringVar(&purpose, "purpose", policy.Purposes[0], "of a host call: what for, "+strings.Join(policy.Purposes, ", "))
	cmd.Flags().Int64Var(&calls, "calls", 0, "of a host call: how many the session has made before")
	flags.addSession(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if last {
			var err error
			if args, err = c.lastDenial(cmd, &flags, args[0]); err != nil {
				return err
			}
		}
		options, err := flags.options(cmd)
		if err != nil {
			return err
		}
		doc, err := loadPolicy(args[0])
		if err != nil {
			return err
		}
		options.Policy = &doc
		var rego policy.Evaluator
		if args[1] == "tool" && doc.Tools.Rego != nil {
			asked, err := delegate.Start(regoProgram(), *doc.Tools.Rego)
			if err != nil {
				return fmt.Errorf("policy %s: tools.rego: %w", doc.Name, err)
			}
			defer asked.Close()
			rego = asked
		}
		ask, argument, err := question(args[1:], role, purpose, calls, rego)
		if err != nil {
			return usage(cmd, err)
		}
		said := explanation{Policy: doc.Name, Operation: args[1], Argument: argument, Modes: map[string]policy.Decision{}}
		denied := false
		for _, mode := range policy.Available() {
			options.Mode = mode
			p, _, err := kernel.Policy(options)
			if err != nil {
				return err
			}
			d := ask(p)
			said.Modes[string(mode)] = d
			denied = denied || !d.Allowed()
		}
		if asJSON {
			err = c.printJSON(said)
		} else {
			c.printExplanation(doc, said)
		}
		if err == nil && denied {
			err = &exitError{code: exitRaised}
		}
		return err
	}
	return cmd
}

// lastDenial is what a session was denied last, as the words of a command line about
// this policy; the flags are then those of that session.
func (c *console) lastDenial(cmd *cobra.Command, flags *sessionFlags, file string) ([]string, error) {
	name := ""
	if cmd.Flags().Changed("session") {
		name = flags.SessionDir
	}
	path, err := logOf(name)
	if err != nil {
		return nil, err
	}
	found, _, err := denials(path)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s tells of nothing that was not allowed", path)
	}
	record, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer record.Close()
	recording, err := audit.Operations(record)
	if err != nil {
		return nil, fmt.Errorf("audit %s: %w", path, err)
	}
	if runs := recording.Runs; len(runs) > 0 {
		flags.SessionDir = runs[len(runs)-1].Directory
	}
	d := found[len(found)-1]
	op := d.Op
	if d.Source == string(audit.SourceHost) && op != string(policy.Connect) && op != string(policy.Bind) {
		op = "tool"
	} else if strings.HasPrefix(d.Target, "/") {
		op = string(policy.ParseKind(op))
	}
	return []string{file, op, audit.Unescape(d.Target)}, nil
}

// question turns the words of a command line into what a policy is asked.
func question(words []string, role, purpose string, calls int64, rego policy.Evaluator) (ask func(policy.Policy) policy.Decision, argument string, err error) {
	name, argument := words[0], words[1]
	if name != "tool" && len(words) > 2 {
		return nil, "", fmt.Errorf("argument %q: only a host call has arguments", words[2])
	}
	switch name {
	case "tool":
		op := policy.ToolOp{Tool: argument, Role: role, Purpose: purpose, Calls: calls}
		if len(words) > 2 {
			op.Arguments = json.RawMessage(words[2])
		}
		return func(p policy.Policy) policy.Decision { return p.DecideTool(op, rego) }, argument, nil
	case "bind":
		port, err := strconv.Atoi(argument)
		if err != nil || port < 1 || port > 65535 {
			return nil, "", fmt.Errorf("port %q: want a number from 1 to 65535", argument)
		}
		return func(p policy.Policy) policy.Decision {
			return p.DecideNet(policy.NetOp{Kind: policy.Bind, Port: port})
		}, argument, nil
	case "lookup":
		return func(p policy.Policy) policy.Decision {
			return p.DecideNet(policy.NetOp{Kind: policy.Lookup, Host: argument})
		}, argument, nil
	case "connect":
		op := policy.NetOp{Kind: policy.Connect, Outward: true}
		host, port, err := net.SplitHostPort(argument)
		if err == nil {
			op.Port, err = strconv.Atoi(port)
		}
		if err != nil {
			return nil, "", fmt.Errorf("target %q: want HOST:PORT, with [ ] around an IPv6 address", argument)
		}
		op.Host = host
		if name, addr, ok := strings.Cut(host, "@"); ok {
			op.Host = name
			if op.Addr, err = netip.ParseAddr(addr); err != nil {
				return nil, "", fmt.Errorf("target %q: %q is no address", argument, addr)
			}
		}
		return func(p policy.Policy) policy.Decision {
			d := p.DecideNet(op)
			own := op
			own.Outward = false
			// Loopback is the session's own, unless a rule opens that of the host.
			if o := p.DecideNet(own); !d.Allowed() && o.Allowed() && op.Addr == (netip.Addr{}) {
				return o
			}
			return d
		}, argument, nil
	}
	kind := policy.OpKind(name)
	if !kind.Known() {
		return nil, "", fmt.Errorf("operation %q: there is none of this name", name)
	}
	if link := ofWhoAsks(argument); link != "" {
		return nil, "", fmt.Errorf("path %q leads through %s, which is another for each process: give the path that it has in the session", argument, link)
	}
	path, err := absolute(argument)
	if err != nil {
		return nil, "", err
	}
	return func(p policy.Policy) policy.Decision { return p.Decide(policy.Op{Kind: kind, Path: path}) }, path, nil
}

// ofWhoAsks is the link on the way of a path that leads to the process which follows it, such
// as /proc/self of /dev/stdout (proc(5)); empty for none.
func ofWhoAsks(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	for range 40 { // links, which is as many as Linux follows
		link, rest, target := firstLink(path)
		switch {
		case link == "":
			return ""
		case link == "/proc/self" || link == "/proc/thread-self":
			return link
		case !filepath.IsAbs(target):
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, rest)
	}
	return ""
}

// firstLink is the first symbolic link on a path, what follows it, and what it says.
func firstLink(path string) (link, rest, target string) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if target, err := os.Readlink(path[:i]); err == nil {
			return path[:i], path[i:], target
		}
	}
	return "", "", ""
}

func (c *console) printExplanation(doc policy.Document, said explanation) {
	kind := policy.OpKind(said.Operation)
	fmt.Fprintf(c.out, "%s %s\n", said.Operation, named(said.Argument))
	for _, mode := range policy.Available() {
		fmt.Fprintf(c.out, "  %-8s %s\n", mode, outcome(mode, said.Modes[string(mode)], kind.Known() && kind.Changes()))
	}
	d := said.Modes[string(policy.Enforce)]
	where := ""
	if d.Line > 0 {
		where = fmt.Sprintf(" (%s:%d)", doc.File, d.Line)
	}
	fmt.Fprintf(c.out, "rule %s%s: %s\n", d.Rule, where, d.Reason)
	if len(d.Nearest) > 0 {
		fmt.Fprintf(c.out, "allowed: %s\n", strings.Join(d.Nearest, ", "))
	}
	for _, o := range d.Obligations {
		fmt.Fprintf(c.out, "then: %s\n", o)
	}
}

// outcome is what becomes of an operation in a mode.
func outcome(mode policy.Mode, d policy.Decision, changes bool) string {
	switch {
	case d.Allowed() && d.Private:
		return "done, in a place that is gone with the session"
	case d.Allowed():
		return "done"
	case d.Enforced:
		return "refused"
	case mode == policy.Off:
		return "done, not reported"
	case mode == policy.Shadow && changes:
		return "done in the session's layer, and reported as one that would be denied"
	}
	return "done, and reported as one that would be denied"
}
