package integration

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// canaries are servers of the host that no session may reach: each counts who comes.
func canaries(t *testing.T, port string) (hits *atomic.Int64, control func() int64) {
	t.Helper()
	hits = new(atomic.Int64)
	var at [][2]string
	for _, a := range []string{"127.0.0.3", "::1"} {
		address := serving(t, "tcp", net.JoinHostPort(a, port), func(c net.Conn) {
			hits.Add(1)
			// An answer that nobody has asked for yet is none.
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, _ = c.Read(make([]byte, 4096))
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ncanary")
		})
		at = append(at, [2]string{"tcp", address})
	}
	p, err := net.ListenPacket("udp", "127.0.0.3:"+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	go func() {
		b := make([]byte, 10)
		for {
			if _, _, err := p.ReadFrom(b); err != nil {
				return
			}
			hits.Add(1)
		}
	}()
	at = append(at, [2]string{"udp", p.LocalAddr().String()})
	return hits, func() int64 {
		for _, a := range at {
			c, err := net.Dial(a[0], a[1])
			if err != nil {
				t.Fatalf("control: %v", err)
			}
			io.WriteString(c, "x")
			c.Close()
		}
		for end := time.Now().Add(10 * time.Second); hits.Load() < int64(len(at)) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		}
		return int64(len(at))
	}
}

type outletAttack struct{ name, code, want string }

// outletAttacks are attempts of a session that may reach one server, at 127.0.0.2, to
// reach others, at 127.0.0.3 and ::1 on the same port; want is a part of the answer.
// Those called control are the same acts, on the server that is listed.
var outletAttacks = []outletAttack{
	{"control: a request", `plain(f"http://127.0.0.2:{PORT}/")`, "listed:"},
	{"control: a tunnel", `connect(f"127.0.0.2:{PORT}")`, "200"},
	{"control: SOCKS", `socks(1, v4("127.0.0.2"))`, "05000500"},
	{"control: SOCKS by name", `socks(3, named("127.0.0.2"))`, "05000500"},

	{"a connection", `send(socket.AF_INET, ("127.0.0.3", PORT))`, "ConnectionRefusedError"},
	{"a connection by IPv6", `send(socket.AF_INET6, ("::1", PORT))`, "ConnectionRefusedError"},
	{"a mapped connection", `send(socket.AF_INET6, ("::ffff:127.0.0.3", PORT))`, "ConnectionRefusedError"},
	{"a connection to metadata", `send(socket.AF_INET, ("169.254.169.254", 80))`, "OSError"},
	{"a datagram", `udp(("127.0.0.3", PORT))`, "Error"},
	{"a datagram elsewhere", `udp(("8.8.8.8", 53))`, "OSError"},
	{"a request", `plain(f"http://127.0.0.3:{PORT}/")`, "403"},
	{"a request by IPv6", `plain(f"http://[::1]:{PORT}/")`, "403"},
	{"a tunnel", `connect(f"127.0.0.3:{PORT}")`, "403"},
	{"a mapped tunnel", `connect(f"[::ffff:127.0.0.3]:{PORT}")`, "403"},
	{"a tunnel through NAT64", `connect(f"[64:ff9b::7f00:3]:{PORT}")`, "403"},
	{"a tunnel to all addresses", `connect(f"0.0.0.0:{PORT}")`, "403"},
	{"a tunnel to localhost", `connect(f"localhost:{PORT}")`, "403"},
	{"a decimal address", `connect(f"2130706435:{PORT}")`, "403"},
	{"an octal address", `connect(f"0177.0.0.3:{PORT}")`, "403"},
	{"a hexadecimal address", `connect(f"0x7f000003:{PORT}")`, "403"},
	{"a short address", `connect(f"127.3:{PORT}")`, "403"},
	{"a dot at the end", `connect(f"127.0.0.3.:{PORT}")`, "403"},
	{"a user before it", `connect(f"127.0.0.2@127.0.0.3:{PORT}")`, "403"},
	{"a user in a URL", `plain(f"http://127.0.0.2@127.0.0.3:{PORT}/")`, "400"},
	{"a line end in the target", `connect(f"127.0.0.2:{PORT} HTTP/1.1\r\nHost: 127.0.0.3:{PORT}\r\n\r\nCONNECT 127.0.0.3:{PORT}")`, "200"},
	{"a zero byte in the target", `connect(f"127.0.0.2\0.127.0.0.3:{PORT}")`, "400"},
	{"another host in a header", `ask(f"GET http://127.0.0.2:{PORT}/ HTTP/1.1\r\nHost: 127.0.0.3:{PORT}\r\nConnection: close\r\n\r\n")`, "listed: 127.0.0.2"},
	{"another host on a kept connection", `ask(f"GET http://127.0.0.2:{PORT}/ HTTP/1.1\r\nHost: x\r\n\r\nGET http://127.0.0.3:{PORT}/ HTTP/1.1\r\nHost: 127.0.0.2:{PORT}\r\nConnection: close\r\n\r\n")`, "403"},
	{"SOCKS", `socks(1, v4("127.0.0.3"))`, "05000502"},
	{"SOCKS, mapped", `socks(4, v6("::ffff:127.0.0.3"))`, "05000502"},
	{"SOCKS by IPv6", `socks(4, v6("::1"))`, "05000502"},
	{"SOCKS by name", `socks(3, named("localhost"))`, "05000502"},
	{"SOCKS by a number", `socks(3, named("2130706435"))`, "05000502"},
	{"the proxy through itself", `connect("127.0.0.1:3128")`, "403"},
	{"a relay of the session's own", `
import threading
relay = socket.create_server(("127.0.0.1", 0))
def pass_on():
    a, _ = relay.accept()
    b = socket.create_connection(("127.0.0.1", 3128)); b.sendall(a.recv(1000)); a.sendall(b.recv(1000)); a.close()
threading.Thread(target=pass_on, daemon=True).start()
send(socket.AF_INET, relay.getsockname(), f"CONNECT 127.0.0.3:{PORT} HTTP/1.1\r\nHost: x\r\n\r\n".encode())`, "403"},
	{"an interface of its own", `
def up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: return __import__("fcntl").ioctl(s, 0x8914, b"lo".ljust(16, b"\0") + b"\0" * 24)
try: up(); verdict = "done"
except OSError as problem: verdict = type(problem).__name__
verdict`, "PermissionError"},
}

// TestAttacksOnTheOutlet: a session with one server on its list tries to reach others
// of the host, by each way that leads to the listed one, and around them.
func TestAttacksOnTheOutlet(t *testing.T) {
	require(t, needUserns)
	listed := server(t, serversAt, "listed")
	hits, control := canaries(t, listed) // the same port: only the address is another
	want := control()
	if hits.Load() != want {
		t.Fatalf("control: %d of %d connections arrived", hits.Load(), want)
	}
	sibling := open(t, reaching(t, "host: 127.0.0.3, port: "+listed))
	log := newDirIn(t, "/var/tmp") + "/audit/s.jsonl"
	s := open(t, reaching(t, "host: "+serversAt+", port: "+listed), audited(log))
	sibling.ok(netTools)
	contains(t, "control: the sibling", sibling.ok(fmt.Sprintf("get('http://127.0.0.3:%s/')", listed)).value(), "canary")
	want++
	s.ok(netTools + fmt.Sprintf(`
PORT = %s
def ask(request, until=65536):
    try: return proxied(request if isinstance(request, bytes) else request.encode(), until).decode(errors="replace")
    except OSError as problem: return type(problem).__name__
def connect(target): return ask(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 12)
def plain(url, headers=""): return ask(f"GET {url} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n")
def socks(kind, address): return proxied(b"\x05\x01\x00\x05\x01\x00" + bytes([kind]) + address + PORT.to_bytes(2, "big"), 4).hex()
v4, v6 = socket.inet_aton, lambda a: socket.inet_pton(socket.AF_INET6, a)
named = lambda n: bytes([len(n)]) + n.encode()
def udp(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
        try: u.sendto(b"x", address); u.settimeout(1); u.recv(1); return "answered"
        except OSError as problem: return type(problem).__name__
`, listed))
	for _, c := range outletAttacks {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			got := s.ok(c.code).value()
			if !strings.Contains(got, c.want) || strings.Contains(got, "canary") {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	s.t = t
	s.alive()
	if err := s.kernel.Close(); err != nil {
		t.Fatal(err)
	}
	// What leads out of the session is one record. Loopback is its own, and what is no
	// request is nothing that could be decided.
	found := deniedByCell(t, log)
	for i, c := range outletAttacks {
		told := 0
		if slices.Contains([]string{"403", "05000502", "OSError"}, c.want) {
			told = 1
		}
		if got := found[i+2]; len(got) != told { // the first cell brought the tools
			t.Errorf("%s: %d records, want %d: %q", c.name, len(got), told, got)
		}
	}
	if got := hits.Load(); got != want {
		t.Errorf("%d connections came to servers that are not on the list", got-want)
	}
}
