package policy

import (
	"net/netip"
	"testing"
)

const listed = `version: 1
name: net
fs: {}
net:
  mode: allow
  allow:
    - {id: pypi, host: pypi.org, port: 443, reason: r}
    - {id: wild, host: "*.example.com", port: [80, 443], reason: r}
    - {id: lan, host: 10.1.0.0/16, port: any, reason: r}
    - {id: all, host: 0.0.0.0/0, port: 9999, reason: r}
    - {id: meta, host: 169.254.169.254, port: 8080, reason: r}
    - {id: six, host: "2001:db8::/32", port: 443, reason: r}
  inbound:
    - {name: web, port: 8000, reason: r}
`

func TestConnections(t *testing.T) {
	report, enforce := compiled(t, listed, Facts{SessionDir: "/s"}, Report), compiled(t, listed, Facts{SessionDir: "/s"}, Enforce)
	for _, c := range []struct {
		name    string
		host    string
		addr    string
		port    int
		outward bool
		want    string // rule
		allowed bool
	}{
		{"a name", "pypi.org", "", 443, true, "pypi", true},
		{"in another case, with a dot", "PyPI.ORG.", "", 443, true, "pypi", true},
		{"another port", "pypi.org", "", 80, true, "net.unlisted", false},
		{"a longer name", "pypi.org.evil.com", "", 443, true, "net.unlisted", false},
		{"a name that ends like it", "evilpypi.org", "", 443, true, "net.unlisted", false},
		{"beneath a wildcard", "a.b.example.com", "", 443, true, "wild", true},
		{"the wildcard's own name", "example.com", "", 443, true, "net.unlisted", false},
		{"a name that ends like a wildcard", "evilexample.com", "", 443, true, "net.unlisted", false},
		{"a name that leads to a public address", "pypi.org", "151.101.0.223", 443, true, "pypi", true},
		{"a name that leads to loopback", "pypi.org", "127.0.0.1", 443, true, "net.guarded", false},
		{"a name that leads to metadata", "pypi.org", "169.254.169.254", 443, true, "net.guarded", false},
		{"a name that leads to a private address", "pypi.org", "192.168.1.1", 443, true, "net.guarded", false},
		{"a name that leads to a mapped address", "pypi.org", "::ffff:10.9.0.1", 443, true, "net.guarded", false},
		{"a name that leads through NAT64", "pypi.org", "64:ff9b::a9fe:a9fe", 443, true, "net.guarded", false},
		{"a name that leads through 6to4", "pypi.org", "2002:7f00:1::1", 443, true, "net.guarded", false},
		{"a name that leads to a listed network", "any.name", "10.1.2.3", 22, true, "lan", true},
		{"an address of a listed network", "10.1.2.3", "", 22, true, "lan", true},
		{"a neighbour of that network", "10.2.2.3", "", 22, true, "net.guarded", false},
		{"everything, but not metadata", "169.254.169.254", "", 9999, true, "net.guarded", false},
		{"everything, but not loopback", "127.0.0.1", "", 9999, true, "net.guarded", false},
		{"everything", "8.8.8.8", "", 9999, true, "all", true},
		{"everything, by a mapped address", "[::ffff:8.8.8.8]", "", 9999, true, "all", true},
		{"metadata, listed by itself", "169.254.169.254", "", 8080, true, "meta", true},
		{"IPv6", "2001:db8::1", "", 443, true, "six", true},
		{"an octal address", "0177.0.0.1", "", 9999, true, "net.target", false},
		{"a decimal address", "2130706433", "", 9999, true, "net.target", false},
		{"a hexadecimal address", "0x7f.1", "", 9999, true, "net.target", false},
		{"a short address", "127.1", "", 9999, true, "net.target", false},
		{"another alphabet", "pypі.org", "", 443, true, "net.target", false},
		{"a zero byte", "pypi.org\x00.evil.com", "", 443, true, "net.target", false},
		{"half an address in brackets", "[8.8.8.8", "", 9999, true, "net.target", false},
		{"a name in brackets", "[pypi.org]", "", 443, true, "net.target", false},
		{"the unspecified address", "0.0.0.0", "", 9999, true, "net.guarded", false},
		{"the session's own loopback, unspecified", "0.0.0.0", "", 5000, false, "ground.loopback", true},
		{"the session's own loopback, unspecified, by IPv6", "::", "", 5000, false, "ground.loopback", true},
		{"no port", "pypi.org", "", 0, true, "net.target", false},
		{"the session's own loopback", "127.0.0.1", "", 5000, false, "ground.loopback", true},
		{"the session's own loopback by name", "localhost", "", 5000, false, "ground.loopback", true},
		{"the host's loopback by name", "localhost", "", 9999, true, "net.unlisted", false},
		{"an address alone", "", "8.8.4.4", 9999, false, "all", true},
	} {
		op := NetOp{Kind: Connect, Host: c.host, Port: c.port, Outward: c.outward}
		if c.addr != "" {
			op.Addr = netip.MustParseAddr(c.addr)
		}
		d := enforce.DecideNet(op)
		if d.Rule != c.want || d.Allowed() != c.allowed || !c.allowed && !d.Enforced {
			t.Errorf("%s: %+v, want %s", c.name, d, c.want)
		}
		if r := report.DecideNet(op); r.Effect != d.Effect || r.Rule != d.Rule {
			t.Errorf("%s: %+v in report, %+v in enforce", c.name, r, d)
		}
		if c.allowed && c.addr == "" && c.want == "pypi" && (len(d.Obligations) != 1 || d.Obligations[0] != ObligeAddress) {
			t.Errorf("%s: a name is allowed without asking again for its address: %+v", c.name, d)
		}
	}
	if d := report.DecideNet(NetOp{Kind: Connect, Host: "pypi.org", Addr: netip.MustParseAddr("127.0.0.1"), Port: 443, Outward: true}); !d.Enforced {
		t.Errorf("what a name leads to is guarded in every mode: %+v", d)
	}
	if d := report.DecideNet(NetOp{Kind: Connect, Host: "evil.com", Port: 443}); d.Allowed() || d.Enforced {
		t.Errorf("in report a connection is made and reported: %+v", d)
	}
	if d := enforce.DecideNet(NetOp{Kind: Connect, Proto: "udp", Host: "8.8.8.8", Port: 9999}); d.Rule != "net.proto" {
		t.Errorf("udp: %+v", d)
	}
	for host, want := range map[string]string{"PyPI.org.": "pypi", "x.example.com": "wild", "example.com": "net.unlisted", "10.1.2.3": "net.unlisted",
		"localhost": "ground.loopback", "a b": "net.target"} {
		if d := enforce.DecideNet(NetOp{Kind: Lookup, Host: host}); d.Rule != want || d.Allowed() != (want[:3] != "net") {
			t.Errorf("lookup of %q: %+v, want %s", host, d, want)
		}
	}
	if d := enforce.DecideNet(NetOp{Kind: Bind, Port: 8000}); d.Rule != "net.inbound.web" || !d.Allowed() || d.Obligations[0] != ObligeForward {
		t.Errorf("inbound: %+v", d)
	}
}

func TestNetworkOfADocument(t *testing.T) {
	plain := "version: 1\nname: x\nfs: {}\n"
	for _, c := range []struct {
		mode Mode
		net  Net
		want Net
		keep bool
	}{{Report, "", NetNone, false}, {Off, "", NetNone, false}, {Enforce, "", NetNone, true}, {Enforce, NetHost, NetHost, false}, {Report, NetNone, NetNone, true}} {
		if p := compiled(t, plain, Facts{SessionDir: "/s", Net: c.net}, c.mode); p.Network.Mode != c.want || p.Network.Enforced != c.keep {
			t.Errorf("mode %s, asked for %q: %+v, want %s, enforced %v", c.mode, c.net, p.Network, c.want, c.keep)
		}
	}
	p := compiled(t, listed, Facts{SessionDir: "/s", Net: NetNone}, Report)
	if d := p.DecideNet(NetOp{Kind: Connect, Host: "pypi.org", Port: 443}); d.Rule != "net.none" || !d.Enforced {
		t.Errorf("a network that was taken away: %+v", d)
	}
	if _, _, err := Compile(parse(t, plain), Facts{SessionDir: "/s", Net: NetAllow}); err == nil {
		t.Error("an allow list that is not there was compiled")
	}
}

// FuzzDecideNet: whatever the name, nothing guarded is reached through it, and
// the modes agree.
func FuzzDecideNet(f *testing.F) {
	report, enforce := compiled(f, listed, Facts{SessionDir: "/s"}, Report), compiled(f, listed, Facts{SessionDir: "/s"}, Enforce)
	f.Add("pypi.org", []byte{127, 0, 0, 1}, 443)
	f.Add("a.example.com", []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}, 80)
	f.Fuzz(func(t *testing.T, host string, raw []byte, port int) {
		addr, _ := netip.AddrFromSlice(raw)
		op := NetOp{Kind: Connect, Host: host, Addr: addr, Port: port, Outward: true}
		a, b := report.DecideNet(op), enforce.DecideNet(op)
		if a.Effect != b.Effect || a.Rule != b.Rule {
			t.Errorf("%+v: %+v in report, %+v in enforce", op, a, b)
		}
		lan, meta := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParseAddr("169.254.169.254")
		if b.Allowed() && addr.IsValid() && Guarded(addr) != "" && !lan.Contains(inner(addr)) && !(inner(addr) == meta && port == 8080) {
			t.Errorf("%+v is allowed", op)
		}
	})
}
