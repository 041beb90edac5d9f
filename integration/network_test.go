package integration

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"cellblock/kernel"
)

// The tests' servers are on addresses of the host's loopback. A policy opens them one
// by one, as it would a server in a private network; 127.0.0.1 itself is left alone,
// since programs take it for their own.
const serversAt = "127.0.0.2"

// server answers "name: path" to requests by HTTP, and counts them.
func server(t testing.TB, address, name string) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s: %s %s", name, r.Host, r.URL.Path)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// reaching is the policy default, but for its network.
func reaching(t testing.TB, rules ...string) option {
	t.Helper()
	text := "version: 1\nname: reaching\nfs:\n  rules:\n    - {path: \"${session}\", access: [write], effect: allow, reason: r}\nnet:\n  mode: allow\n  allow:\n"
	for _, r := range rules {
		text += "    - {" + r + ", reason: r}\n"
	}
	return document(t, text)
}

// netTools are what a cell needs to reach something, or not.
const netTools = `
import os, socket, subprocess, urllib.request, urllib.error
def get(url, **more):
    try: return urllib.request.urlopen(url, timeout=20, **more).read().decode()
    except urllib.error.HTTPError as problem: return f"{problem.code} {problem.read().decode()}"
    except OSError as problem: return f"{type(problem).__name__} {problem}"
def send(family, address, data=b"x"):
    try:
        with socket.socket(family) as s:
            s.settimeout(20); s.connect(address); s.sendall(data); s.shutdown(socket.SHUT_WR)
            out = b""
            while part := s.recv(1000): out += part
        return out.decode() or "nothing"
    except OSError as problem: return type(problem).__name__
def proxied(request, length):
    with socket.create_connection(("127.0.0.1", 3128), 20) as s:
        s.sendall(request)
        out = b""
        while len(out) < length and (part := s.recv(4096)): out += part
        return out[:length]
`

// denials are the violations of a reply, as "op target rule source count".
func denials(r reply) string {
	var out []string
	for _, v := range r.violations() {
		out = append(out, fmt.Sprintf("%s %s %s %s %d", v.Op, v.Path, v.Rule, v.Source, v.Count))
	}
	return strings.Join(out, "; ")
}

// TestListedHostsAreReached by what programs know of proxies, and others are refused
// with the reason, once.
func TestListedHostsAreReached(t *testing.T) {
	require(t, needUserns)
	port, other := server(t, serversAt, "listed"), server(t, serversAt, "other")
	s := open(t, reaching(t, "host: "+serversAt+", port: "+port))
	s.ok(netTools)
	at := serversAt + ":" + port
	s.shows(fmt.Sprintf("get('http://%s/p')", at), fmt.Sprintf("'listed: %s /p'", at))
	s.shows(fmt.Sprintf(`proxied(b"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", 12)`, at), `b'HTTP/1.1 200'`)
	s.shows(fmt.Sprintf(`proxied(b"\x05\x01\x00" + b"\x05\x01\x00\x01\x7f\x00\x00\x02" + (%s).to_bytes(2, "big"), 4)`, port), `b'\x05\x00\x05\x00'`)

	r := s.ok(fmt.Sprintf("said = get('http://%s:%s/')\nsaid", serversAt, other))
	contains(t, "the answer", r.value(), "403")
	contains(t, "the answer", r.value(), "is loopback of the host (RFC 1122); reachable: "+at)
	r = s.ok(fmt.Sprintf("get('http://%s:1/')", serversAt))
	if got := denials(r); got != fmt.Sprintf("connect %s:1 net.guarded host 1", serversAt) {
		t.Errorf("violations %s", got)
	}
	if v := r.violations()[0]; v.Decision != "denied" || len(v.Nearest) != 1 || v.Nearest[0] != at {
		t.Errorf("violation %+v", v)
	}
	r = s.ok("get('http://unlisted.example/')")
	if got := denials(r); got != "connect unlisted.example:80 net.unlisted host 1" {
		t.Errorf("violations %s", got)
	}
	s.alive()
}

// TestTheOutletIsTheSessionsOwn: two sessions with different lists, and neither has the
// other's.
func TestTheOutletIsTheSessionsOwn(t *testing.T) {
	require(t, needUserns)
	one, two := server(t, serversAt, "one"), server(t, serversAt, "two")
	a, b := open(t, reaching(t, "host: "+serversAt+", port: "+one)), open(t, reaching(t, "host: "+serversAt+", port: "+two))
	for _, c := range []struct {
		s          *session
		port, want string
	}{{a, one, "one:"}, {a, two, "403"}, {b, one, "403"}, {b, two, "two:"}} {
		c.s.ok(netTools)
		contains(t, "the answer", c.s.ok(fmt.Sprintf("get('http://%s:%s/')", serversAt, c.port)).value(), c.want)
	}
	// The next generation has one of its own again.
	a.kernel.Abort()
	a.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
	a.ok(netTools)
	contains(t, "the next generation", a.ok(fmt.Sprintf("get('http://%s:%s/')", serversAt, one)).value(), "one:")
}

// TestTheOperatorsProxyVariablesStay, and those of the launcher, which lead nowhere,
// do not.
func TestTheOperatorsProxyVariablesStay(t *testing.T) {
	require(t, needUserns)
	t.Setenv("HTTP_PROXY", "http://launchers.example:1")
	s := open(t, reaching(t, "host: pypi.org, port: 443"), func(o *kernel.Options) { o.Env = []string{"https_proxy=http://operators.example:1"} })
	s.shows(`import os; [os.environ.get(n) for n in ("HTTP_PROXY", "http_proxy", "https_proxy", "HTTPS_PROXY")]`,
		"['http://127.0.0.1:3128', 'http://127.0.0.1:3128', 'http://operators.example:1', 'http://127.0.0.1:3128']")
	none := open(t)
	none.shows(`import os; [n for n in os.environ if "proxy" in n.lower()]`, "[]")
}
