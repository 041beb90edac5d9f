package kernel

import (
	"fmt"
	"strings"
	"testing"

	"cellblock/policy"
)

func TestDirectConnections(t *testing.T) {
	for _, c := range []struct {
		name, rules, local, sockets, left string
	}{
		{"a name at a low port", "host: a.example, port: 443", "198.18.0.0/16", "0.0.0.0:443", ""},
		{"names at high ports", "host: a.example, port: [8080, 443]; host: b.example, port: 8080", "198.18.0.0/16", "198.18.0.1:8080 0.0.0.0:443 198.18.0.2:8080", ""},
		{"a wildcard", "host: '*.example', port: [443, 8080]", "198.18.0.0/16", "0.0.0.0:443", "0: ports from 1024 on are served directly for single hosts only"},
		{"any port", "host: a.example, port: any", "", "", "0: it names no ports"},
		{"a network", "host: 10.0.0.0/8, port: [22, 5432]", "10.0.0.0/8", "0.0.0.0:22", "0: ports from 1024 on are served directly for single hosts only"},
		{"an address", "host: 10.0.0.5, port: [22, 5432]", "10.0.0.5/32", "0.0.0.0:22 10.0.0.5:5432", ""},
		{"the same twice", "host: 10.0.0.5, port: 22; host: 10.0.0.5/32, port: [22, 23]", "10.0.0.5/32", "0.0.0.0:22 0.0.0.0:23", ""},
		{"IPv6", "host: '2001:db8::/32', port: 443; host: '2001:db8::1', port: 8080", "2001:db8::/32 2001:db8::1/128", "[::]:443 [2001:db8::1]:8080", ""},
		{"loopback", "host: 127.0.0.2, port: 80", "", "", "0: loopback inside is the session's own"},
	} {
		text := "version: 1\nname: x\nfs: {}\nnet:\n  mode: allow\n  allow:\n"
		for _, r := range strings.Split(c.rules, "; ") {
			text += "    - {" + r + ", reason: r}\n"
		}
		doc, err := policy.Parse("x.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := policy.Compile(doc, policy.Facts{SessionDir: "/s", Mode: policy.Enforce})
		if err != nil {
			t.Fatal(err)
		}
		d := directFor(p.Network)
		var local, sockets, left []string
		for _, l := range d.local {
			local = append(local, l.String())
		}
		for _, s := range d.sockets {
			sockets = append(sockets, s.addr.String())
		}
		for i, why := range d.left {
			left = append(left, fmt.Sprintf("%d: %s", i, why))
		}
		if strings.Join(local, " ") != c.local || strings.Join(sockets, " ") != c.sockets || strings.Join(left, " ") != c.left {
			t.Errorf("%s: local %v, sockets %v, left %v", c.name, local, sockets, left)
		}
	}
	var ports []int
	for port := 1; port <= 500; port++ {
		ports = append(ports, port)
	}
	if d := directFor(policy.Network{Mode: policy.NetAllow, Allow: []policy.NetRule{{Host: "a.example", Ports: ports}}}); len(d.sockets) != maxDirect || len(d.left) != 1 {
		t.Errorf("%d sockets, left %v", len(d.sockets), d.left)
	}
}
