package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"cellblock/kernel"
	"cellblock/policy"
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

// echoServer sends back what it gets, with a word before it, after its end.
func echoServer(t testing.TB, address string) (port string) {
	t.Helper()
	at := serving(t, "tcp", address, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		c.Write(append([]byte("echo:"), all...))
	})
	_, port, _ = net.SplitHostPort(at)
	return port
}

// serving is a server of the host's: each connection gets a goroutine of its own, and
// is closed after it.
func serving(t testing.TB, network, address string, serve func(net.Conn)) (at string) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
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
def dns(name, kind=1):
    """Asks as a program does that reads no hosts file."""
    question = b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0" + kind.to_bytes(2, "big") + b"\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(20); s.sendto(b"\0\7\1\0\0\1\0\0\0\0\0\0" + question, ("127.0.0.1", 53))
        answer = s.recv(1232)
    return socket.inet_ntoa(answer[-4:]) if answer[7] else "rcode %d" % (answer[3] & 15)
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

// needHostsName is a name that the hosts file gives to 127.0.0.1, and that is not
// localhost: one that can be looked up without a network.
var needHostsName = register("hosts-name", func() string {
	if hostsName() == "" {
		return "/etc/hosts has no name but localhost for 127.0.0.1"
	}
	return ""
})

func hostsName() string {
	content, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "127.0.0.1" {
			continue
		}
		for _, name := range words[1:] {
			if !strings.HasPrefix(name, "localhost") && strings.ToLower(name) == name {
				return name
			}
		}
	}
	return ""
}

// TestProgramsWithoutAProxy reach listed names by an address of the session's own; at
// other ports, and without a name, they do not.
func TestProgramsWithoutAProxy(t *testing.T) {
	require(t, needUserns, needNotify, needHostsName)
	name, port := hostsName(), echoServer(t, "127.0.0.1:0")
	s := open(t, reaching(t, "host: "+name+", port: "+port, "host: 127.0.0.1, port: "+port, "host: '*.listed.example', port: 443"))
	s.ok(netTools + "LISTED = 'a.listed.example'")
	r := s.shows(fmt.Sprintf("at = dns(%q); at, dns(%q, 28), dns('UNLISTED.example')", name, name), "('198.18.0.1', 'rcode 0', 'rcode 3')")
	if got := denials(r); got != "lookup unlisted.example net.unlisted host 1" {
		t.Errorf("violations %s", got)
	}
	r = s.shows(fmt.Sprintf("send(socket.AF_INET, (at, %s), b'hello')", port), "'echo:hello'")
	if got := denials(r); got != "" {
		t.Errorf("violations %s", got)
	}
	r = s.shows("send(socket.AF_INET, (at, 9))", "'ConnectionRefusedError'")
	if got := denials(r); got != "connect "+name+":9 net.unlisted os 1" {
		t.Errorf("violations %s", got)
	}
	r = s.shows(fmt.Sprintf("send(socket.AF_INET, ('127.0.0.1', %s))", port), "'ConnectionRefusedError'")
	if got := denials(r); got != "" {
		t.Errorf("the session's own loopback: %s", got)
	}
	r = s.shows("send(socket.AF_INET, ('192.0.2.1', 80))", "'OSError'")
	if got := denials(r); got != "connect 192.0.2.1:80 net.unlisted os 1" {
		t.Errorf("violations %s", got)
	}
	s.shows("socket.gethostbyname(LISTED)", "'198.18.0.2'")
	// A name that leads to what no rule opens, by both ways.
	s = open(t, reaching(t, "host: "+name+", port: "+port))
	s.ok(netTools)
	r = s.shows(fmt.Sprintf("send(socket.AF_INET, (dns(%q), %s)), get('http://%s:%s/')[:3]", name, port, name, port), "('ConnectionResetError', '403')")
	if got := denials(r); got != fmt.Sprintf("connect %s:%s net.guarded host 2", name, port) {
		t.Errorf("violations %s", got)
	}
}

// TestInboundPorts: a session's server is reached from the host at the port that the
// launcher tells, in each generation; what the policy does not name is not.
func TestInboundPorts(t *testing.T) {
	require(t, needUserns)
	s := open(t, document(t, `version: 1
name: inbound
fs: {}
net:
  mode: none
  inbound:
    - {name: web, port: 8000, reason: r}
    - {name: later, port: 8001, reason: r}
`))
	told := map[string]string{}
	for _, i := range s.kernel.Info().Inbound {
		told[fmt.Sprintf("%s %d", i.Name, i.Port)] = i.Address
	}
	ask := func(name string) string {
		c, err := net.Dial("tcp", told[name])
		if err != nil {
			return "nothing" // it may be reset before it is known to be there
		}
		defer c.Close()
		io.WriteString(c, "GET /p HTTP/1.0\r\n\r\n")
		all, err := io.ReadAll(c)
		if err != nil || len(all) == 0 {
			return "nothing"
		}
		return string(all)
	}
	if got := ask("web 8000"); got != "nothing" {
		t.Errorf("before a worker: %s", got)
	}
	for generation := range 2 {
		s.ok(serveAndAsk + fmt.Sprintf("WORD = b'generation %d'; s = serve(8000)", generation))
		if got := ask("web 8000"); !strings.HasSuffix(got, fmt.Sprintf("generation %d", generation)) {
			t.Errorf("web: %s", got)
		}
		if got := ask("later 8001"); got != "nothing" {
			t.Errorf("nobody listens: %s", got)
		}
		s.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
	}
	s.kernel.Close()
	if c, err := net.Dial("tcp", told["web 8000"]); err == nil {
		c.Close()
		t.Error("the port is open after the end")
	}
}

// TestLookupsInReport: what Python looks up is told with its name, where the network is
// the host's.
func TestLookupsInReport(t *testing.T) {
	require(t, needUserns)
	for name, c := range map[string]struct {
		opts []option
		want string
	}{
		"no network":    {nil, "lookup unlisted.example net.none hook 2"},
		"an allow list": {[]option{reaching(t, "host: pypi.org, port: 443")}, "lookup unlisted.example net.unlisted hook 2"},
		"open":          {[]option{func(o *kernel.Options) { o.Net = policy.NetHost }}, ""},
		"off":           {[]option{mode("off")}, ""},
	} {
		s := open(t, append([]option{mode("report")}, c.opts...)...)
		// The event alone: nothing is asked of anybody.
		r := s.ok(`
import sys
for host in ("unlisted.example", "localhost", "cellblock", "127.0.0.1", "::1", "unlisted.example"): sys.audit("socket.getaddrinfo", host, 80, 0, 0, 0)`)
		if got := denials(r); got != c.want {
			t.Errorf("%s: violations %s, want %s", name, got, c.want)
		}
	}
}

// needResolvConf is a list of name servers to cover. Without one, libraries ask
// 127.0.0.1 by themselves.
var needResolvConf = register("resolv-conf", func() string {
	if _, err := os.Stat("/etc/resolv.conf"); err != nil {
		return err.Error()
	}
	return ""
})

// TestTheListOfNameServersIsTheSessionsOwn, and the report knows that it cannot be
// changed.
func TestTheListOfNameServersIsTheSessionsOwn(t *testing.T) {
	require(t, needUserns, needNotify, needResolvConf)
	for _, m := range []string{"report", "enforce"} {
		s := open(t, mode(m), func(o *kernel.Options) { o.Net = policy.NetNone })
		r := s.ok(`
try: open("/etc/resolv.conf", "a")
except OSError as problem: print(problem.errno)
open("/etc/resolv.conf").read().split()[1]`)
		if r.value() != "'127.0.0.1'" || r.Details.Stdout == "" {
			t.Errorf("%s: %s, %s", m, r.value(), r.Details.Stdout)
		}
		if v := r.violations(); len(v) != 1 || v[0].Decision != "denied" || v[0].Rule != "ground.file" {
			t.Errorf("%s: %+v", m, v)
		}
	}
}
