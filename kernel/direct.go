package kernel

import (
	"net/netip"
	"slices"
	"strings"

	"cellblock/kernel/proxy"
	"cellblock/policy"
)

// direct is how programs that know of no proxy reach what the policy lists: networks
// whose addresses stay inside, and sockets there that the launcher serves.
type direct struct {
	local   []netip.Prefix
	sockets []outletSocket
	names   []string       // that have the first addresses of the pool, in this order
	left    map[int]string // rules that only the proxy serves, by index, and why
}

// lowPorts are those that no session can take for itself: a socket on all addresses is
// in nobody's way there. At the others one on an address takes the port from the
// session's own servers on all addresses, and one on all addresses would take it from
// those on loopback too.
const lowPorts = 1024

// maxDirect is how many sockets a session's direct connections have at most.
const maxDirect = 200

// directFor works it out from the list.
func directFor(n policy.Network) direct {
	d := direct{left: map[int]string{}}
	if n.Mode != policy.NetAllow {
		return d
	}
	socket := func(i int, addr netip.Addr, port int) {
		at := netip.AddrPortFrom(addr, uint16(port))
		switch {
		case slices.ContainsFunc(d.sockets, func(s outletSocket) bool { return s.addr == at }):
		case len(d.sockets) >= maxDirect:
			d.left[i] = "there are too many ports"
		default:
			d.sockets = append(d.sockets, outletSocket{"tcp", at, "connections to listed hosts, decided on by the launcher"})
		}
	}
	add := func(p netip.Prefix) {
		if !slices.Contains(d.local, p) {
			d.local = append(d.local, p)
		}
	}
	for i, r := range n.Allow {
		network, isNetwork := networkOf(r.Host)
		name := !isNetwork && !strings.HasPrefix(r.Host, "*")
		switch {
		case len(r.Ports) == 0:
			d.left[i] = "it names no ports"
			continue
		case isNetwork && network.Addr().IsLoopback():
			d.left[i] = "loopback inside is the session's own"
			continue
		case isNetwork:
			add(network)
		default:
			add(proxy.Pool)
		}
		for _, port := range r.Ports {
			all := netip.IPv4Unspecified()
			if isNetwork && network.Addr().Is6() {
				all = netip.IPv6Unspecified()
			}
			switch {
			case port < lowPorts:
				socket(i, all, port)
			case isNetwork && network.IsSingleIP():
				socket(i, network.Addr(), port)
			case name:
				if !slices.Contains(d.names, r.Host) {
					d.names = append(d.names, r.Host)
				}
				addr, ok := proxy.NewNames(d.names...).Address(r.Host)
				if !ok {
					d.left[i] = "there are too many names"
					continue
				}
				socket(i, addr, port)
			default:
				d.left[i] = "ports from 1024 on are served directly for single hosts only"
			}
		}
	}
	return d
}

// networkOf is the network or the single address that a rule names.
func networkOf(host string) (netip.Prefix, bool) {
	if prefix, err := netip.ParsePrefix(host); err == nil {
		return prefix, true
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	return netip.Prefix{}, false
}
