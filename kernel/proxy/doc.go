// Package proxy is the one way out of a session whose policy lists what it may
// reach: it takes connections that the session makes, decides on them, and connects
// on the session's behalf.
//
//	s := proxy.New(proxy.Config{Decide: p.DecideNet, Refused: record})
//	defer s.Close()
//	go s.Serve(listener)        // HTTP (CONNECT and absolute-form) and SOCKS5
//	go s.ServeDirect(web)       // connections that were meant for somebody else
//	go s.ServeNames(udp, tcp)   // DNS
//
// A name is decided on before it is looked up. The launcher looks it up, decides on
// each address that it leads to, and connects to one of those that it decided on:
// nobody looks it up again in between. A request that is refused is answered at once,
// with the reason and what is allowed, and told to Refused once.
//
// Programs that know of no proxy are served too. The names that the policy lists have
// addresses of the session's own ([Names]), so that the name is known when a
// connection to one of them comes; no other name has any.
//
// What the session sends is read by net/http, and by a few lines for SOCKS5 and DNS,
// each with bounds on size, number and time. A request for plain HTTP is written anew
// for the host of its target: no header of the session's says where it goes, and each
// request on a connection is decided by itself.
//
// # Limitations
//
// What goes through a tunnel is not looked at: a server that is allowed can pass
// things on, and may answer for other names. UDP has no way out, nor have IPv6
// addresses of names. Names with a dot are looked up as they stand, without search
// domains, and by DNS and the hosts file alone. The launcher connects by itself: a proxy that the
// host needs is not used.
package proxy
