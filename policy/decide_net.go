package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// NetKind names one kind of operation on the network.
type NetKind string

// The kinds.
const (
	Connect NetKind = "connect" // also a datagram sent to an address
	Bind    NetKind = "bind"    // a port taken, to be connected to
	Lookup  NetKind = "lookup"  // a name asked for its address; NetOp has a host, and no port
)

// NetOp is one operation on the network to decide. A connection is decided by
// name before the name is looked up, and again with each address before it is
// connected to.
type NetOp struct {
	Kind NetKind `json:"op"`
	// Proto is tcp or udp; empty is tcp.
	Proto string `json:"proto,omitempty"`
	// Host is the name or address that was asked for; may be empty where only an
	// address is known.
	Host string `json:"host,omitempty"`
	// Addr is the address to be connected to; the zero value where none is known.
	Addr netip.Addr `json:"addr,omitzero"`
	Port int        `json:"port"`
	// Outward says that the launcher makes the connection on the session's behalf,
	// so that loopback is the host's and not the session's own.
	Outward bool `json:"outward,omitempty"`
}

// guarded are address blocks that a name must not lead to: the host itself, its
// neighbours, and the services that clouds give machines their credentials by.
// A rule opens one of them when it names an address or a network within it.
var guarded = []struct {
	block  netip.Prefix
	reason string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback of the host (RFC 1122)"},
	{netip.MustParsePrefix("::1/128"), "loopback of the host (RFC 4291)"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where clouds keep metadata (RFC 3927)"},
	{netip.MustParsePrefix("fe80::/10"), "link-local (RFC 4291)"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private (RFC 1918)"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private (RFC 1918)"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private (RFC 1918)"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by carriers, and metadata of some clouds (RFC 6598)"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the host's agent in Azure"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments, and metadata of some clouds (RFC 6890)"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks within a network (RFC 2544)"},
	{netip.MustParsePrefix("0.0.0.0/8"), "this host (RFC 1122)"},
	{netip.MustParsePrefix("::/128"), "this host (RFC 4291)"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast (RFC 1112)"},
	{netip.MustParsePrefix("ff00::/8"), "multicast (RFC 4291)"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved, and broadcast (RFC 1112)"},
	{netip.MustParsePrefix("fc00::/7"), "private (RFC 4193)"},
	{netip.MustParsePrefix("fec0::/10"), "private (RFC 3879)"},
	{netip.MustParsePrefix("100::/64"), "discarded (RFC 6666)"},
}

// Guarded says why an address is one that a name must not lead to; empty where
// it is not. An IPv4 address within an IPv6 one counts as itself.
func Guarded(addr netip.Addr) string {
	addr = inner(addr)
	for _, g := range guarded {
		if g.block.Contains(addr) {
			return g.reason
		}
	}
	return ""
}

// carriers are IPv6 networks whose addresses hold an IPv4 address that a
// gateway connects to, and at which byte.
var carriers = []struct {
	block netip.Prefix
	at    int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},   // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12}, // NAT64 within a network, RFC 8215
	{netip.MustParsePrefix("2002::/16"), 2},       // 6to4, RFC 3056
	{netip.MustParsePrefix("::/96"), 12},          // IPv4-compatible, RFC 4291
}

func inner(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if !addr.Is6() || addr == netip.IPv6Unspecified() || addr == netip.IPv6Loopback() {
		return addr
	}
	bytes := addr.As16()
	for _, c := range carriers {
		if c.block.Contains(addr) {
			return netip.AddrFrom4([4]byte(bytes[c.at : c.at+4]))
		}
	}
	return addr
}

// DecideNet decides one operation on the network. It is pure.
func (p Policy) DecideNet(op NetOp) Decision {
	n := p.Network
	if op.Kind == Bind {
		return n.bind(op)
	}
	host, literal, malformed := op.target()
	if op.Kind == Lookup {
		return n.lookup(host, malformed)
	}
	addr := op.Addr
	if literal.IsValid() && !addr.IsValid() {
		addr = literal
	}
	// Linux takes the unspecified address of a connection for loopback.
	loopback := addr.IsValid() && (inner(addr).IsLoopback() || addr.WithZone("").Unmap().IsUnspecified()) || !addr.IsValid() && host == "localhost"
	if loopback && !op.Outward {
		return Decision{Effect: Allow, Rule: "ground.loopback", Reason: "loopback within the session always works"}
	}
	enforced := n.Enforced
	switch {
	case n.Mode == NetHost:
		return Decision{Effect: Allow, Rule: "net.host", Reason: orText(n.Reason, "the network is the host's")}
	case n.Mode == NetNone:
		return Decision{Effect: Deny, Rule: "net.none", Reason: orText(n.Reason, "there is no network but the session's own loopback"), Enforced: enforced}
	case malformed != "":
		return n.deny("net.target", malformed, true)
	case op.Proto != "" && op.Proto != "tcp":
		return n.deny("net.proto", "only TCP has a way out", enforced)
	case op.Port < 1 || op.Port > 65535:
		return n.deny("net.target", fmt.Sprintf("%d is no port", op.Port), true)
	}
	rule, ok := n.matching(host, literal, op.Addr, op.Port)
	if addr.IsValid() {
		if why := Guarded(addr); why != "" && !n.opens(inner(addr), op.Port) {
			// In every mode: what a name leads to is not the session's to choose.
			return n.deny("net.guarded", fmt.Sprintf("%s is %s", addr, why), enforced || op.Outward || host != "" && !literal.IsValid())
		}
	}
	if !ok {
		return n.deny("net.unlisted", "it is not on the list", enforced)
	}
	d := Decision{Effect: Allow, Rule: rule.ID, Reason: rule.Reason, Line: rule.Line}
	if !addr.IsValid() {
		d.Obligations = []Obligation{ObligeAddress}
	}
	return d
}

// lookup decides on a name alone: it may be asked for when something of it may be
// connected to.
func (n Network) lookup(host, malformed string) Decision {
	switch {
	case n.Mode == NetHost:
		return Decision{Effect: Allow, Rule: "net.host", Reason: orText(n.Reason, "the network is the host's")}
	case host == "localhost":
		return Decision{Effect: Allow, Rule: "ground.loopback", Reason: "loopback within the session always works"}
	case n.Mode == NetNone:
		return Decision{Effect: Deny, Rule: "net.none", Reason: orText(n.Reason, "there is no network but the session's own loopback"), Enforced: n.Enforced}
	case malformed != "":
		return n.deny("net.target", malformed, n.Enforced)
	}
	for _, r := range n.Allow {
		if _, network := r.network(); !network && r.names(host) {
			return Decision{Effect: Allow, Rule: r.ID, Reason: r.Reason, Line: r.Line}
		}
	}
	return n.deny("net.unlisted", "it is not on the list", n.Enforced)
}

func (n Network) bind(op NetOp) Decision {
	for _, r := range n.Inbound {
		if r.Port == op.Port {
			return Decision{Effect: Allow, Rule: "net.inbound." + r.Name, Reason: r.Reason, Line: r.Line, Obligations: []Obligation{ObligeForward}}
		}
	}
	return Decision{Effect: Allow, Rule: "ground.bind", Reason: "a session may serve itself"}
}

// target reads what was asked for: a name in lower case, or an address. The text
// says why it can be neither.
func (op NetOp) target() (name string, literal netip.Addr, malformed string) {
	host := strings.ToLower(strings.TrimSuffix(op.Host, "."))
	if rest, ok := strings.CutPrefix(host, "["); ok {
		inside, closed := strings.CutSuffix(rest, "]")
		addr, err := netip.ParseAddr(inside)
		if !closed || err != nil {
			return host, netip.Addr{}, "the target is no host name and no address"
		}
		return inside, addr.WithZone("").Unmap(), ""
	}
	if host == "" && op.Host == "" {
		return "", op.Addr.WithZone("").Unmap(), ""
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return host, addr.WithZone("").Unmap(), ""
	}
	switch {
	case len(host) > 253 || !isHostName(host):
		return host, netip.Addr{}, "the target is no host name and no address"
	case numeric(host):
		return host, netip.Addr{}, "the target is an address in an old form, which programs read in different ways"
	}
	return host, netip.Addr{}, ""
}

// matching finds the rule that lists a target: its name, the address that was
// asked for as such, or the address that its name led to.
func (n Network) matching(host string, literal, addr netip.Addr, port int) (NetRule, bool) {
	for _, r := range n.Allow {
		if !r.Ports.Has(port) {
			continue
		}
		if network, ok := r.network(); ok {
			if literal.IsValid() && network.Contains(inner(literal)) || addr.IsValid() && network.Contains(inner(addr)) {
				return r, true
			}
			continue
		}
		if literal.IsValid() || host == "" {
			continue
		}
		if r.names(host) {
			return r, true
		}
	}
	return NetRule{}, false
}

// names reports whether a rule for a name, or for all beneath one, is about this one.
func (r NetRule) names(host string) bool {
	if rest, ok := strings.CutPrefix(r.Host, "*"); ok {
		return len(host) > len(rest) && strings.HasSuffix(host, rest)
	}
	return host == r.Host
}

// opens reports whether a rule names a guarded address itself, or a network that
// lies within the block it belongs to. One so wide that it merely contains the
// block does not: who lists 0.0.0.0/0 did not think of metadata.
func (n Network) opens(addr netip.Addr, port int) bool {
	for _, r := range n.Allow {
		network, ok := r.network()
		if !ok || !r.Ports.Has(port) || !network.Contains(addr) {
			continue
		}
		for _, g := range guarded {
			if g.block.Contains(addr) && g.block.Bits() <= network.Bits() {
				return true
			}
		}
	}
	return false
}

// network is the network or the single address that the rule names.
func (r NetRule) network() (netip.Prefix, bool) {
	if prefix, err := netip.ParsePrefix(r.Host); err == nil {
		return prefix, true
	}
	if addr, err := netip.ParseAddr(r.Host); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	return netip.Prefix{}, false
}

func (n Network) deny(rule, reason string, enforced bool) Decision {
	d := Decision{Effect: Deny, Rule: rule, Reason: reason, Enforced: enforced}
	for _, r := range n.Allow {
		if len(d.Nearest) == maxNearest {
			break
		}
		port := "any port"
		if len(r.Ports) > 0 {
			port = strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(r.Ports)), " ", ","), "[]")
		}
		d.Nearest = append(d.Nearest, r.Host+":"+port)
	}
	return d
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
