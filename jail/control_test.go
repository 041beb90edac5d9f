package jail

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// TestControlKeepsNoDescriptorOfABrokenMessage: a message that ends, or is given up, after
// its first byte has brought a descriptor leaves none behind; a whole one hands it on.
func TestControlKeepsNoDescriptorOfABrokenMessage(t *testing.T) {
	whole := plan.AppendMessage(nil, plan.KindBorn, plan.EncodeInt(7))
	for _, end := range []string{"closed", "given up", "whole"} {
		for n := 1; n < len(whole); n++ {
			pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			c, err := newControl(pair[0])
			if err != nil {
				t.Fatal(err)
			}
			// The other end of a pipe tells whether somebody still holds this one.
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			part := whole[:n]
			if end == "whole" {
				part = whole
			}
			if err := syscall.Sendmsg(pair[1], part, unix.UnixRights(int(w.Fd())), nil, 0); err != nil {
				t.Fatal(err)
			}
			w.Close()
			if end == "closed" {
				syscall.Close(pair[1])
			} else if end == "given up" {
				c.abort()
			}
			_, _, fd, err := c.receive()
			if end == "whole" {
				if err != nil || fd < 0 {
					t.Fatalf("%v, descriptor %d", err, fd)
				}
				syscall.Close(fd)
			} else if err == nil || fd >= 0 {
				t.Errorf("%s after %d bytes: %v, descriptor %d", end, n, err, fd)
			}
			c.close()
			if end != "closed" {
				syscall.Close(pair[1])
			}
			if held(t, r) {
				t.Errorf("%s after %d bytes: its descriptor is still open", end, n)
			}
			r.Close()
		}
	}
}

// held says whether the other end of a pipe is open somewhere.
func held(t *testing.T, r *os.File) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, 0); err != nil {
		t.Fatal(err)
	}
	return fds[0].Revents&unix.POLLHUP == 0
}
