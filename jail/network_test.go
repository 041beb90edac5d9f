package jail

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
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
	files := process.Sockets()
	if len(files) != 2 {
		t.Fatalf("%d sockets, want 2", len(files))
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
	if _, err := process.Sockets()[0].Stat(); err == nil {
		t.Error("the jail has ended and its sockets are open")
	}
}

func TestSocketsThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"in the host's network": func(s *Spec) { s.Network = NetHost },
		"without a port":        func(s *Spec) { s.Sockets[0].Addr = netip.MustParseAddrPort("127.0.0.1:0") },
		"of another kind":       func(s *Spec) { s.Sockets[0].Network = "sctp" },
		"twice":                 func(s *Spec) { s.Sockets = append(s.Sockets, s.Sockets[0]) },
		"without an address":    func(s *Spec) { s.Sockets[0].Addr = netip.AddrPort{} },
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
