package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"cellblock/policy"
)

// refusedError is a decision against a connection.
type refusedError struct {
	target   string
	decision policy.Decision
}

func (e *refusedError) Error() string {
	text := fmt.Sprintf("%s cannot be reached: %s", e.target, e.decision.Reason)
	if len(e.decision.Nearest) > 0 {
		text += "; reachable: " + strings.Join(e.decision.Nearest, ", ")
	}
	return text
}

// errUnknownName is a name without an address.
var errUnknownName = errors.New("the name has no address")

// reach connects to a host on the session's behalf, or says why not: a *refusedError,
// or what went wrong on the way. op holds what was asked for: a host and a port, or an
// address and a port.
func (s *Server) reach(ctx context.Context, op policy.NetOp, way Way) (net.Conn, error) {
	op.Kind, op.Proto, op.Outward = policy.Connect, "tcp", true
	d := s.config.Decide(op)
	if !d.Allowed() {
		return nil, s.refuse(op, d, way)
	}
	addrs, err := s.addresses(ctx, op)
	if err != nil {
		return nil, err
	}
	var pinned []netip.Addr
	denied := op
	for _, addr := range addrs {
		// As DNS or the hosts file has it: 4-in-6 is the same host by another name.
		op.Addr = addr.WithZone("").Unmap()
		if to := s.config.Decide(op); to.Allowed() {
			pinned = append(pinned, op.Addr)
		} else {
			denied, d = op, to
		}
	}
	if len(pinned) == 0 {
		return nil, s.refuse(denied, d, way)
	}
	err = errUnknownName
	for i, addr := range pinned {
		var c net.Conn
		// An address that does not answer leaves time for the next.
		limit := setupTime / time.Duration(len(pinned)-i)
		attempt, cancel := context.WithTimeout(ctx, limit)
		c, err = s.config.Dial(attempt, netip.AddrPortFrom(addr, uint16(op.Port)))
		cancel()
		if err == nil {
			return &upstream{c}, nil
		}
	}
	return nil, err
}

// addresses are those that an allowed target has: its own, or those of its name.
func (s *Server) addresses(ctx context.Context, op policy.NetOp) ([]netip.Addr, error) {
	if op.Addr.IsValid() {
		return []netip.Addr{op.Addr}, nil
	}
	name := canonical(op.Host)
	if inside, ok := strings.CutPrefix(name, "["); ok {
		name, _ = strings.CutSuffix(inside, "]")
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{addr}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	if strings.Contains(name, ".") {
		name += "." // no search domain
	}
	addrs, err := s.config.Lookup(ctx, name)
	if err == nil && len(addrs) == 0 {
		err = errUnknownName
	}
	return addrs, err
}

// canonical is a name as policies compare it: in lower case, without the dot of the
// root.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func (s *Server) refuse(op policy.NetOp, d policy.Decision, way Way) error {
	s.config.Refused(op, d, way)
	return &refusedError{Target(op), d}
}

// Target is what an operation was meant for, as the session asked for it.
func Target(op policy.NetOp) string {
	host := op.Host
	if host == "" {
		host = op.Addr.String()
	}
	if op.Kind == policy.Lookup {
		return canonical(host)
	}
	return net.JoinHostPort(canonical(host), strconv.Itoa(op.Port))
}

// parseTarget reads host:port as a request has it. Whether the host is one is for the
// decision to say.
func parseTarget(text string, port int) (policy.NetOp, error) {
	host := text
	if h, p, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return policy.NetOp{}, fmt.Errorf("target %q: %q is no port", text, p)
		}
		host, port = h, int(n)
	} else if port == 0 {
		return policy.NetOp{}, fmt.Errorf("target %q: want HOST:PORT", text)
	}
	if host == "" {
		return policy.NetOp{}, fmt.Errorf("target %q: it has no host", text)
	}
	return policy.NetOp{Host: host, Port: port}, nil
}

// upstream is a connection to a server. Whatever is sent either way keeps it alive.
type upstream struct{ net.Conn }

func (u *upstream) Read(p []byte) (int, error) {
	_ = u.SetDeadline(time.Now().Add(idleTime))
	return u.Conn.Read(p)
}

func (u *upstream) Write(p []byte) (int, error) {
	_ = u.SetDeadline(time.Now().Add(idleTime))
	return u.Conn.Write(p)
}

func (u *upstream) CloseWrite() error { return closeWrite(u.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// tunnel passes on what either end sends until both have ended, and closes both.
func (s *Server) tunnel(c *conn, up net.Conn) {
	defer c.Close()
	if !s.track(up) {
		return
	}
	defer s.untrack(up)
	defer up.Close()
	done := make(chan struct{})
	pass := func(to, from net.Conn) {
		if _, err := io.Copy(struct{ io.Writer }{to}, from); err != nil || closeWrite(to) != nil {
			to.Close()
			from.Close()
		}
	}
	go func() { pass(up, c); close(done) }()
	pass(c, up)
	<-done
}

// Forward passes connections on to whom dial connects to, until the listener or the
// server is closed: the other way round, and undecided.
func (s *Server) Forward(l net.Listener, dial func(context.Context) (net.Conn, error)) {
	s.accept(l, func(c *conn) {
		ctx, cancel := context.WithTimeout(s.ctx, setupTime)
		up, err := dial(ctx)
		cancel()
		if err != nil {
			c.reset()
			return
		}
		s.tunnel(c, &upstream{up})
	})
}
