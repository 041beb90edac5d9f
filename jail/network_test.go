package jail

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

func socketsOf(list ...string) []Socket {
	var out []Socket
	for _, s := range list {
		network, addr, _ := strings.Cut(s, " ")
		out = append(out, Socket{Network: network, Addr: netip.MustParseAddrPort(addr), Reason: "test"})
	}
	return out
}

// startHeard starts a jail whose output, both streams in one, is then read.
func startHeard(t *testing.T, spec Spec) (*Process, *os.File) {
	t.Helper()
	p, err := Compile(spec, Probe())
	if err != nil {
		t.Fatal(err)
	}
	outR, outW := pipe(t)
	process, err := Start(context.Background(), p, StartOptions{Stdout: outW, Stderr: outW})
	outW.Close()
	if err != nil {
		t.Fatal(err)
	}
	return process, outR
}

// TestSocketsAreTheJailsNetwork: what the launcher listens on is inside, at the
// lowest ports too, and nowhere else.
func TestSocketsAreTheJailsNetwork(t *testing.T) {
	spec := testSpec(t, TreeReadOnly, python, "-I", "-c", `
import socket
def ask(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(10); s.connect(address); s.sendall(b"x")
        return s.recv(100).decode()
print(ask(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 80)), ask(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 53)))`)
	spec.Sockets = socketsOf("tcp 127.0.0.1:80", "udp 127.0.0.1:53")
	process, outR := startHeard(t, spec)
	files := process.Sockets()
	if len(files) != 2 {
		t.Fatalf("%d sockets, want 2", len(files))
	}
	defer closeFiles(files)
	if again := process.Sockets(); again != nil {
		t.Errorf("handed over twice: %v", again)
	}
	listener, err := net.FileListener(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	packets, err := net.FilePacketConn(files[1])
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.ReadFull(c, make([]byte, 1))
		io.WriteString(c, "stream")
	}()
	go func() {
		b := make([]byte, 10)
		if _, from, err := packets.ReadFrom(b); err == nil {
			packets.WriteTo([]byte("packet"), from)
		}
	}()
	out, _ := io.ReadAll(outR)
	process.Wait()
	if got := strings.TrimSpace(string(out)); got != "stream packet" {
		t.Errorf("inside: %s", got)
	}
}

// TestLocalNetworks: connections to their addresses come to the launcher and say what
// they were meant for; no other address, and no loopback of the session's, does.
func TestLocalNetworks(t *testing.T) {
	spec := testSpec(t, TreeReadOnly, python, "-I", "-c", `
import errno, socket
def ask(host, port=80):
    try:
        with socket.create_connection((host, port), 10) as s: return s.recv(100).decode()
    except OSError as e: return errno.errorcode[e.errno]
own = socket.create_server(("127.0.0.1", 8080))
for host in ("203.0.113.9", "203.0.113.255", "203.0.114.1", "198.51.100.1", "2001:db8::7", "2001:db9::7"): print(host, ask(host))
print("other port", ask("203.0.113.9", 8080))
print("own", socket.create_connection(("127.0.0.1", 8080), 10).getpeername()[0])`)
	spec.Local = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.51.100.1/32"), netip.MustParsePrefix("2001:db8::/32")}
	spec.Sockets = socketsOf("tcp 0.0.0.0:80", "tcp [::]:80")
	process, outR := startHeard(t, spec)
	for _, f := range process.Sockets() {
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, "meant for "+c.LocalAddr().String())
				c.Close()
			}
		}()
	}
	out, _ := io.ReadAll(outR)
	process.Wait()
	want := `203.0.113.9 meant for 203.0.113.9:80
203.0.113.255 meant for 203.0.113.255:80
203.0.114.1 ENETUNREACH
198.51.100.1 meant for 198.51.100.1:80
2001:db8::7 meant for [2001:db8::7]:80
2001:db9::7 ENETUNREACH
other port ECONNREFUSED
own 127.0.0.1`
	if got := strings.TrimSpace(string(out)); got != want {
		t.Errorf("inside:\n%s", got)
	}
}

// TestDial: the launcher connects to what the jail serves, and a connection that comes
// to nothing says why.
func TestDial(t *testing.T) {
	spec := testSpec(t, TreeReadOnly, python, "-I", "-c", `
import socket, threading
def serve(s, word):
    while True:
        c, _ = s.accept(); c.sendall(word + c.recv(100)); c.close()
for family, at, word in ((socket.AF_INET, ("127.0.0.1", 8000), b"four "), (socket.AF_INET6, ("::1", 8001), b"six ")):
    s = socket.create_server(at, family=family); threading.Thread(target=serve, args=(s, word)).start()
print("up", flush=True)`)
	process := startPython(t, spec)
	ask := func(port int) string {
		c, err := process.Dial(context.Background(), port)
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		io.WriteString(c, "hello")
		all, _ := io.ReadAll(c)
		return string(all)
	}
	for range 20 {
		if a, b := ask(8000), ask(8001); a != "four hello" || b != "six hello" {
			t.Fatalf("%s, %s", a, b)
		}
	}
	if got := ask(8002); got != "port 8002 of the jail: connection refused" {
		t.Error(got)
	}
	done := make(chan string, 50)
	for range cap(done) {
		go func() { done <- ask(8000) }()
	}
	for range cap(done) {
		if got := <-done; got != "four hello" {
			t.Error(got)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := process.Dial(gone, 8000); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
	if got := ask(8000); got != "four hello" {
		t.Errorf("after one that was cancelled: %s", got)
	}
	process.Kill()
	<-process.Done()
	if _, err := process.Dial(context.Background(), 8000); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("%v, want that the jail is gone", err)
	}
}

func TestSocketsThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"in the host's network": func(s *Spec) { s.Network = NetHost },
		"without a port":        func(s *Spec) { s.Sockets[0].Addr = netip.MustParseAddrPort("127.0.0.1:0") },
		"of another kind":       func(s *Spec) { s.Sockets[0].Network = "sctp" },
		"twice":                 func(s *Spec) { s.Sockets = append(s.Sockets, s.Sockets[0]) },
		"a network that stands twice": func(s *Spec) {
			s.Local = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("203.0.113.0/24")}
		},
		"a network with bits beyond": func(s *Spec) { s.Local = []netip.Prefix{netip.MustParsePrefix("203.0.113.1/24")} },
		"a network of the host's": func(s *Spec) {
			s.Network, s.Sockets, s.Local = NetHost, nil, []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
		},
		"without an address": func(s *Spec) { s.Sockets[0].Addr = netip.AddrPort{} },
	} {
		spec := handMadeSpec(TreeReadOnly)
		spec.Sockets = socketsOf("tcp 127.0.0.1:80")
		change(&spec)
		var wrong *SpecError
		if _, err := Compile(spec, handMade(false)); !errors.As(err, &wrong) {
			t.Errorf("%s: %v, want a spec error", name, err)
		}
	}
}
