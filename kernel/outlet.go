package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"cellblock/kernel/proxy"
	"cellblock/policy"
)

// outlet is the way out of one generation of a session whose network is taken away:
// sockets in its network namespace that the launcher serves. A session with network
// none has one for names alone, so that a look-up fails at once and is known.
type outlet struct {
	server *proxy.Server
	names  *proxy.Names
	// observed says that connections are told of by the observer as well.
	observed bool
}

// Where a session finds its way out.
const (
	proxyPort = 3128
	namesPort = 53
)

var inside = netip.MustParseAddr("127.0.0.1")

// hasOutlet says whether the session's network is the launcher's to serve.
func (s *Session) hasOutlet() bool { return s.opts.Tier == TierJail && s.policy.Network.Enforced }

// newOutlet makes the outlet of a worker that is about to be started; nil for none.
func (s *Session) newOutlet(w *watch) *outlet {
	if !s.hasOutlet() {
		return nil
	}
	o := &outlet{names: proxy.NewNames(directFor(s.policy.Network).names...)}
	o.server = proxy.New(proxy.Config{Names: o.names, Decide: func(op policy.NetOp) policy.Decision { return w.rules.Load().DecideNet(op) }, Refused: func(op policy.NetOp, d policy.Decision, way proxy.Way) {
		// The observer has told of the connection itself; what a name led to only we know.
		if way == proxy.Direct && o.observed && !(op.Host != "" && op.Addr.IsValid()) {
			return
		}
		w.refused(op, d)
	}})
	return o
}

// outletSocket is a socket of the session's network, and who serves it.
type outletSocket struct {
	network string
	addr    netip.AddrPort
	reason  string
}

// outletSockets lists what serve takes, in its order.
func (s *Session) outletSockets() []outletSocket {
	if !s.hasOutlet() {
		return nil
	}
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(inside, port) }
	list := []outletSocket{
		{"udp", at(namesPort), "the launcher answers for names: those on the list have addresses, others fail at once"},
		{"tcp", at(namesPort), "the same by TCP"},
	}
	if s.policy.Network.Mode == policy.NetAllow {
		list = append(list, outletSocket{"tcp", at(proxyPort), "the way out: HTTP and SOCKS5, decided on by the launcher"})
		list = append(list, directFor(s.policy.Network).sockets...)
	}
	return list
}

// serve begins to serve the sockets that outletSockets lists.
func (o *outlet) serve(files []*os.File) error {
	if o == nil {
		return nil
	}
	var listeners []net.Listener
	var packets []net.PacketConn
	for _, f := range files {
		defer f.Close()
		// Each copies the descriptor.
		if p, err := net.FilePacketConn(f); err == nil {
			packets = append(packets, p)
			continue
		}
		l, err := net.FileListener(f)
		if err != nil {
			for _, p := range packets {
				p.Close()
			}
			for _, l := range listeners {
				l.Close()
			}
			return fmt.Errorf("network of the session: %s: %w", f.Name(), err)
		}
		listeners = append(listeners, l)
	}
	go o.server.ServeNames(packets[0], listeners[0])
	for i, l := range listeners[1:] {
		if i == 0 {
			go o.server.Serve(l)
		} else {
			go o.server.ServeDirect(l)
		}
	}
	return nil
}

// close ends the outlet and every connection through it.
func (o *outlet) close() {
	if o != nil {
		o.server.Close()
	}
}

// proxyVariables tell programs of the way out. All name HTTP: programs that have no
// SOCKS of their own fail on a scheme that they do not know, instead of leaving it be.
func (s *Session) proxyVariables() []string {
	if !s.hasOutlet() || s.policy.Network.Mode != policy.NetAllow {
		return nil
	}
	way := fmt.Sprintf("http://%s:%d", inside, proxyPort)
	own := "localhost,127.0.0.1,127.0.1.1,::1," + hostname
	var out []string
	for _, v := range []string{"HTTP_PROXY=" + way, "HTTPS_PROXY=" + way, "ALL_PROXY=" + way, "NO_PROXY=" + own} {
		name, value, _ := strings.Cut(v, "=")
		out = append(out, v, strings.ToLower(name)+"="+value)
	}
	return out
}

// withProxy puts the variables of the way out into an environment. The launcher's own,
// which lead nowhere from inside, make room; what the operator has set stays.
func (s *Session) withProxy(passed, set []string) []string {
	ours := s.proxyVariables()
	named := func(list []string, v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(list, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	}
	out := slices.DeleteFunc(passed, func(v string) bool { return named(ours, v) })
	for _, v := range ours {
		if !named(set, v) {
			out = append(out, v)
		}
	}
	return append(out, set...)
}
