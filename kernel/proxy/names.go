package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"cellblock/policy"
)

// Pool is where the addresses of names come from: for benchmarks within a network
// (RFC 2544), so that no host of the internet has one.
var Pool = netip.MustParsePrefix("198.18.0.0/16")

// maxNames is how many names of one session have an address.
const maxNames = 4096

// Names gives names addresses for as long as a session lives. Its methods may be
// called from any goroutine.
type Names struct {
	mu    sync.Mutex
	next  netip.Addr
	addrs map[string]netip.Addr
	names map[netip.Addr]string
}

// NewNames makes one in which these names, canonical as in a policy, have the first
// addresses of the pool, in this order.
func NewNames(first ...string) *Names {
	n := &Names{next: Pool.Addr(), addrs: map[string]netip.Addr{}, names: map[netip.Addr]string{}}
	for _, name := range first {
		n.Address(name)
	}
	return n
}

// Has reports whether an address is one that only names of the session have.
func (n *Names) Has(addr netip.Addr) bool { return Pool.Contains(addr.Unmap()) }

// Of is the name that has an address.
func (n *Names) Of(addr netip.Addr) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, ok := n.names[addr.Unmap()]
	return name, ok
}

// Address is the address of a name, from now on; false when there are too many.
func (n *Names) Address(name string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr, ok := n.addrs[name]; ok {
		return addr, true
	}
	if len(n.addrs) >= maxNames {
		return netip.Addr{}, false
	}
	n.next = n.next.Next()
	n.addrs[name], n.names[n.next] = n.next, name
	return n.next, true
}

// Both are bounds on what is read of a session's questions.
const (
	maxPacket = 1232 // bytes, as resolvers use it today
	timeToAsk = 30 * time.Second
)

// answerTTL is for how long a program may keep an address, in seconds; the session
// keeps it as long as it lives.
const answerTTL = 60

// ServeNames answers questions for addresses, by UDP and TCP, until both are closed or
// the server is. Names that the policy lists have an address of [Names]; others do not
// exist.
func (s *Server) ServeNames(packets net.PacketConn, streams net.Listener) {
	if !s.track(packets) {
		streams.Close()
		return
	}
	defer s.untrack(packets)
	s.ended.Go(func() { s.accept(streams, s.serveNames) })
	defer packets.Close()
	var told asked
	b := make([]byte, maxPacket)
	for {
		n, from, err := packets.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		if reply := s.answer(b[:n], from.String(), &told); reply != nil {
			_, _ = packets.WriteTo(reply, from) // who has gone needs no answer
		}
	}
}

// serveNames is a connection with questions, each with its length before it (RFC 1035).
func (s *Server) serveNames(c *conn) {
	defer c.Close()
	var told asked
	for {
		_ = c.SetDeadline(time.Now().Add(timeToAsk))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > maxPacket {
			return
		}
		question := make([]byte, n)
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		reply := s.answer(question, "", &told)
		if reply == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// asked is who asked last, and for what: programs ask for IPv4 and IPv6 of a name at
// once, from one port, and that is one look-up.
type asked struct {
	from, name string
	kind       dnsmessage.Type
}

func (a *asked) again(from, name string, kind dnsmessage.Type) bool {
	other := a.from == from && a.name == name && a.kind != kind
	*a = asked{from, name, kind}
	if other {
		*a = asked{} // a third question is the next look-up
	}
	return other
}

// answer makes the reply to one message; nil for what is no question.
func (s *Server) answer(message []byte, from string, told *asked) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(message)
	if err != nil || head.Response {
		return nil
	}
	reply := dnsmessage.Header{ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired, RecursionAvailable: true}
	question, err := p.Question()
	if head.OpCode != 0 {
		reply.RCode = dnsmessage.RCodeNotImplemented
		return build(reply, nil, netip.Addr{})
	}
	if err != nil {
		reply.RCode = dnsmessage.RCodeFormatError
		return build(reply, nil, netip.Addr{})
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		reply.RCode = dnsmessage.RCodeFormatError // RFC 9619: one question
		return build(reply, nil, netip.Addr{})
	}
	name := canonical(question.Name.String())
	op := policy.NetOp{Kind: policy.Lookup, Host: name}
	d := s.config.Decide(op)
	var addr netip.Addr
	switch {
	case question.Class != dnsmessage.ClassINET || name == "":
		reply.RCode = dnsmessage.RCodeRefused
	case name == "localhost":
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case !d.Allowed():
		reply.RCode = dnsmessage.RCodeNameError
		if !told.again(from, name, question.Type) {
			s.config.Refused(op, d, Name)
		}
	default:
		var ok bool
		if addr, ok = s.names.Address(name); !ok {
			reply.RCode = dnsmessage.RCodeServerFailure
		}
	}
	if question.Type != dnsmessage.TypeA {
		addr = netip.Addr{} // the name exists, and has nothing of this kind
	}
	return build(reply, &question, addr)
}

func build(head dnsmessage.Header, question *dnsmessage.Question, addr netip.Addr) []byte {
	b := dnsmessage.NewBuilder(nil, head)
	if question == nil {
		reply, err := b.Finish()
		if err != nil {
			return nil
		}
		return reply
	}
	err := errors.Join(b.StartQuestions(), b.Question(*question))
	if err == nil && addr.Is4() {
		err = errors.Join(b.StartAnswers(),
			b.AResource(dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: answerTTL}, dnsmessage.AResource{A: addr.As4()}))
	}
	reply, end := b.Finish()
	if err != nil || end != nil {
		return nil
	}
	return reply
}
