package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"cellblock/policy"
)

// Config says what a Server asks, and of whom.
type Config struct {
	// Decide is policy.Policy.DecideNet, or like it. It is called from many
	// goroutines.
	Decide func(policy.NetOp) policy.Decision
	// Refused hears of each request that was refused, before its answer is sent; nil
	// for nobody.
	Refused func(policy.NetOp, policy.Decision, Way)
	// Lookup resolves a name that ends in a dot, or one without any, for which the host's
	// search domains count; nil for [Lookup].
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects by TCP; nil for the host's network.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Names gives names their addresses; nil for a new one.
	Names *Names
}

// Way says how a request came.
type Way string

// The ways.
const (
	Asked  Way = "asked"  // of the proxy, by HTTP or SOCKS5
	Direct Way = "direct" // a connection to the target itself
	Name   Way = "name"   // a question for an address
)

const (
	// maxConnections is how many connections of a session are served at a time; more
	// wait.
	maxConnections = 512
	// maxHeader bounds the header of a request, in bytes.
	maxHeader = 64 << 10
	// setupTime bounds a request until it is known what it asks for, and the look-up
	// and connection that it leads to, each.
	setupTime = 15 * time.Second
	// idleTime ends a connection on which nothing was sent either way.
	idleTime = 15 * time.Minute
)

// Lookup is the host's own resolver: its hosts file and its DNS, without what
// nsswitch.conf(5) names beside them.
func Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip", name)
}

// Server serves one session. Its methods may be called from any goroutine.
type Server struct {
	config Config
	names  *Names
	http   *http.Server
	asked  *queue // connections for http
	ctx    context.Context
	cancel context.CancelFunc
	slots  chan struct{}

	mu     sync.Mutex
	open   map[io.Closer]bool
	closed bool
	ended  sync.WaitGroup // what is open, and who serves it
}

// New makes a server that serves nothing yet.
func New(config Config) *Server {
	s := &Server{config: config, names: config.Names, asked: newQueue(), slots: make(chan struct{}, maxConnections), open: map[io.Closer]bool{}}
	if s.names == nil {
		s.names = NewNames()
	}
	if s.config.Refused == nil {
		s.config.Refused = func(policy.NetOp, policy.Decision, Way) {}
	}
	if s.config.Lookup == nil {
		s.config.Lookup = Lookup
	}
	if s.config.Dial == nil {
		var dialer net.Dialer
		s.config.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", to.String())
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.http = s.newHTTP()
	s.ended.Go(func() { _ = s.http.Serve(s.asked) }) // until Close
	return s
}

// Close ends everything: listeners, connections, look-ups. Nothing is accepted and
// nobody connected to when it returns.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	s.cancel()
	for _, c := range open {
		c.Close()
	}
	_ = s.asked.Close() // has no error
	s.http.Close()
	s.ended.Wait()
}

// track keeps what Close is to close, and to wait for until untrack; false when Close
// has been called.
func (s *Server) track(c io.Closer) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		c.Close()
		return false
	}
	s.open[c] = true
	s.ended.Add(1)
	s.mu.Unlock()
	return true
}

func (s *Server) untrack(c io.Closer) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	s.ended.Done()
}

// Serve takes requests by HTTP and by SOCKS5, whose first byte tells them apart,
// until the listener or the server is closed.
func (s *Server) Serve(l net.Listener) { s.accept(l, s.serve) }

// accept hands each connection to a goroutine of its own.
func (s *Server) accept(l net.Listener, serve func(*conn)) {
	if !s.track(l) {
		return
	}
	defer s.untrack(l)
	defer l.Close()
	for {
		select {
		case s.slots <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		raw, err := l.Accept()
		if err != nil {
			<-s.slots
			if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
				return
			}
			// Such as too many open files: what is being served goes on.
			select {
			case <-time.After(50 * time.Millisecond):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		c := &conn{Conn: raw, server: s, read: bufio.NewReader(raw)}
		if s.track(raw) {
			s.ended.Go(func() { serve(c) })
		} else {
			<-s.slots
		}
	}
}

// serve looks at the first byte. Whoever it hands the connection to closes it.
func (s *Server) serve(c *conn) {
	_ = c.SetReadDeadline(time.Now().Add(setupTime))
	first, err := c.read.Peek(1)
	if err != nil {
		c.Close()
		return
	}
	if first[0] == socksVersion {
		s.serveSocks(c)
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	if !s.asked.put(c) {
		c.Close()
	}
}

// conn is a connection of the session's. Closing it frees its place.
type conn struct {
	net.Conn
	server *Server
	read   *bufio.Reader
	once   sync.Once
}

func (c *conn) Read(p []byte) (int, error) { return c.read.Read(p) }

// Write gives up on a session that reads nothing more.
func (c *conn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(idleTime))
	return c.Conn.Write(p)
}

// CloseWrite tells the session that nothing more comes.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func (c *conn) Close() (err error) {
	c.once.Do(func() {
		err = c.Conn.Close()
		c.server.untrack(c.Conn)
		<-c.server.slots
	})
	return err
}

// reset closes a connection so that the other end hears of it as an error.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// queue is a listener whose connections somebody else has accepted.
type queue struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), done: make(chan struct{})} }

func (q *queue) put(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.done:
		return false
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }
