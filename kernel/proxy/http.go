package proxy

import (
	"context"
	"errors"
	"io"
	"log" //nolint:depguard // what net/http would print has to go nowhere
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"cellblock/policy"
)

// silent takes the messages of net/http about what the session sends.
var silent = log.New(io.Discard, "", 0)

func (s *Server) newHTTP() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: http.HandlerFunc(s.serveHTTP), ErrorLog: silent, Protocols: &protocols,
		ReadHeaderTimeout: setupTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		BaseContext: func(net.Listener) context.Context { return s.ctx },
	}
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		s.connect(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "" && r.URL.User == nil && r.URL.Opaque == "":
		s.forward(w, r)
	case r.URL.Scheme == "https":
		plain(w, http.StatusBadRequest, "https goes through CONNECT")
	default:
		plain(w, http.StatusBadRequest, "this is a proxy: want CONNECT HOST:PORT, or a request for http://HOST/ without a user")
	}
}

// connect makes a tunnel.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		plain(w, http.StatusBadRequest, "CONNECT has no body")
		return
	}
	// As it was sent: a parsed URL is without the user before an @.
	op, err := parseTarget(r.RequestURI, 0)
	if err != nil {
		plain(w, http.StatusBadRequest, err.Error())
		return
	}
	// Not r's context: net/http ends it when the session sends no more, and may yet
	// read.
	up, err := s.reach(s.ctx, op, Asked)
	if err != nil {
		failed(w, err)
		return
	}
	taken, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		up.Close()
		plain(w, http.StatusInternalServerError, err.Error())
		return
	}
	c := taken.(*conn)
	_ = c.SetDeadline(time.Time{})
	// What the session has sent already is in net/http's buffer, and then in ours.
	if n := buffered.Reader.Buffered(); n > 0 {
		early, _ := buffered.Reader.Peek(n)
		if _, err := up.Write(early); err != nil {
			c.Close()
			up.Close()
			return
		}
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		c.Close()
		up.Close()
		return
	}
	s.tunnel(c, up)
}

// forward carries out one request for plain HTTP, on a connection of its own. What
// net/http has read it writes anew: where the request goes, and how long it is, is what
// was decided on, whatever its header said.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	op, err := parseTarget(r.URL.Host, 80)
	if err != nil {
		plain(w, http.StatusBadRequest, err.Error())
		return
	}
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: idleTime, MaxResponseHeaderBytes: maxHeader,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.reach(ctx, op, Asked) },
	}
	(&httputil.ReverseProxy{
		Transport: transport, ErrorLog: silent, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Host = p.In.URL.Host
			p.Out.URL.RawQuery = p.In.URL.RawQuery // as it is, also where Go cannot read it
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { failed(w, err) },
	}).ServeHTTP(w, r)
}

// failed answers a request that came to nothing.
func failed(w http.ResponseWriter, err error) {
	var refused *refusedError
	var unknown *net.DNSError
	switch {
	case errors.As(err, &refused):
		plain(w, http.StatusForbidden, refused.Error())
	case errors.As(err, &unknown), errors.Is(err, errUnknownName):
		plain(w, http.StatusBadGateway, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		plain(w, http.StatusGatewayTimeout, err.Error())
	default:
		plain(w, http.StatusBadGateway, err.Error())
	}
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "cellblock: "+text+"\n") // who has gone reads no answer
}

// serveDirect is for a connection that was meant for its local address.
func (s *Server) serveDirect(c *conn) {
	op, ok := s.meant(c.LocalAddr())
	if !ok {
		c.reset()
		return
	}
	up, err := s.reach(s.ctx, op, Direct)
	if err != nil {
		c.reset()
		return
	}
	s.tunnel(c, up)
}

// ServeDirect takes connections to other hosts, which Linux hands to a listener on all
// addresses where each is local. What they were meant for is their local address. One
// that cannot be made is reset; those to loopback are the session's own, and nobody
// listens.
func (s *Server) ServeDirect(l net.Listener) { s.accept(l, s.serveDirect) }

func (s *Server) meant(local net.Addr) (policy.NetOp, bool) {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return policy.NetOp{}, false
	}
	at := tcp.AddrPort()
	addr := at.Addr().WithZone("").Unmap()
	if addr.IsLoopback() || addr.IsUnspecified() {
		return policy.NetOp{}, false
	}
	if !s.names.Has(addr) {
		return policy.NetOp{Addr: addr, Port: int(at.Port())}, true
	}
	name, ok := s.names.Of(addr)
	return policy.NetOp{Host: name, Port: int(at.Port())}, ok
}
