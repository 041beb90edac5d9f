package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// resolverOf asks a server as a program does.
func resolverOf(t *testing.T, w *world, network string) *net.Resolver {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go w.server.ServeNames(packets, streams)
	to := packets.LocalAddr().String()
	if network == "tcp" {
		to = streams.Addr().String()
	}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}}
}

func TestNames(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		t.Run(network, func(t *testing.T) {
			w := newWorld(t)
			r := resolverOf(t, w, network)
			look := func(name string) string {
				addrs, err := r.LookupHost(context.Background(), name)
				var unknown *net.DNSError
				if err != nil && (!errors.As(err, &unknown) || !unknown.IsNotFound) {
					t.Errorf("%s: %v, want that there is no such host", name, err)
				}
				return strings.Join(addrs, " ")
			}
			if a, b, again := look("web.example."), look("A.Example.com."), look("WEB.example."); a != "198.18.0.1" || b != "198.18.0.2" || again != a {
				t.Errorf("%s, %s, %s", a, b, again)
			}
			if got := look("evil.example."); got != "" {
				t.Errorf("a name that is not listed has %s", got)
			}
			if got := look("secret-in-a-label.evil.example."); got != "" {
				t.Errorf("a name that is not listed has %s", got)
			}
			if got := look("localhost.localdomain."); got != "" {
				t.Errorf("a name that is not listed has %s", got)
			}
			looked, dialled, refused := w.seen()
			if looked != "" || dialled != "" {
				t.Errorf("a question went out: looked up %s, dialled %s", looked, dialled)
			}
			for _, name := range []string{"evil.example", "secret-in-a-label.evil.example", "localhost.localdomain"} {
				if !strings.Contains(", "+refused+",", ", "+name+" net.unlisted name,") {
					t.Errorf("%s is not told of: %s", name, refused)
				}
			}
			if name, ok := w.server.names.Of(Pool.Addr().Next()); !ok || name != "web.example" {
				t.Errorf("198.18.0.1 is %q", name)
			}
		})
	}
}

// TestOneLookupIsToldOnce: glibc asks for both kinds of address from one port.
func TestOneLookupIsToldOnce(t *testing.T) {
	w := newWorld(t)
	var told asked
	for _, ask := range []struct {
		name string
		kind dnsmessage.Type
		from string
	}{{"evil.example.", dnsmessage.TypeA, "127.0.0.1:5"}, {"evil.example.", dnsmessage.TypeAAAA, "127.0.0.1:5"},
		{"evil.example.", dnsmessage.TypeA, "127.0.0.1:6"}} {
		if reply := w.server.answer(question(t, ask.name, ask.kind), ask.from, &told); reply == nil {
			t.Error("no reply")
		}
	}
	if _, _, refused := w.seen(); refused != "evil.example net.unlisted name, evil.example net.unlisted name" {
		t.Errorf("refused %s", refused)
	}
}

func question(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNamesHaveABound(t *testing.T) {
	n := NewNames()
	for i := range maxNames {
		if addr, ok := n.Address(fmt.Sprintf("n%d.example", i)); !ok || !n.Has(addr) {
			t.Fatalf("name %d has %s", i, addr)
		}
	}
	if len(n.addrs) != maxNames {
		t.Fatalf("%d names have %d addresses", maxNames, len(n.addrs))
	}
	if _, ok := n.Address("one.more"); ok {
		t.Error("there is no bound")
	}
}

// FuzzQuestions: whatever is asked, the reply is one, and only a listed name has an
// address.
func FuzzQuestions(f *testing.F) {
	w := newWorld(f)
	f.Add(question(f, "web.example.", dnsmessage.TypeA))
	f.Add(question(f, "evil.example.", dnsmessage.TypeAAAA))
	f.Add([]byte{0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0xc0, 12})
	f.Fuzz(func(t *testing.T, sent []byte) {
		var told asked
		reply := w.server.answer(sent, "x", &told)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("%x: %v", reply, err)
		}
		if !m.Response || m.ID != uint16(sent[0])<<8|uint16(sent[1]) {
			t.Errorf("%+v", m)
		}
		for _, a := range m.Answers {
			name := canonical(a.Header.Name.String())
			if name != "web.example" && name != "localhost" && !strings.HasSuffix(name, ".example.com") {
				t.Errorf("%s has an address", name)
			}
		}
	})
}
