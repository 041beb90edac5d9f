package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"cellblock/policy"
)

// SOCKS protocol version 5, RFC 1928.
const (
	socksVersion = 5

	socksNoLogin  = 0x00 // of the methods that a client offers
	socksNoMethod = 0xff

	socksConnect = 1 // the one command

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4

	socksDone          = 0
	socksFailed        = 1
	socksRefused       = 2 // by the policy
	socksNetDown       = 3
	socksNoHost        = 4
	socksNoService     = 5 // the host refuses
	socksTooLate       = 6
	socksNoCommand     = 7
	socksNoAddressType = 8
)

// socksError is an answer to a request that cannot be carried out.
type socksError byte

func (socksError) Error() string { return "socks: request refused" }

// readSocks reads greeting and request, and answers the greeting.
func readSocks(rw io.ReadWriter) (policy.NetOp, error) {
	var b [256]byte
	read := func(n int) ([]byte, error) {
		_, err := io.ReadFull(rw, b[:n])
		return b[:n], err
	}
	head, err := read(2)
	if err != nil {
		return policy.NetOp{}, err
	}
	if head[0] != socksVersion {
		return policy.NetOp{}, io.ErrUnexpectedEOF
	}
	methods, err := read(int(head[1]))
	if err != nil {
		return policy.NetOp{}, err
	}
	method := byte(socksNoMethod)
	for _, m := range methods {
		if m == socksNoLogin {
			method = m
		}
	}
	if _, err := rw.Write([]byte{socksVersion, method}); err != nil {
		return policy.NetOp{}, err
	}
	if method == socksNoMethod {
		return policy.NetOp{}, io.EOF
	}
	head, err = read(4)
	if err != nil {
		return policy.NetOp{}, err
	}
	version, command, kind := head[0], head[1], head[3]
	if version != socksVersion {
		return policy.NetOp{}, socksError(socksFailed)
	}
	var op policy.NetOp
	switch kind {
	case socksIPv4, socksIPv6:
		size := 4
		if kind == socksIPv6 {
			size = 16
		}
		raw, err := read(size)
		if err != nil {
			return op, err
		}
		addr, _ := netip.AddrFromSlice(raw)
		op.Host = addr.String()
	case socksName:
		size, err := read(1)
		if err != nil {
			return op, err
		}
		name, err := read(int(size[0]))
		if err != nil {
			return op, err
		}
		if op.Host = string(name); op.Host == "" {
			return op, socksError(socksFailed)
		}
	default:
		return op, socksError(socksNoAddressType)
	}
	port, err := read(2)
	if err != nil {
		return op, err
	}
	op.Port = int(port[0])<<8 | int(port[1])
	if command != socksConnect {
		return op, socksError(socksNoCommand)
	}
	return op, nil
}

func (s *Server) serveSocks(c *conn) {
	_ = c.SetWriteDeadline(time.Now().Add(setupTime))
	op, err := readSocks(c)
	var up net.Conn
	if err == nil {
		up, err = s.reach(s.ctx, op, Asked)
	}
	if code, known := socksCode(err); known {
		if _, wrong := c.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0}); wrong != nil && err == nil {
			err = wrong
			up.Close()
		}
	}
	if err != nil {
		c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	s.tunnel(c, up)
}

// socksCode is the answer to what came of a request; none to one that was not read.
func socksCode(err error) (code byte, known bool) {
	var own socksError
	var unknown *net.DNSError
	switch {
	case err == nil:
		return socksDone, true
	case errors.As(err, &own):
		return byte(own), true
	case errors.As(err, new(*refusedError)):
		return socksRefused, true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, false
	case errors.Is(err, syscall.ECONNREFUSED):
		return socksNoService, true
	case errors.Is(err, syscall.ENETUNREACH):
		return socksNetDown, true
	case errors.As(err, &unknown), errors.Is(err, errUnknownName), errors.Is(err, syscall.EHOSTUNREACH):
		return socksNoHost, true
	case errors.Is(err, context.DeadlineExceeded):
		return socksTooLate, true
	}
	return socksFailed, true
}
