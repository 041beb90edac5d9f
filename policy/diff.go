package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// Change is something that two policies do not decide alike.
type Change struct {
	What string `json:"what"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// Diff lists what two policies decide differently. Decisions can differ only at
// what their rules name, so it asks both about each of these and about something
// beneath it. It is pure.
func Diff(old, new Policy) []Change {
	d := &differ{old: old, new: new}
	d.paths()
	d.network()
	d.tools()
	d.rest()
	return d.changes
}

type differ struct {
	old, new Policy
	changes  []Change
}

func (d *differ) add(what, old, new string) {
	if old != new {
		d.changes = append(d.changes, Change{What: what, Old: old, New: new})
	}
}

// Brief is allow, confirm (once approved), deny (Linux refuses) or report (done, and reported), and the rule.
func (d Decision) Brief() string {
	switch {
	case d.Allowed() && slices.Contains(d.Obligations, ObligeConfirm):
		return "confirm (" + d.Rule + ")"
	case d.Allowed():
		return "allow (" + d.Rule + ")"
	case d.Enforced:
		return "deny (" + d.Rule + ")"
	}
	return "report (" + d.Rule + ")"
}

// outcome is what a change is told by: two rules may say the same.
func (d Decision) outcome() string {
	return fmt.Sprint(d.Effect, d.Enforced && !d.Allowed(), d.Obligations)
}

var diffKinds = []OpKind{Read, Write, Create, Remove, RenameFrom, Chmod, Exec}

func (d *differ) paths() {
	named := map[string]bool{"/": true, "/home": true}
	for _, p := range []Policy{d.old, d.new} {
		for _, rules := range [][]Rule{p.Allow, p.Deny, p.Private, p.Sealed, p.Needs} {
			for _, r := range rules {
				named[r.Path] = true
				for _, pin := range r.Pins {
					named[pin] = true
				}
			}
		}
	}
	var paths []string
	for p := range named {
		paths = append(paths, p, strings.TrimSuffix(p, "/")+"/…")
	}
	sort.Strings(paths)
	last := map[[2]string]string{} // outcomes of a directory, so that its inside is told only where it differs
	for _, p := range paths {
		kinds := map[[2]string][]string{}
		var order [][2]string
		inside, _ := strings.CutSuffix(p, "/…")
		for _, k := range diffKinds {
			a, b := d.old.Decide(Op{Kind: k, Path: p}), d.new.Decide(Op{Kind: k, Path: p})
			if a.outcome() == b.outcome() {
				continue
			}
			key := [2]string{a.Brief(), b.Brief()}
			if inside != p && last[[2]string{inside, string(k)}] == key[0]+key[1] {
				continue
			}
			last[[2]string{p, string(k)}] = key[0] + key[1]
			if kinds[key] == nil {
				order = append(order, key)
			}
			kinds[key] = append(kinds[key], string(k))
		}
		for _, key := range order {
			d.add(strings.Join(kinds[key], ",")+" "+p, key[0], key[1])
		}
	}
}

func (d *differ) network() {
	d.add("network", string(d.old.Network.Mode), string(d.new.Network.Mode))
	var ops []NetOp
	for _, p := range []Policy{d.old, d.new} {
		for _, r := range p.Network.Allow {
			ports := r.Ports
			if len(ports) == 0 {
				ports = Ports{443}
			}
			for _, port := range ports {
				op := NetOp{Kind: Connect, Host: strings.Replace(r.Host, "*", "any", 1), Port: port, Outward: true}
				if network, ok := r.network(); ok {
					op.Host = network.Addr().String()
				}
				ops = append(ops, op)
			}
		}
	}
	ops = append(ops, NetOp{Kind: Connect, Host: "unlisted.example", Port: 443, Outward: true},
		NetOp{Kind: Connect, Host: "unlisted.example", Addr: netip.MustParseAddr("169.254.169.254"), Port: 80, Outward: true})
	seen := map[string]bool{}
	for _, op := range ops {
		what := fmt.Sprintf("connect %s:%d", op.Host, op.Port)
		if op.Addr.IsValid() {
			what += " at " + op.Addr.String()
		}
		if a, b := d.old.DecideNet(op), d.new.DecideNet(op); a.outcome() != b.outcome() && !seen[what] {
			seen[what] = true
			d.add(what, a.Brief(), b.Brief())
		}
	}
	inbound := func(p Policy) string {
		var out []string
		for _, r := range p.Network.Inbound {
			out = append(out, fmt.Sprintf("%s=%d", r.Name, r.Port))
		}
		slices.Sort(out)
		return orText(strings.Join(out, " "), "none")
	}
	d.add("inbound ports", inbound(d.old), inbound(d.new))
}

func (d *differ) tools() {
	about := func(p Policy, tool string) (rules []ToolRule) {
		for _, r := range p.Tools.Rules {
			if r.Tool == tool {
				r.ID, r.Line = "", 0
				rules = append(rules, r)
			}
		}
		return rules
	}
	names := map[string]bool{}
	for _, p := range []Policy{d.old, d.new} {
		for _, r := range p.Tools.Rules {
			names[r.Tool] = true
		}
	}
	var sorted []string
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range append(sorted, "unlisted") {
		op := ToolOp{Tool: strings.Replace(name, "*", "any", 1), Role: Roles[0], Purpose: Purposes[0]}
		a, b := d.old.Tools.decide(op), d.new.Tools.decide(op)
		if a.outcome() != b.outcome() {
			d.add("tool "+name, a.Brief(), b.Brief())
			continue
		}
		x, _ := json.Marshal(about(d.old, name))
		y, _ := json.Marshal(about(d.new, name))
		if !bytes.Equal(x, y) {
			d.add("tool "+name, string(x), string(y))
		}
	}
	x, _ := json.Marshal(d.old.Tools.Rego)
	y, _ := json.Marshal(d.new.Tools.Rego)
	d.add("tools.rego", string(x), string(y))
	d.add("modules of tools.rego", orText(strings.Join(d.old.Rego, " "), "none"), orText(strings.Join(d.new.Rego, " "), "none"))
}

func (d *differ) rest() {
	for _, l := range limitTable {
		show := func(p Policy) string {
			if v := *l.field(&p.Limits); v != 0 {
				return fmt.Sprint(v)
			}
			return "none"
		}
		d.add("limit "+l.name+", "+l.unit, show(d.old), show(d.new))
	}
	list := func(names []string) string {
		names = slices.Clone(names)
		slices.Sort(names)
		return orText(strings.Join(names, " "), "none")
	}
	d.add("variables passed", list(d.old.Env.Pass), list(d.new.Env.Pass))
	d.add("variables set", list(d.old.Env.Set), list(d.new.Env.Set))
}
