package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cellblock/kernel/front/http/api"
)

// caller is who asks: what sessions belong to.
type caller string

// uidCaller is a user of the host, as the Unix socket knows it.
func uidCaller(uid int) caller { return caller("uid:" + strconv.Itoa(uid)) }

// uid is the user's id; false for the owner of a token.
func (c caller) uid() (int, bool) {
	text, is := strings.CutPrefix(string(c), "uid:")
	uid, err := strconv.Atoi(text)
	return uid, is && err == nil
}

// peer is the process at the other end of a Unix socket when it connected.
type peer struct {
	uid, pid int
	err      error  // why Linux did not say
	users    string // the process's user namespace
	usersErr error  // why that is not known
}

func peerOf(c *net.UnixConn) peer {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{err: err}
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); ctlErr != nil {
		return peer{err: ctlErr}
	}
	if err != nil {
		return peer{err: err}
	}
	p := peer{uid: int(cred.Uid), pid: int(cred.Pid)}.placed()
	if gone := p.gone(raw); gone != nil {
		p.users, p.usersErr = "", gone
	}
	return p
}

// placed is the peer with its user namespace, looked at now and not at a request: the
// number may be another process's by then.
func (p peer) placed() peer {
	p.users, p.usersErr = os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/ns/user")
	return p
}

// gone says that the process which connected has ended, so that what was read of its
// number may be another's. Before Linux 6.5 nobody can tell.
func (p peer) gone(raw syscall.RawConn) error {
	if p.pid == 0 {
		return nil // not in this process's pid namespace: no number was read
	}
	const peerPIDFD = 77 // SO_PEERPIDFD, asm-generic/socket.h
	var fd int
	var err error
	if ctlErr := raw.Control(func(c uintptr) { fd, err = unix.GetsockoptInt(int(c), unix.SOL_SOCKET, peerPIDFD) }); ctlErr != nil {
		return ctlErr
	}
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		return nil
	case err != nil:
		return fmt.Errorf("process %d has ended: %w", p.pid, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d has ended", p.pid)
	}
	return nil
}

// overflowUID is what Linux says of a user that has no id in this user namespace: it
// stands for anybody, and therefore for nobody.
const overflowUID = 65534

// admit says whether a peer may use the server whose own user is self.
func (p peer) admit(self int, listed []int) error {
	switch {
	case p.err != nil:
		return fmt.Errorf("who connects is not known: %w", p.err)
	case p.uid == overflowUID && self != overflowUID:
		return errors.New("a user without an id here may not use this server")
	case p.uid != 0 && p.uid != self && !slices.Contains(listed, p.uid):
		return fmt.Errorf("user %d may not use this server: its operator lists a user with --allow-uid", p.uid)
	}
	return p.outside(self)
}

// outside refuses a peer from within a session: as an ordinary user's server has the
// same user as its sessions, the user alone does not tell them apart. They have user
// namespaces of their own. It is a second wall: the socket is hidden from sessions.
func (p peer) outside(self int) error {
	if p.pid == 0 {
		return nil // not in this process's pid namespace, as every session is
	}
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return fmt.Errorf("cannot tell where this server runs: %w", err)
	}
	switch {
	case p.usersErr == nil && p.users == own:
		return nil
	case errors.Is(p.usersErr, os.ErrPermission) && p.uid != self:
		return nil // another user's process, and a session's is never another user's then
	case p.usersErr != nil:
		return fmt.Errorf("cannot tell where process %d runs: %w", p.pid, p.usersErr)
	}
	return fmt.Errorf("process %d runs in another user namespace, as a session does, and may not use this server", p.pid)
}

// tcp is the address that a connection over TCP was made to.
type tcp struct{ addr string }

type connKey struct{}

// known is an http.Server's ConnContext: it notes who is at the other end.
func known(ctx context.Context, c net.Conn) context.Context {
	if counted, ok := c.(*conn); ok {
		c = counted.Conn
	}
	switch c := c.(type) {
	case *net.UnixConn:
		return context.WithValue(ctx, connKey{}, peerOf(c))
	case *net.TCPConn:
		return context.WithValue(ctx, connKey{}, tcp{c.LocalAddr().String()})
	}
	return ctx
}

// identify says who makes a request, or what to answer. Where open is set, a token is
// not asked for.
func (s *Server) identify(r *http.Request, open bool) (caller, *answer) {
	// No page in a browser has anything to say here. Browsers send Origin with each
	// request that could change something, and no client of ours sends it.
	if r.Header.Get("Origin") != "" {
		return "", refuse(http.StatusForbidden, api.CodeOrigin, "requests of pages in a browser (header Origin) are refused")
	}
	switch c := r.Context().Value(connKey{}).(type) {
	case peer:
		if err := c.admit(s.uid, s.config.UIDs); err != nil {
			return "", refuse(http.StatusForbidden, api.CodeCaller, "%v", err)
		}
		return uidCaller(c.uid), nil
	case tcp:
		// A page whose name leads to loopback (DNS rebinding) says that name here.
		if !loopbackName(r.Host, c.addr) {
			return "", refuse(http.StatusForbidden, api.CodeOrigin, "header Host: %.100q is not how this server is reached; use %s", r.Host, c.addr)
		}
		if open {
			return "", nil
		}
		token, is := bearer(r.Header.Get("Authorization"))
		if !is {
			return "", refuse(http.StatusUnauthorized, api.CodeToken, "no token: give one in the header 'Authorization: Bearer TOKEN'")
		}
		name, known := s.tokens.find(token)
		if !known {
			return "", refuse(http.StatusUnauthorized, api.CodeToken, "the token is none of this server's")
		}
		return caller("token:" + name), nil
	}
	return "", refuse(http.StatusForbidden, api.CodeCaller, "nobody knows who makes this request")
}

// loopbackName reports whether host names the loopback address addr.
func loopbackName(host, addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	return host == addr || strings.EqualFold(host, "localhost:"+port)
}

// bearer is the token of the header Authorization.
func bearer(header string) (string, bool) {
	scheme, token, found := strings.Cut(header, " ")
	return strings.TrimSpace(token), found && strings.EqualFold(scheme, "Bearer")
}
