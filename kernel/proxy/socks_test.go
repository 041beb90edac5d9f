package proxy

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"cellblock/policy"
)

func socksName4(name string, port int) string {
	return "\x05\x01\x00" + "\x05\x01\x00\x03" + string([]byte{byte(len(name))}) + name + string([]byte{byte(port >> 8), byte(port)})
}

func TestSocks(t *testing.T) {
	const hello, request = "\x05\x01\x00", "\x05\x01\x00"
	for _, c := range []struct{ name, sent, answer, dialled, refused string }{
		{"a name", socksName4("web.example", 443) + "x", "\x05\x00\x05\x00", "203.0.114.1:443", ""},
		{"an address", hello + request + "\x01\xcb\x00\x71\x09\x01\xbbx", "\x05\x00\x05\x00", "203.0.113.9:443", ""},
		{"an address of IPv6", hello + request + "\x04" + string(netip.MustParseAddr("2001:db8::1").AsSlice()) + "\x01\xbb", "\x05\x00\x05\x00", "[2001:db8::1]:443", ""},
		{"a mapped address", hello + request + "\x04" + string(netip.MustParseAddr("::ffff:127.0.0.1").AsSlice()) + "\x01\xbb", "\x05\x00\x05\x02", "", "127.0.0.1"},
		{"methods of which one is none", "\x05\x02\x02\x00" + socksName4("web.example", 443)[3:], "\x05\x00\x05\x00", "203.0.114.1:443", ""},
		{"no method that is none", "\x05\x01\x02" + request, "\x05\xff", "", ""},
		{"a name that is not listed", socksName4("evil.example", 443), "\x05\x00\x05\x02", "", "evil.example:443 net.unlisted asked"},
		{"loopback", hello + request + "\x01\x7f\x00\x00\x01\x01\xbb", "\x05\x00\x05\x02", "", "127.0.0.1:443 net.guarded asked"},
		{"an address as a name", socksName4("127.0.0.1", 443), "\x05\x00\x05\x02", "", "127.0.0.1:443 net.guarded asked"},
		{"a number as a name", socksName4("2130706433", 443), "\x05\x00\x05\x02", "", "net.target"},
		{"a zero byte", socksName4("web.example\x00.evil", 443), "\x05\x00\x05\x02", "", "net.target"},
		{"a listed address in half a bracket", socksName4("[203.0.113.9", 443), "\x05\x00\x05\x02", "", "net.target"},
		{"a name without an address", socksName4("a.example.com", 443), "\x05\x00\x05\x04", "", ""},
		{"an empty name", socksName4("", 443), "\x05\x00\x05\x01", "", ""},
		{"a port to be bound", hello + "\x05\x02\x00\x01\xcb\x00\x71\x09\x01\xbb", "\x05\x00\x05\x07", "", ""},
		{"UDP", hello + "\x05\x03\x00\x01\xcb\x00\x71\x09\x01\xbb", "\x05\x00\x05\x07", "", ""},
		{"another kind of address", hello + request + "\x02\xcb\x00\x71\x09\x01\xbb", "\x05\x00\x05\x08", "", ""},
		{"half a request", hello + request + "\x03\x40web", "\x05\x00", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for _, addr := range []string{"203.0.114.1:443", "203.0.113.9:443", "[2001:db8::1]:443"} {
				w.echo(t, addr)
			}
			answer := raw(t, listen(t, w.server.Serve), c.sent)
			_, dialled, refused := w.seen()
			if !strings.HasPrefix(answer, c.answer) || dialled != c.dialled || !strings.Contains(refused, c.refused) {
				t.Errorf("answer %q, want %q; dialled %q, refused %q", answer, c.answer, dialled, refused)
			}
			if c.dialled != "" && !strings.Contains(answer, "echo:") {
				t.Errorf("nothing came through: %q", answer)
			}
		})
	}
}

// meantFor is a listener whose connections were meant for another address.
type meantFor struct {
	net.Listener
	addr netip.AddrPort
}

type meantConn struct {
	net.Conn
	addr net.Addr
}

func (c meantConn) LocalAddr() net.Addr { return c.addr }
func (c meantConn) CloseWrite() error   { return c.Conn.(*net.TCPConn).CloseWrite() }

func (l meantFor) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return meantConn{c, net.TCPAddrFromAddrPort(l.addr)}, nil
}

func TestDirect(t *testing.T) {
	for _, c := range []struct{ name, to, dialled, refused string }{
		{"a name's address", "198.18.0.1:443", "203.0.114.1:443", ""},
		{"a name's address at another port", "198.18.0.1:80", "203.0.114.1:80", ""},
		{"a name's address at a port that is not listed", "198.18.0.1:22", "", "web.example:22 net.unlisted direct"},
		{"an address of no name", "198.18.0.9:443", "", ""},
		{"a listed address", "203.0.113.9:443", "203.0.113.9:443", ""},
		{"another address", "203.0.115.9:443", "", "203.0.115.9:443 net.unlisted direct"},
		{"metadata", "169.254.169.254:443", "", "169.254.169.254:443 net.guarded direct"},
		{"loopback", "127.0.0.1:443", "", ""},
		{"loopback of IPv6", "[::1]:443", "", ""},
		{"loopback, mapped", "[::ffff:127.0.0.2]:443", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for _, addr := range []string{"203.0.114.1:443", "203.0.114.1:80", "203.0.113.9:443"} {
				w.echo(t, addr)
			}
			if addr, ok := w.server.names.Address("web.example"); !ok || addr.String() != "198.18.0.1" {
				t.Fatalf("the first name has %s", addr)
			}
			to := listen(t, func(l net.Listener) { w.server.ServeDirect(meantFor{l, netip.MustParseAddrPort(c.to)}) })
			answer := whole(t, to, "x")
			_, dialled, refused := w.seen()
			if dialled != c.dialled || refused != c.refused || (answer == "echo:x") != (c.dialled != "") {
				t.Errorf("answer %q, dialled %q, refused %q", answer, dialled, refused)
			}
		})
	}
}

// FuzzSocks: whatever comes, it is read within its bounds, and what is asked for is what
// was sent.
func FuzzSocks(f *testing.F) {
	f.Add([]byte(socksName4("web.example", 443)))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x01\xbb"))
	f.Add([]byte("\x05\xff\x00\x05\x01\x00\x04"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		in := bytes.NewReader(sent)
		op, err := readSocks(struct {
			io.Reader
			io.Writer
		}{in, io.Discard})
		if read := len(sent) - in.Len(); read > 2+255+4+1+255+2 {
			t.Errorf("%d bytes were read", read)
		}
		if err == nil && (op.Host == "" || op.Port < 0 || op.Port > 65535 || op.Addr.IsValid() || op.Kind != "") {
			t.Errorf("%+v", op)
		}
		if err == nil {
			if _, parsed := netip.ParseAddr(op.Host); parsed != nil && !bytes.Contains(sent, []byte(op.Host)) {
				t.Errorf("%+v was not sent", op)
			}
		}
	})
}

// FuzzRequests: whatever is sent on one connection, nobody is dialled but who the policy
// allows, and each server gets whole requests for itself.
func FuzzRequests(f *testing.F) {
	f.Add([]byte("GET http://web.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
	f.Add([]byte("CONNECT web.example:443 HTTP/1.1\r\nHost: x\r\n\r\nabc"))
	f.Add([]byte("POST http://web.example/a HTTP/1.1\r\nHost: web.example\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG"))
	f.Add([]byte(socksName4("web.example", 443)))
	w := newWorld(f)
	w.echo(f, "203.0.114.1:443")
	w.echo(f, "203.0.114.1:80")
	p := w.server.config.Decide
	proxy := listen(f, w.server.Serve)
	f.Fuzz(func(t *testing.T, sent []byte) {
		w.mu.Lock()
		w.dialled, w.looked, w.refused = nil, nil, nil
		w.mu.Unlock()
		whole(t, proxy, string(sent))
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, to := range w.dialled {
			at := netip.MustParseAddrPort(to)
			byName := p(policy.NetOp{Kind: policy.Connect, Host: "web.example", Addr: at.Addr(), Port: int(at.Port()), Outward: true})
			byAddr := p(policy.NetOp{Kind: policy.Connect, Addr: at.Addr(), Port: int(at.Port()), Outward: true})
			if !(at.Addr().String() == "203.0.114.1" && byName.Allowed()) && !byAddr.Allowed() {
				t.Errorf("%q dialled %s", sent, to)
			}
		}
		for _, name := range w.looked {
			if name != "web.example." && !strings.HasSuffix(name, ".example.com.") {
				t.Errorf("%q had %s looked up", sent, name)
			}
		}
	})
}
