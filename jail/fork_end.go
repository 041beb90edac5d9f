package jail

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ending is how a forked worker has ended, as its parent has said; unknown where the
// jail was ended as a whole, or the parent before it could say.
type ending struct {
	status syscall.WaitStatus
	known  bool
}

// watchForked waits for the end of a forked worker, of which the stage hears nothing, and
// then ends the stage and what is left of the jail.
func (p *Process) watchForked() {
	f := p.forked
	ends := []unix.PollFd{{Fd: int32(f.own), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(ends, -1); err != unix.EINTR {
			break
		}
	}
	unix.Close(f.own)
	// Who ended the jail as a whole ended the worker with it: that is no word on the worker.
	whole := p.control.hungUp()
	var e ending
	late := time.NewTimer(parentWait)
	defer late.Stop()
	parent := f.start.opt.Parent
	select {
	case e.status, e.known = <-f.status:
	case <-late.C:
	case <-parent.Gone():
	}
	if !e.known {
		select {
		case e.status, e.known = <-f.status: // which this process may have slept over
		default:
			_ = parent.Close() // until the worker was waited for, its jail cannot end
		}
	}
	parent.forget(f.pid, f.status)
	e.known = e.known && !whole
	p.endsForked <- e
	p.Kill()
}
