package audit

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"cellblock/policy"
)

// Run is what the record of a session's start says of it: the variables with which
// a policy is compiled for it. A field that the record lacks, or that cannot be
// what it says, is empty.
type Run struct {
	Session   string      `json:"session"`
	Directory string      `json:"directory"` // absolute and clean
	Home      string      `json:"home"`      // absolute and clean
	State     []string    `json:"state,omitempty"`
	Mode      policy.Mode `json:"mode"`
	Policy    string      `json:"policy"` // the first 16 digits of the policy's digest
}

// Operation is something that a policy can be asked about and that a record tells,
// all its occurrences in one run together.
type Operation struct {
	Run      int    `json:"-"`    // index in Recording.Runs
	Line     int64  `json:"line"` // of the first record
	Op       string `json:"op"`
	Target   string `json:"target"`
	Program  string `json:"program,omitempty"` // of the first
	Cell     int    `json:"cell,omitempty"`    // of the first
	Source   Source `json:"source"`
	Decision string `json:"recorded"` // decision
	Rule     string `json:"rule,omitempty"`
	Count    int64  `json:"count"`

	Creates  bool   `json:"creates,omitempty"`  // policy.Op.Creates, in any of them
	Replaces bool   `json:"replaces,omitempty"` // policy.Op.Replaces, in any of them
	Proto    string `json:"proto,omitempty"`    // policy.NetOp.Proto
	Addr     string `json:"addr,omitempty"`     // policy.NetOp.Addr, of a name
	Role     string `json:"role,omitempty"`     // policy.ToolOp.Role; empty for the sandbox
	Purpose  string `json:"purpose,omitempty"`  // policy.ToolOp.Purpose; empty for interactive
}

// Recording is what logs tell of operations. Only what was recorded is in it: a
// session records what its policy does not allow, and calls to the launcher.
type Recording struct {
	Runs       []Run
	Operations []Operation // in the order of their first records
	// Left counts the operations whose records do not tell them apart any more, and
	// those beyond MaxOperations.
	Left int64
	// Broken are lines that are no records; Verify says more.
	Broken []int64
}

// MaxOperations bounds how many different operations of one log are kept.
const MaxOperations = 100_000

// Facts of records about operations.
const (
	FactCreates  = "creates"  // true: the file was made first
	FactReplaces = "replaces" // true: something else lost its name to it
	FactProto    = "proto"    // udp
	FactAddr     = "addr"     // that a name led to, where it was denied for that
	FactCall     = "call"     // of a host call and its return: which one
	FactRole     = "role"     // of who made it; the sandbox where nothing is said
	FactPurpose  = "purpose"  // of its cell; interactive where nothing is said
)

// Operations reads a log for what a policy can be asked about. The log may be of any
// origin: nothing in it is believed to be what it should be. The error is the
// reader's, or says that the log tells of operations and of no session.
func Operations(r io.Reader) (Recording, error) {
	type key struct {
		run                           int
		op, target, decision, program string
		role, purpose                 string
		proto, addr                   string
		source                        Source
	}
	var out Recording
	seen := map[key]int{}
	for e, err := range Read(r) {
		switch {
		case errors.Is(err, ErrTorn):
			continue // a writer at work
		case errors.Is(err, ErrNoRecord), errors.Is(err, ErrLineTooLong):
			if len(out.Broken) < maxFindings {
				out.Broken = append(out.Broken, e.Line)
			}
			continue
		case err != nil:
			return out, err
		}
		record := e.Record
		if record.Source == SourceKernel && (record.Op == OpSessionStart || record.Op == OpWorkerStart && len(out.Runs) == 0) {
			out.Runs = append(out.Runs, runOf(record))
			continue
		}
		if !record.operation() {
			continue
		}
		if len(out.Runs) == 0 {
			return out, fmt.Errorf("line %d tells of an operation, and no record before it of a session's start", e.Line)
		}
		o := Operation{Run: len(out.Runs) - 1, Line: e.Line, Op: record.Op, Target: record.Target, Program: record.Program, Cell: record.Cell,
			Source: record.Source, Decision: record.Decision, Rule: record.Rule, Count: record.Times()}
		o.Creates, _ = record.Facts[FactCreates].(bool)
		o.Replaces, _ = record.Facts[FactReplaces].(bool)
		o.Proto, _ = record.Facts[FactProto].(string)
		o.Addr, _ = record.Facts[FactAddr].(string)
		o.Role, _ = record.Facts[FactRole].(string)
		o.Purpose, _ = record.Facts[FactPurpose].(string)
		if o.Target == "" || o.Op == OpOther || strings.HasPrefix(o.Target, "(") {
			out.Left += o.Count
			continue
		}
		k := key{o.Run, o.Op, o.Target, o.Decision, o.Program, o.Role, o.Purpose, o.Proto, o.Addr, o.Source}
		if at, ok := seen[k]; ok {
			known := &out.Operations[at]
			known.Count += o.Count
			known.Creates, known.Replaces = known.Creates || o.Creates, known.Replaces || o.Replaces
			continue
		}
		if len(out.Operations) >= MaxOperations {
			out.Left += o.Count
			continue
		}
		seen[k] = len(out.Operations)
		out.Operations = append(out.Operations, o)
	}
	return out, nil
}

// operation reports whether a policy decided what the record tells.
func (r Record) operation() bool {
	switch r.Op {
	case OpHostCall:
		// What was let through, and is no matter of the policy's, has no rule; what the
		// door itself refuses has one of its own.
		return (r.Denial() || r.Decision == Allowed && r.Rule != "") && !strings.HasPrefix(r.Rule, "host.")
	case OpOther:
		return true
	case OpShadowCarry, OpShadowDrop:
		return false // somebody on the host has decided
	}
	return r.Denial() && r.Source != SourceKernel
}

func runOf(r Record) Run {
	run := Run{Session: r.Session, Policy: r.Policy, Directory: placeOf(r.Facts["directory"]), Home: placeOf(r.Facts["home"])}
	mode, _ := r.Facts["mode"].(string)
	if mode, err := policy.ParseMode(mode); err == nil {
		run.Mode = mode
	}
	list, _ := r.Facts["state"].([]any)
	for _, s := range list {
		if p := placeOf(s); p != "" && len(run.State) < 16 {
			run.State = append(run.State, p)
		}
	}
	return run
}

// placeOf is a directory that a record names; empty where the value cannot be one.
func placeOf(v any) string {
	p, ok := v.(string)
	if !ok || !strings.HasPrefix(p, "/") || p == "/" || path.Clean(p) != p || len(p) > 4096 || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' }) {
		return ""
	}
	return p
}

// UndecidableError says why a recorded operation cannot be decided again.
type UndecidableError struct{ Why string }

func (e *UndecidableError) Error() string { return "cannot be told: " + e.Why }

// Decide says what a policy decides on what was recorded. The error is an
// *UndecidableError where the record does not hold what the policy asks for.
func (o Operation) Decide(p policy.Policy) (policy.Decision, error) {
	cannot := func(why string) (policy.Decision, error) { return policy.Decision{}, &UndecidableError{why} }
	switch {
	case strings.Contains(o.Target, "[masked "):
		return cannot("a secret in it was masked")
	case len(o.Target) >= maxTarget-64 && strings.HasSuffix(o.Target, " bytes more"):
		return cannot("its end was cut off")
	}
	if o.Op == OpHostCall {
		op := policy.ToolOp{Tool: o.Target, Role: policy.Roles[0], Purpose: policy.Purposes[0]}
		if o.Role != "" {
			op.Role = o.Role
		}
		if o.Purpose != "" {
			op.Purpose = o.Purpose
		}
		if p.Tools.Looks(op) {
			return cannot("the arguments of host calls are not recorded, and the policy looks at them")
		}
		return p.DecideTool(op, nil), nil
	}
	if op, ok, err := o.NetOp(); err != nil {
		return cannot(err.Error())
	} else if ok {
		return p.DecideNet(op), nil
	}
	op, ok := o.FileOp()
	if !ok {
		return cannot("it has no absolute path")
	}
	return p.Decide(op), nil
}

// FileOp is the operation on files that o tells, with the bytes of its path; false
// where it tells another one, or has no absolute path.
func (o Operation) FileOp() (policy.Op, bool) {
	if o.Op == OpHostCall || o.Op == string(policy.Connect) || o.Op == string(policy.Bind) || o.Op == string(policy.Lookup) || !strings.HasPrefix(o.Target, "/") {
		return policy.Op{}, false
	}
	return policy.Op{Kind: policy.ParseKind(o.Op), Path: Unescape(o.Target), Creates: o.Creates, Replaces: o.Replaces}, true
}

// NetOp is the operation on the network that o tells; false where it tells another
// one. What the launcher was asked for it would have done itself.
func (o Operation) NetOp() (policy.NetOp, bool, error) {
	op := policy.NetOp{Kind: policy.NetKind(o.Op), Proto: o.Proto, Outward: o.Source == SourceHost}
	switch op.Kind {
	case policy.Lookup:
		op.Host = o.Target
		return op, true, nil
	case policy.Connect, policy.Bind:
	default:
		return policy.NetOp{}, false, nil
	}
	at := strings.LastIndexByte(o.Target, ':')
	port, err := strconv.ParseUint(o.Target[at+1:], 10, 16)
	if at < 1 || err != nil {
		return policy.NetOp{}, true, errors.New("its target is no host and port")
	}
	op.Port = int(port)
	if addr, err := netip.ParseAddrPort(o.Target); err == nil {
		op.Addr = addr.Addr()
		return op, true, nil
	}
	op.Host, op.Outward = o.Target[:at], true // a connection by name is the launcher's
	if addr, err := netip.ParseAddr(o.Addr); err == nil {
		op.Addr = addr
	}
	return op, true, nil
}

// Plain reports whether the target is a text, which a document can name.
func (o Operation) Plain() bool {
	name := Unescape(o.Target)
	return utf8.ValidString(name) && strings.IndexByte(name, 0) < 0
}
