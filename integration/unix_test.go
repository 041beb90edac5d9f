package integration

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// TestUnixSocketsOfTheHost: a session reaches a socket of the host by its path where it
// may write there. What is denied is told once in each mode, and refused under enforce and
// shadow, whether it is a connection or a message; sockets of its own it always reaches.
func TestUnixSocketsOfTheHost(t *testing.T) {
	require(t, needUserns, needNotify)
	const tools = `
import os, socket
def reach(kind, path, how):
    with socket.socket(socket.AF_UNIX, kind) as s:
        try: how(s, path)
        except OSError as problem: return problem.strerror
    return "reached"
def connect(s, path): s.connect(path); s.send(b"inside")
def sendto(s, path): s.sendto(b"inside", path)
def sendmsg(s, path): s.sendmsg([b"inside"], [], 0, path)
S, D = socket.SOCK_STREAM, socket.SOCK_DGRAM
def own(at):
    with socket.socket(socket.AF_UNIX, D) as s:
        s.bind(at + "/own.sock")
        try: return reach(D, at + "/own.sock", sendto)
        finally: os.unlink(at + "/own.sock")
`
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			dir := newDirIn(t, "/var/tmp")
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			stream, datagrams := dir+"/stream", dir+"/datagrams"
			serving(t, "unix", stream, func(c net.Conn) { _, _ = c.Read(make([]byte, 10)) })
			d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: datagrams, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			for _, path := range []string{stream, datagrams} {
				if err := os.Chmod(path, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, inMode(t, m), at(newDirIn(t, "/var/tmp")))
			s.ok(tools + "A, B = " + literal(stream) + ", " + literal(datagrams))
			want := "'Permission denied'"
			if m == "report" {
				want = "'reached'"
			}
			for _, code := range []string{`reach(S, A, connect)`, `reach(D, B, connect)`, `reach(D, B, sendto)`, `reach(D, B, sendmsg)`,
				`os.path.lexists("way") or os.symlink(B, "way"); verdict = reach(D, "way", sendto)
verdict`} {
				r := s.ok(code)
				told := r.violations()
				if r.value() != want || len(told) != 1 || told[0].Op != "socket" || !strings.HasPrefix(told[0].Path, dir+"/") || (told[0].Decision == "denied") != (m != "report") {
					t.Errorf("%s: %s, want %s, told of %+v", code, r.value(), want, told)
				}
			}
			for _, at := range []string{".", "/tmp"} {
				if r := s.ok(`own(` + literal(at) + `)`); r.value() != "'reached'" || len(r.violations()) != 0 {
					t.Errorf("its own in %s: %s", at, r)
				}
			}
			if m == "enforce" {
				allowing := open(t, mode(m), document(t, "version: 1\nname: x\nfs:\n  rules:\n    - {path: \"${session}\", access: [write], effect: allow, reason: r}\n    - {path: "+stream+", access: [write], effect: allow, reason: r}\n"))
				allowing.ok(tools + "A, B = " + literal(stream) + ", " + literal(datagrams))
				allowing.shows(`reach(S, A, connect), reach(D, B, sendto)`, "('reached', 'Permission denied')")
			}
			arrived := 0
			_ = d.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // what was sent is there
			for b := make([]byte, 10); ; arrived++ {
				if _, err := d.Read(b); err != nil {
					break
				}
			}
			if (arrived > 0) != (m == "report") {
				t.Errorf("%d messages arrived", arrived)
			}
		})
	}
}
