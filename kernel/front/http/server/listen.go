package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"cellblock/kernel/front/http/api"
)

// door is one listener, and what has to be undone when it closes.
type door struct {
	*counted
	lock *os.File // held while a Unix socket of ours is served; nil for others
	path string   // of that socket
}

func (d *door) close() {
	d.Close()
	if d.lock != nil {
		os.Remove(d.path)
		_ = d.lock.Truncate(0) // the number may be another process's one day
		d.lock.Close()
	}
}

// Addr is where the door is reached.
func (d *door) Addr() net.Addr {
	if d.lock != nil {
		return &net.UnixAddr{Name: d.path, Net: "unix"}
	}
	return d.counted.Addr()
}

// open opens what the configuration names. Either all listeners are there or none is.
func open(c api.Config) (doors []*door, err error) {
	defer func() {
		if err != nil {
			for _, d := range doors {
				d.close()
			}
			doors = nil
		}
	}()
	if c.Activated {
		listeners, err := activated()
		for _, l := range listeners {
			doors = append(doors, &door{counted: newCounted(l, c.Bounds.Connections)})
		}
		return doors, err
	}
	if c.Listen != "" {
		l, err := listenLoopback(c.Listen)
		if err != nil {
			return doors, err
		}
		doors = append(doors, &door{counted: newCounted(l, c.Bounds.Connections)})
	}
	if c.Socket != "" {
		l, lock, err := listenUnix(c.Socket, len(c.UIDs) > 0)
		if err != nil {
			return doors, err
		}
		doors = append(doors, &door{newCounted(l, c.Bounds.Connections), lock, c.Socket})
	}
	return doors, nil
}

// loopback reads an address that only this host reaches.
func loopback(text string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddrPort(text)
	switch {
	case err != nil:
		return addr, fmt.Errorf("listen %q: is no address and port, such as 127.0.0.1:8765", text)
	case !addr.Addr().Unmap().IsLoopback() || addr.Addr().Zone() != "":
		return addr, fmt.Errorf("listen %s: is not on loopback; others reach a server through something that encrypts, such as ssh -L", text)
	}
	return addr, nil
}

func listenLoopback(text string) (net.Listener, error) {
	addr, err := loopback(text)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("listen %s: the port is in use: end what serves it ('ss -ltnp' tells), or choose another", text)
	}
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", text, err)
	}
	return l, nil
}

// listenUnix makes a socket at path, with the lock beside it that says that its server
// lives. A socket that a killed server left is removed; one that answers never is.
func listenUnix(path string, shared bool) (net.Listener, *os.File, error) {
	if err := api.CheckSocket(path); err != nil {
		return nil, nil, err
	}
	if err := ownDirectory(filepath.Dir(path), shared); err != nil {
		return nil, nil, fmt.Errorf("socket %s: %w", path, err)
	}
	lock, err := lockBeside(path)
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (net.Listener, *os.File, error) {
		lock.Close()
		return nil, nil, err
	}
	if err := removeStale(path); err != nil {
		return fail(err)
	}
	mode := os.FileMode(0o600)
	if shared {
		// Whoever may connect is told who may ask: credentials are looked at anyway.
		mode = 0o666
	}
	l, err := bind(path, mode)
	if err != nil {
		return fail(fmt.Errorf("socket %s: %w", path, plain(err)))
	}
	return l, lock, nil
}

// bind makes the socket in a directory that nobody else may enter and moves it to its
// place when it has its mode: there is no moment in which others could connect. The
// umask, which would do as well, is the whole process's.
func bind(path string, mode os.FileMode) (*net.UnixListener, error) {
	room := path + ".new"
	if err := os.RemoveAll(room); err != nil { // of a server that was killed here
		return nil, err
	}
	if err := os.Mkdir(room, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(room)
	made := filepath.Join(room, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it will not be there
	if err = os.Chmod(made, mode); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// ownDirectory makes the socket's directory when it is missing, and refuses one in which
// others could put another socket in its place.
func ownDirectory(dir string, shared bool) error {
	mode := os.FileMode(0o700)
	if shared {
		mode = 0o755
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if int(stat.Uid) != os.Geteuid() && stat.Uid != 0 || stat.Mode&0o022 != 0 {
		return fmt.Errorf("%s can be changed by others than user %d: put the socket into a directory of its own (mode 0700)", dir, os.Geteuid())
	}
	return nil
}

// lockBeside takes the lock of a socket, which lasts as long as this process. The file
// stays when the server ends: who removed it could let two servers in.
func lockBeside(path string) (*os.File, error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 32))
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		who := "another process"
		if pid, err := strconv.Atoi(strings.TrimSpace(string(holder))); err == nil {
			who = fmt.Sprintf("process %d", pid)
		}
		return nil, fmt.Errorf("socket %s: %s serves it already: end that one, or choose another path", path, who)
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// removeStale removes the socket of a server that is gone. The caller has the lock.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return fmt.Errorf("socket: %w", err)
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("socket %s: something else stands there, which is left alone; choose another path", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
		return fmt.Errorf("socket %s: another program answers there; choose another path", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("socket %s: it may be served, and is left alone: %w", path, plain(err))
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	return nil
}

// plain is the cause in an error of package net, which says the address again.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// firstActivated is the descriptor at which systemd's sockets begin: sd_listen_fds(3).
const firstActivated = 3

// activated are the sockets that systemd has opened. Those over TCP must be on loopback.
func activated() (listeners []net.Listener, err error) {
	pid, n := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	count, convErr := strconv.Atoi(n)
	if pid != strconv.Itoa(os.Getpid()) || convErr != nil || count < 1 || count > 16 {
		return nil, fmt.Errorf("socket activation: LISTEN_PID=%q and LISTEN_FDS=%q hand this process (%d) no sockets", pid, n, os.Getpid())
	}
	for fd := firstActivated; fd < firstActivated+count; fd++ {
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), "LISTEN_FDS")
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return listeners, fmt.Errorf("socket activation: descriptor %d is no listening socket: %w", fd, plain(err))
		}
		listeners = append(listeners, l)
		switch l := l.(type) {
		case *net.UnixListener:
			l.SetUnlinkOnClose(false) // it is systemd's
		case *net.TCPListener:
			if _, err := loopback(l.Addr().String()); err != nil {
				return listeners, fmt.Errorf("socket activation: %w", err)
			}
		default:
			return listeners, fmt.Errorf("socket activation: descriptor %d is neither a Unix socket nor TCP", fd)
		}
	}
	return listeners, nil
}

// counted is a listener that has at most so many connections open; more wait.
type counted struct {
	net.Listener
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newCounted(l net.Listener, most int) *counted {
	return &counted{Listener: l, free: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept waits for a connection, and before that for room for it.
func (c *counted) Accept() (net.Conn, error) {
	select {
	case c.free <- struct{}{}:
	case <-c.closed:
		return nil, net.ErrClosed
	}
	accepted, err := c.Listener.Accept()
	if err != nil {
		<-c.free
		return nil, err
	}
	return &conn{Conn: accepted, release: sync.OnceFunc(func() { <-c.free })}, nil
}

// Close ends the listener; connections stay.
func (c *counted) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Listener.Close()
}

// conn gives its place back when it closes.
type conn struct {
	net.Conn
	release func()
}

func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
