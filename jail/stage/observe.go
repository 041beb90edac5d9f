package stage

import (
	"syscall"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// waitKillable is SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, Linux 5.19: a call that
// has been told of is not begun anew by each signal.
const waitKillable = 1 << 5

// observe installs the filter that tells the launcher of calls, on this thread
// alone: from then on the launcher has to answer. The filters that come after it go
// on all threads and take it along. The launcher fetches the listener by its number:
// passing it would be a call to be told of, by a listener that nobody has yet. Its
// go says that it has it.
func (s *stage) observe(st *plan.Step) error {
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	fd, err := install(st, s.plan.Observer, flags|waitKillable)
	if isErrno(err, syscall.EINVAL) {
		fd, err = install(st, s.plan.Observer, flags)
	}
	if err != nil {
		return err
	}
	s.listener = fd
	return s.send(plan.KindListener, plan.EncodeInt(fd))
}
