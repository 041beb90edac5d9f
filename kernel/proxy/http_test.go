package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
)

// TestRequestsAreWrittenAnew: what a server gets is for the host that was decided on,
// without what is the proxy's business.
func TestRequestsAreWrittenAnew(t *testing.T) {
	w := newWorld(t)
	var got string
	w.at(t, "203.0.114.1:80", func(out http.ResponseWriter, r *http.Request) {
		dump, _ := httputil.DumpRequest(r, true)
		got = string(dump)
		io.WriteString(out, "fine")
	})
	proxy := listen(t, w.server.Serve)
	answer := raw(t, proxy, "POST http://web.example/p?a;b HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n"+
		"Connection: X-Drop\r\nX-Drop: 1\r\nX-Keep: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
	if statuses(answer) != "200" || !strings.HasSuffix(answer, "fine") {
		t.Errorf("answer %q", answer)
	}
	for _, part := range []string{"POST /p?a;b HTTP/1.1\r\nHost: web.example\r\n", "X-Keep: 1", "hi"} {
		if !strings.Contains(got, part) {
			t.Errorf("the server's request lacks %q:\n%s", part, got)
		}
	}
	for _, part := range []string{"evil", "Proxy-", "X-Drop", "X-Forwarded"} {
		if strings.Contains(got, part) {
			t.Errorf("the server's request has %q:\n%s", part, got)
		}
	}
	looked, dialled, refused := w.seen()
	if looked != "web.example." || dialled != "203.0.114.1:80" || refused != "" {
		t.Errorf("looked up %s, dialled %s, refused %s", looked, dialled, refused)
	}
}

// TestEachRequestIsDecided: a connection that is kept open leads to no other host.
func TestEachRequestIsDecided(t *testing.T) {
	w := newWorld(t)
	w.at(t, "203.0.114.1:80", func(out http.ResponseWriter, r *http.Request) { fmt.Fprintf(out, "for %s", r.Host) })
	answer := responses(t, listen(t, w.server.Serve), "GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n"+
		"GET http://evil.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n"+
		"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n"+
		"GET http://web.example:80/ HTTP/1.1\r\nHost: web.example:80\r\n\r\n", 4)
	if got := statuses(answer); got != "200 403 400 200" {
		t.Errorf("statuses %s:\n%s", got, answer)
	}
	if _, dialled, refused := w.seen(); dialled != "203.0.114.1:80, 203.0.114.1:80" || refused != "evil.example:80 net.unlisted asked" {
		t.Errorf("dialled %s, refused %s", dialled, refused)
	}
	for _, part := range []string{"evil.example:80 cannot be reached", "it is not on the list", "web.example:80,443"} {
		if !strings.Contains(answer, part) {
			t.Errorf("the answer does not say %q:\n%s", part, answer)
		}
	}
}

// TestTunnel: what was sent with the request is not lost, and either end can end first.
func TestTunnel(t *testing.T) {
	w := newWorld(t)
	w.echo(t, "203.0.114.1:443")
	answer := raw(t, listen(t, w.server.Serve), "CONNECT web.example:443 HTTP/1.1\r\nHost: web.example:443\r\n\r\nearly")
	if statuses(answer) != "200" || !strings.HasSuffix(answer, "\r\n\r\necho:early") {
		t.Errorf("answer %q", answer)
	}
}

// TestUpgrade: what becomes another protocol goes both ways.
func TestUpgrade(t *testing.T) {
	w := newWorld(t)
	w.at(t, "203.0.114.1:80", func(out http.ResponseWriter, r *http.Request) {
		c, buffered, err := out.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		line, _ := buffered.ReadString('\n')
		io.WriteString(c, "echo:"+line)
	})
	c := dial(t, listen(t, w.server.Serve))
	io.WriteString(c, "GET http://web.example/ws HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(c)
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != 101 || r.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("%+v, %v", r, err)
	}
	io.WriteString(c, "hello\n")
	if line, _ := in.ReadString('\n'); line != "echo:hello\n" {
		t.Errorf("%q", line)
	}
}

// TestForgedRequests: none of these makes a connection but to a host on the list.
func TestForgedRequests(t *testing.T) {
	const tail = " HTTP/1.1\r\nHost: web.example\r\n\r\n"
	for _, c := range []struct{ name, request, status, dialled string }{
		{"control: a tunnel", "CONNECT web.example:443" + tail, "200", "203.0.114.1:443"},
		{"control: in capitals, with a dot", "CONNECT WEB.Example.:443" + tail, "200", "203.0.114.1:443"},
		{"control: a listed address", "CONNECT 203.0.113.9:443" + tail, "200", "203.0.113.9:443"},
		{"control: a listed address, mapped", "CONNECT [::ffff:203.0.113.9]:443" + tail, "200", "203.0.113.9:443"},
		{"another port", "CONNECT web.example:22" + tail, "403", ""},
		{"another host", "CONNECT evil.example:443" + tail, "403", ""},
		{"a name that ends like it", "CONNECT evilweb.example:443" + tail, "403", ""},
		{"a user", "CONNECT web.example@evil.example:443" + tail, "403", ""},
		{"a user and a password", "CONNECT web.example:443@evil.example:443" + tail, "400", ""},
		{"a user in a URL", "GET http://web.example@evil.example/" + tail, "400", ""},
		{"a user that looks like a host", "GET http://evil.example@web.example/" + tail, "400", ""},
		{"a backslash", "GET http://web.example\\@evil.example/" + tail, "400", ""},
		{"a decimal address", "CONNECT 3405803777:443" + tail, "403", ""},
		{"an octal address", "CONNECT 0313.0.0161.1:443" + tail, "403", ""},
		{"a hexadecimal address", "CONNECT 0xcb007101:443" + tail, "403", ""},
		{"a short address", "CONNECT 203.1:443" + tail, "403", ""},
		{"two dots", "CONNECT web.example..:443" + tail, "403", ""},
		{"a zero byte", "CONNECT web.example\x00.evil.example:443" + tail, "400", ""},
		{"an encoded zero byte", "GET http://web.example%00.evil.example/" + tail, "400", ""},
		{"a line end", "CONNECT web.example\r\n.evil.example:443" + tail, "400", ""},
		{"a bare line feed in a header", "GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\nX: a\nGET http://evil.example/ HTTP/1.1\r\n\r\n", "", ""},
		{"a space in the target", "CONNECT web.example :443" + tail, "400", ""},
		{"another alphabet", "CONNECT w\u0435b.example:443" + tail, "403", ""},
		{"no port", "CONNECT web.example" + tail, "400", ""},
		{"port zero", "CONNECT web.example:0" + tail, "403", ""},
		{"a large port", "CONNECT web.example:65979" + tail, "400", ""},
		{"a signed port", "CONNECT web.example:+443" + tail, "400", ""},
		{"an empty host", "CONNECT :443" + tail, "400", ""},
		{"half a bracket", "CONNECT [203.0.113.9:443" + tail, "400", ""},
		{"loopback", "CONNECT 127.0.0.1:443" + tail, "403", ""},
		{"loopback by name", "CONNECT localhost:443" + tail, "403", ""},
		{"the unspecified address", "CONNECT 0.0.0.0:443" + tail, "403", ""},
		{"metadata", "GET http://169.254.169.254/latest/meta-data/" + tail, "403", ""},
		{"loopback, mapped", "CONNECT [::ffff:127.0.0.1]:443" + tail, "403", ""},
		{"loopback through NAT64", "CONNECT [64:ff9b::7f00:1]:443" + tail, "403", ""},
		{"a zone", "CONNECT [fe80::1%25lo]:443" + tail, "403", ""},
		{"two hosts", "GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\nHost: evil.example\r\n\r\n", "400", ""},
		{"a path alone", "GET /" + tail, "400", ""},
		{"a host without a scheme", "GET //web.example/" + tail, "400", ""},
		{"https without a tunnel", "GET https://web.example/" + tail, "400", ""},
		{"another scheme", "GET ftp://web.example/" + tail, "400", ""},
		{"a tunnel with a body", "CONNECT web.example:443 HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\n\r\nhello", "400", ""},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", ""},
		{"two lengths", "POST http://web.example/ HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "400", ""},
		{"a header without end", "GET http://web.example/ HTTP/1.1\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n", "431", ""},
		{"nothing of HTTP", "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for _, addr := range []string{"203.0.114.1:443", "203.0.113.9:443"} {
				w.echo(t, addr)
			}
			answer := raw(t, listen(t, w.server.Serve), c.request)
			if got := statuses(answer); c.status != "" && got != c.status {
				t.Errorf("status %s, want %s:\n%q", got, c.status, answer)
			}
			_, dialled, refused := w.seen()
			if c.status != "" && dialled != c.dialled || strings.Contains(dialled, "evil") {
				t.Errorf("dialled %q, want %q", dialled, c.dialled)
			}
			if c.status == "403" && (strings.Count(refused, " asked") != 1) {
				t.Errorf("a refusal is told %q, want once", refused)
			}
		})
	}
}

// TestSmuggling: two readings of one request are one request to the server.
func TestSmuggling(t *testing.T) {
	for _, request := range []string{
		"POST http://web.example/a HTTP/1.1\r\nHost: web.example\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"POST http://web.example/a HTTP/1.1\r\nHost: web.example\r\nContent-Length: 60\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n0123456789012345",
		"POST http://web.example/a HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
		"POST http://web.example/a HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
	} {
		w := newWorld(t)
		paths := make(chan string, 10)
		w.at(t, "203.0.114.1:80", func(out http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			paths <- r.Host + r.URL.Path
		})
		answer := raw(t, listen(t, w.server.Serve), request)
		close(paths)
		for p := range paths {
			if p != "web.example/a" {
				t.Errorf("the server was asked for %s, by\n%s\n%s", p, request, answer)
			}
		}
	}
}

// TestRebinding: what a name leads to is decided on, and that is what is dialled.
func TestRebinding(t *testing.T) {
	for _, c := range []struct {
		name    string
		addrs   []string
		status  string
		dialled string
	}{
		{"control", []string{"203.0.114.1"}, "200", "203.0.114.1:443"},
		{"loopback", []string{"127.0.0.1"}, "403", ""},
		{"loopback of IPv6", []string{"::1"}, "403", ""},
		{"metadata", []string{"169.254.169.254"}, "403", ""},
		{"private", []string{"192.168.1.1"}, "403", ""},
		{"mapped", []string{"::ffff:127.0.0.1"}, "403", ""},
		{"through NAT64", []string{"64:ff9b::a9fe:a9fe"}, "403", ""},
		{"through 6to4", []string{"2002:7f00:1::"}, "403", ""},
		{"unspecified", []string{"0.0.0.0"}, "403", ""},
		{"one of two", []string{"127.0.0.1", "203.0.114.1"}, "200", "203.0.114.1:443"},
		{"nowhere", nil, "502", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.hosts["web.example."] = c.addrs
			w.echo(t, "203.0.114.1:443")
			answer := raw(t, listen(t, w.server.Serve), "CONNECT web.example:443 HTTP/1.1\r\nHost: web.example:443\r\n\r\n")
			looked, dialled, refused := w.seen()
			if statuses(answer) != c.status || dialled != c.dialled || looked != "web.example." {
				t.Errorf("status %s, dialled %q, looked up %q:\n%s", statuses(answer), dialled, looked, answer)
			}
			if c.status == "403" && refused != "web.example:443 net.guarded asked" {
				t.Errorf("refused %q", refused)
			}
		})
	}
}

// TestTheNextAddressIsTried where one does not answer.
func TestTheNextAddressIsTried(t *testing.T) {
	w := newWorld(t)
	w.hosts["web.example."] = []string{"203.0.114.7", "203.0.114.1"}
	w.echo(t, "203.0.114.1:443")
	if answer := raw(t, listen(t, w.server.Serve), "CONNECT web.example:443 HTTP/1.1\r\nHost: x\r\n\r\n"); statuses(answer) != "200" {
		t.Errorf("answer %q", answer)
	}
}

// TestCloseEndsWhatIsServed: tunnels, idle connections and half requests.
func TestCloseEndsWhatIsServed(t *testing.T) {
	w := newWorld(t)
	w.echo(t, "203.0.114.1:443")
	proxy := listen(t, w.server.Serve)
	var ends []net.Conn
	for _, begun := range []string{"", "GET http://web", "\x05", "CONNECT web.example:443 HTTP/1.1\r\nHost: x\r\n\r\n"} {
		c := dial(t, proxy)
		io.WriteString(c, begun)
		ends = append(ends, c)
	}
	readResponseHead(t, ends[3])
	w.server.Close()
	for i, c := range ends {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("connection %d is served after the end", i)
		}
	}
	if _, err := net.Dial("tcp", proxy); err == nil {
		t.Error("the listener is open after the end")
	}
}

func readResponseHead(t *testing.T, c net.Conn) {
	t.Helper()
	b := make([]byte, 1000)
	if n, err := c.Read(b); err != nil || !strings.HasPrefix(string(b[:n]), "HTTP/1.1 200") {
		t.Fatalf("%q: %v", b[:n], err)
	}
}
