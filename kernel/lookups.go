package kernel

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"cellblock/kernel/proxy"
	"cellblock/kernel/wire"
	"cellblock/policy"
)

// lookups are the names that Python has asked for in a session with the host's network,
// where a connection is told of by its address alone and the policy lists names. An
// address is taken for that of a listed name when the launcher, looking it up too, gets
// it as well. What cannot be told so is reported by its address: names that children
// and native code look up, those with other addresses at each look-up, and those that
// Python had before.
type lookups struct {
	names []string // on the list, in the order of the first look-up
	known map[string]knownName
	find  func(context.Context, string) ([]netip.Addr, error)
}

type knownName struct {
	addrs []netip.Addr
	until time.Time
}

const (
	maxLookups = 64              // names of one worker
	lookupTime = 2 * time.Second // for all of a report
	lookupTTL  = time.Minute
)

// lookedUp reports the look-ups that the policy would deny, and keeps the others.
func (s *Session) lookedUp(w *worker, hook []wire.Observed) []Violation {
	if s.hasOutlet() {
		return nil // there the launcher is asked itself
	}
	var out []Violation
	for _, o := range hook {
		if o.Op != string(policy.Lookup) {
			continue
		}
		name := proxy.Target(policy.NetOp{Kind: policy.Lookup, Host: o.Path})
		if _, err := netip.ParseAddr(name); err == nil {
			continue // an address is looked up nowhere
		}
		d := s.policy.DecideNet(policy.NetOp{Kind: policy.Lookup, Host: name})
		if d.Allowed() {
			w.lookups.add(name)
			continue
		}
		if inHostsFile(name) {
			continue // under enforce too nobody is asked
		}
		v := s.violation(policy.OpKind(policy.Lookup), name, "hook", d)
		v.Count, v.Cell, v.Line = int(max(o.Count, 1)), int(o.Cell), int(o.Line)
		out = append(out, v)
	}
	return out
}

// inHostsFile reports whether a name is in the hosts file that a session sees.
func inHostsFile(name string) bool {
	if name == hostname {
		return true
	}
	content, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(content)) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(strings.ToLower(line)); len(words) > 1 && slices.Contains(words[1:], name) {
			return true
		}
	}
	return false
}

func (l *lookups) add(name string) {
	if len(l.names) < maxLookups && !slices.Contains(l.names, name) {
		l.names = append(l.names, name)
	}
}

// listed reports whether a connection that the policy denies by its address is one to a
// listed name that was looked up before.
func (l *lookups) listed(ctx context.Context, p policy.Policy, sight *sighting) bool {
	if sight.op != policy.OpKind(policy.Connect) || sight.decision.Rule != "net.unlisted" || len(l.names) == 0 {
		return false
	}
	at, err := netip.ParseAddrPort(sight.target)
	if err != nil {
		return false
	}
	op := policy.NetOp{Kind: policy.Connect, Proto: sight.proto, Addr: at.Addr().Unmap(), Port: int(at.Port())}
	for _, op.Host = range l.names {
		if p.DecideNet(op).Allowed() && slices.Contains(l.addresses(ctx, op.Host), op.Addr) {
			return true
		}
	}
	return false
}

func (l *lookups) addresses(ctx context.Context, name string) []netip.Addr {
	if k, ok := l.known[name]; ok && time.Now().Before(k.until) {
		return k.addrs
	}
	addrs, err := l.find(ctx, name)
	if err != nil {
		addrs = nil // nothing is known then, which is a report too many and not one too few
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	if l.known == nil {
		l.known = map[string]knownName{}
	}
	l.known[name] = knownName{addrs, time.Now().Add(lookupTTL)}
	return addrs
}
