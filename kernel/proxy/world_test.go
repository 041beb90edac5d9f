package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cellblock/policy"
)

// TestMain fails when a goroutine is left. One that net/http has closed the connection
// of sleeps for half a second more before it ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// world is a server whose policy is a real one, and whose internet is made up: names
// have the addresses of a table, and whoever is connected to is in this process.
type world struct {
	server *Server

	mu      sync.Mutex
	hosts   map[string][]string // name to addresses
	looked  []string
	dialled []string
	refused []string            // target, rule and way
	servers map[string]net.Addr // ip:port to a server of this process
}

const worldPolicy = `version: 1
name: world
fs: {}
net:
  mode: allow
  allow:
    - {id: web, host: web.example, port: [80, 443], reason: r}
    - {id: wild, host: "*.example.com", port: [80, 443], reason: r}
    - {id: net, host: 203.0.113.0/24, port: any, reason: r}
    - {id: six, host: "2001:db8::/32", port: 443, reason: r}
`

func compile(t testing.TB, text string) policy.Policy {
	t.Helper()
	doc, err := policy.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Compile(doc, policy.Facts{SessionDir: "/s", Mode: policy.Enforce})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newWorld(t testing.TB) *world {
	w := &world{hosts: map[string][]string{"web.example.": {"203.0.114.1"}}, servers: map[string]net.Addr{}}
	w.server = New(Config{
		Decide: compile(t, worldPolicy).DecideNet,
		Refused: func(op policy.NetOp, d policy.Decision, way Way) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, fmt.Sprintf("%s %s %s", Target(op), d.Rule, way))
		},
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.looked = append(w.looked, name)
			var out []netip.Addr
			for _, a := range w.hosts[name] {
				out = append(out, netip.MustParseAddr(a))
			}
			if out == nil {
				return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
			}
			return out, nil
		},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			w.mu.Lock()
			w.dialled = append(w.dialled, to.String())
			at := w.servers[to.String()]
			w.mu.Unlock()
			if at == nil {
				return nil, fmt.Errorf("nobody is at %s", to)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
		},
	})
	t.Cleanup(w.server.Close)
	return w
}

// listen is a listener on this host's loopback that serve takes.
func listen(t testing.TB, serve func(net.Listener)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serve(l)
	return l.Addr().String()
}

// at serves HTTP at an address of the made-up internet, and keeps what it was asked.
func (w *world) at(t testing.TB, addr string, handler http.HandlerFunc) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	w.mu.Lock()
	w.servers[addr] = l.Addr()
	w.mu.Unlock()
}

// echo sends back what it gets, after its end.
func (w *world) echo(t testing.TB, addr string) {
	t.Helper()
	at := listen(t, func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				all, _ := io.ReadAll(c)
				c.Write(append([]byte("echo:"), all...))
			}()
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[addr], _ = net.ResolveTCPAddr("tcp", at)
}

func (w *world) seen() (looked, dialled, refused string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.looked, ", "), strings.Join(w.dialled, ", "), strings.Join(w.refused, ", ")
}

// raw sends bytes to the proxy and returns all that comes back. The end of what is
// sent comes when the answer has begun, as from an ordinary client.
func raw(t testing.TB, proxy, request string) string {
	t.Helper()
	c := dial(t, proxy)
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	io.WriteString(c, request)
	first := make([]byte, 4096)
	n, _ := c.Read(first)
	c.(*net.TCPConn).CloseWrite()
	rest, _ := io.ReadAll(c)
	return string(first[:n]) + string(rest)
}

// whole sends bytes and their end, and returns all that comes back.
func whole(t testing.TB, to, sent string) string {
	t.Helper()
	c := dial(t, to)
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	io.WriteString(c, sent)
	c.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(c)
	return string(answer)
}

// responses reads so many of them from one connection.
func responses(t testing.TB, proxy, requests string, n int) string {
	t.Helper()
	c := dial(t, proxy)
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	io.WriteString(c, requests)
	from := bufio.NewReader(c)
	var out strings.Builder
	for range n {
		r, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Errorf("after %q: %v", out.String(), err)
			break
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(&out, "HTTP/1.1 %d\n%s\n", r.StatusCode, body)
	}
	return out.String()
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// statuses are those of the responses in an answer.
func statuses(answer string) string {
	var out []string
	for line := range strings.Lines(answer) {
		if rest, ok := strings.CutPrefix(line, "HTTP/1.1 "); ok {
			out = append(out, rest[:3])
		}
	}
	return strings.Join(out, " ")
}
