package jail

import (
	"encoding/hex"
	"net/netip"
	"slices"

	"cellblock/jail/plan"
)

// maxSockets bounds what a plan makes of sockets: each is a message of the start.
const maxSockets = 512

func (c *compiler) checkSockets() error {
	list := c.spec.Sockets
	if len(list) > 0 && c.spec.Network != NetNone {
		return &SpecError{"sockets", list[0].Addr.String(), `only a jail with a network of its own has any: want network "none"`}
	}
	if len(c.spec.Local) > 0 && c.spec.Network != NetNone {
		return &SpecError{"local network", c.spec.Local[0].String(), `only a jail with a network of its own has any: want network "none"`}
	}
	for i, p := range c.spec.Local {
		switch {
		case !p.IsValid() || p != p.Masked() || p.Addr().Is4In6():
			return &SpecError{"local network", p.String(), "want a network without bits beyond its length"}
		case slices.Contains(c.spec.Local[:i], p):
			return &SpecError{"local network", p.String(), "stands twice"}
		}
	}
	if len(c.spec.Local) > maxSockets {
		return &SpecError{"local network", c.spec.Local[maxSockets].String(), "too many networks: list fewer"}
	}
	if len(list) > maxSockets {
		return &SpecError{"sockets", list[maxSockets].Addr.String(), "too many sockets: list fewer ports"}
	}
	type key struct {
		network string
		addr    netip.AddrPort
	}
	seen := map[key]bool{}
	for _, s := range list {
		k := key{s.Network, s.Addr}
		switch {
		case s.Network != "tcp" && s.Network != "udp":
			return &SpecError{"socket", s.Network, `want "tcp" or "udp"`}
		case !s.Addr.IsValid() || s.Addr.Port() == 0 || s.Addr.Addr().Zone() != "" || s.Addr.Addr().Is4In6():
			return &SpecError{"socket", s.Addr.String(), "want an address without zone, and a port"}
		case seen[k]:
			return &SpecError{"socket", s.Addr.String(), "stands twice"}
		}
		seen[k] = true
	}
	return nil
}

// local are routes of the kind that the jail's own loopback has.
func (c *compiler) local() {
	for _, p := range c.spec.Local {
		c.stage(plan.Step{Op: plan.OpLocal, Path: p.Addr().String(), Data: hex.EncodeToString(p.Addr().AsSlice()), Num: uint64(p.Bits()),
			Reason: "connections to it stay inside, where the launcher takes them"})
	}
}

// sockets are made once lo is up and before any right is given up: ports below 1024
// need one.
func (c *compiler) sockets() {
	for _, s := range c.spec.Sockets {
		c.stage(plan.Step{Op: plan.OpSocket, Names: []string{s.Network}, Path: s.Addr.Addr().String(),
			Data: hex.EncodeToString(s.Addr.Addr().AsSlice()), Num: uint64(s.Addr.Port()), Reason: s.Reason})
	}
}
