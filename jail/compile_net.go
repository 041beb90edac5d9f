package jail

import (
	"encoding/hex"
	"net/netip"

	"cellblock/jail/plan"
)

// maxSockets bounds what a plan makes of sockets: each is a message of the start.
const maxSockets = 512

func (c *compiler) checkSockets() error {
	list := c.spec.Sockets
	if len(list) > 0 && c.spec.Network != NetNone {
		return &SpecError{"sockets", list[0].Addr.String(), `only a jail with a network of its own has any: want network "none"`}
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

// sockets are made once lo is up and before any right is given up: ports below 1024
// need one.
func (c *compiler) sockets() {
	for _, s := range c.spec.Sockets {
		c.stage(plan.Step{Op: plan.OpSocket, Names: []string{s.Network}, Path: s.Addr.Addr().String(),
			Data: hex.EncodeToString(s.Addr.Addr().AsSlice()), Num: uint64(s.Addr.Port()), Reason: s.Reason})
	}
}
