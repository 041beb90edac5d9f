package kernel

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"cellblock/jail/observe"
	"cellblock/kernel/proxy"
	"cellblock/kernel/wire"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// watch keeps what a worker and its descendants have asked Linux for against the
// policy, and the launcher for on their network, until a reply takes it.
type watch struct {
	rules atomic.Pointer[policy.Policy] // stock has others than the session that gets it
	names *proxy.Names                  // of a session whose network the launcher serves; nil for others

	mu    sync.Mutex
	found map[sightKey]*sighting
	order []*sighting
}

// sighting is one operation that the policy does not allow, and how often.
type sighting struct {
	op       policy.OpKind
	target   string
	decision policy.Decision
	count    int
	source   audit.Source
	program  string // of the first; empty where the launcher was asked
	pid      int    // of that program, on the host

	creates, replaces bool // in any of them
	proto             string
	addr              netip.Addr // that a name led to
}

type sightKey struct {
	op     policy.OpKind
	target string
}

// maxSightings is how many different ones are told apart until they are taken;
// further ones are counted by their operation.
const maxSightings = 1000

const furtherPaths = "(further paths)"

// told judges one system call. It runs while the caller waits.
func (w *watch) told(e observe.Event) {
	for _, op := range e.Ops {
		if op.Opens {
			// What is there is read. Where that is denied nobody is told whether it is.
			look := op
			look.Kind = observe.Read
			if _, decision := w.judge(look); !decision.Allowed() {
				op = look
			}
		}
		target, decision := w.judge(op)
		if op.Absent && decision.Unlisted() {
			var there bool
			if op, there = onHost(op); !there {
				continue
			}
			target, decision = w.judge(op)
		} else if op.Absent && !w.rules.Load().Hidden(op.Path) {
			continue
		}
		if decision.Allowed() {
			continue
		}
		if decision.Enforced && e.Unguarded(op) {
			e.Refuse() // Landlock has no right of sockets before Linux 7.1, and allows more than a rule may deny
		}
		if !e.Waits() {
			return
		}
		w.mu.Lock()
		s := w.add(sightKey{policy.OpKind(op.Kind), target}, decision, audit.SourceOS, &e)
		s.creates, s.replaces = s.creates || op.Creates, s.replaces || op.Replaces
		if op.Datagram {
			s.proto = "udp"
		}
		w.mu.Unlock()
	}
}

// refused keeps what the launcher was asked for on the session's network and has
// refused.
func (w *watch) refused(op policy.NetOp, d policy.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.add(sightKey{policy.OpKind(op.Kind), proxy.Target(op)}, d, audit.SourceHost, nil)
	if op.Host != "" {
		s.addr = op.Addr
	}
}

func (w *watch) judge(op observe.Op) (target string, d policy.Decision) {
	switch op.Kind {
	case observe.Connect, observe.Bind:
		proto := "tcp"
		if op.Datagram {
			proto = "udp"
		}
		asked := policy.NetOp{Kind: policy.NetKind(op.Kind), Proto: proto, Addr: op.Addr.Addr(), Port: int(op.Addr.Port())}
		if w.names != nil && op.Kind == observe.Connect {
			if name, ok := w.names.Of(asked.Addr); ok {
				asked.Host, asked.Addr, asked.Outward = name, netip.Addr{}, true
				return proxy.Target(asked), w.rules.Load().DecideNet(asked)
			}
		}
		return op.Addr.String(), w.rules.Load().DecideNet(asked)
	}
	return op.Path, w.rules.Load().Decide(policy.Op{Kind: policy.OpKind(op.Kind), Path: op.Path, Creates: op.Creates, Replaces: op.Replaces})
}

// add counts an operation of a system call, or of none; the caller holds the lock.
func (w *watch) add(key sightKey, d policy.Decision, source audit.Source, by *observe.Event) *sighting {
	if s := w.found[key]; s != nil {
		s.count++
		return s
	}
	if len(w.order) >= maxSightings {
		key.target = furtherPaths
		if s := w.found[key]; s != nil {
			s.count++
			return s
		}
	}
	if w.found == nil {
		w.found = map[sightKey]*sighting{}
	}
	s := &sighting{op: key.op, target: key.target, decision: d, count: 1, source: source}
	if by != nil {
		s.program, s.pid = by.Program(), by.PID()
	}
	w.found[key] = s
	w.order = append(w.order, s)
	return s
}

// take returns what was seen since the last call, in the order of the first of each.
func (w *watch) take() []*sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.order
	w.found, w.order = nil, nil
	return taken
}

// seen is what the launcher reports of a worker since the last report: what Linux
// was asked for, and from where in the cell as far as Python's hook knows. What the
// hook saw counts by itself only where Linux tells nobody: the hook knows less of
// what a call will do, and calls the same thing by other names.
func (s *Session) seen(w *worker, hook []wire.Observed) []Violation {
	if s.policy.Mode == policy.Off || w == nil {
		return nil
	}
	var out []Violation
	from := lines(hook)
	denied := s.lookedUp(w, hook)
	sights := w.watch.take()
	if len(sights) == 0 && len(denied) == 0 && len(hook) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	for _, sight := range sights {
		if w.lookups.listed(ctx, s.policy, sight) {
			continue
		}
		v := s.violation(sight.op, sight.target, string(sight.source), sight.decision)
		v.Count, v.Program, v.PID = sight.count, sight.program, sight.pid
		v.creates, v.replaces, v.proto = sight.creates, sight.replaces, sight.proto
		if sight.addr.IsValid() {
			v.addr = sight.addr.String()
		}
		if o := from(sight.op, sight.target); o != nil {
			v.Cell, v.Line = int(o.Cell), int(o.Line)
		}
		out = append(out, v)
	}
	out = append(out, denied...)
	if w.hears {
		return out
	}
	for _, o := range hook {
		if o.Op == string(policy.Lookup) {
			continue
		}
		kind := policy.ParseKind(o.Op)
		d := s.policy.Decide(policy.Op{Kind: kind, Path: o.Path})
		if d.Allowed() {
			continue
		}
		v := s.violation(kind, o.Path, "hook", d)
		v.Count, v.Cell, v.Line = int(max(o.Count, 1)), int(o.Cell), int(o.Line)
		out = append(out, v)
	}
	return out
}

// lines finds what the hook saw of an operation: the same one, or else whatever was
// done to its path first.
func lines(hook []wire.Observed) func(policy.OpKind, string) *wire.Observed {
	same, first := map[sightKey]*wire.Observed{}, map[string]*wire.Observed{}
	for i := len(hook) - 1; i >= 0; i-- {
		o := &hook[i]
		same[sightKey{alike(policy.ParseKind(o.Op)), o.Path}], first[o.Path] = o, o
	}
	return func(k policy.OpKind, path string) *wire.Observed {
		if o := same[sightKey{alike(k), path}]; o != nil {
			return o
		}
		return first[path]
	}
}

func (s *Session) violation(op policy.OpKind, target, source string, d policy.Decision) Violation {
	return Violation{Op: string(op), Path: target, Decision: decided(d), Rule: d.Rule, Reason: d.Reason, Source: source,
		Count: 1, Nearest: d.Nearest, Note: s.layer.note(d, op)}
}

// alike maps kinds that Python's hook does not tell apart to one of them.
func alike(k policy.OpKind) policy.OpKind {
	switch k {
	case policy.RenameFrom, policy.RenameTo:
		return policy.Rename
	case policy.Create:
		return policy.Write
	}
	return k
}
