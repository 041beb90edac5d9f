package kernel

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"cellblock/policy"
)

// TestAddressesOfListedNames: a connection that is told of by its address is judged by
// the names that were looked up, as far as the launcher finds the same address.
func TestAddressesOfListedNames(t *testing.T) {
	doc, err := policy.Parse("x.yaml", []byte("version: 1\nname: x\nfs: {}\nnet:\n  mode: allow\n  allow:\n    - {host: a.example, port: 443, reason: r}\n    - {host: gone.example, port: 443, reason: r}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Compile(doc, policy.Facts{SessionDir: "/s", Mode: policy.Report})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	l := lookups{find: func(_ context.Context, name string) ([]netip.Addr, error) {
		asked++
		if name != "a.example" {
			return nil, errors.New("no such name")
		}
		return []netip.Addr{netip.MustParseAddr("::ffff:203.0.113.1"), netip.MustParseAddr("10.0.0.1")}, nil
	}}
	sees := func(target, proto string) bool {
		at := netip.MustParseAddrPort(target)
		d := p.DecideNet(policy.NetOp{Kind: policy.Connect, Proto: proto, Addr: at.Addr(), Port: int(at.Port())})
		return l.listed(context.Background(), p, &sighting{op: "connect", target: target, proto: proto, decision: d})
	}
	if sees("203.0.113.1:443", "") || asked != 0 {
		t.Error("no name was looked up, and the address is taken for one of a listed name")
	}
	for _, name := range []string{"gone.example", "a.example", "a.example"} {
		l.add(name)
	}
	for target, want := range map[string]bool{"203.0.113.1:443": true, "203.0.113.1:80": false, "203.0.113.2:443": false, "10.0.0.1:443": false, "[::1]:443": false} {
		if got := sees(target, ""); got != want {
			t.Errorf("%s: %v, want %v", target, got, want)
		}
	}
	if sees("203.0.113.1:443", "udp") {
		t.Error("a datagram is taken for a connection to a listed name")
	}
	if asked != 2 {
		t.Errorf("%d look-ups for two names", asked)
	}
}
