// Package holder makes a process whose only purpose is to be in a user namespace
// of its own, for as long as somebody opens the namespace.
//
//	err := holder.With(func(pid int) error {
//		return writeMaps(pid)
//	})
//
// # Limitations
//
// The process shares the caller's memory (clone(2), CLONE_VM), so that none of it
// needs to be copied or executed anew: a Go program cannot make one otherwise, and
// another exec would cost more than the rest of a jail's mounts. It runs no Go
// code, blocks every signal, and has ended when With returns.
package holder

/*
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static char stack[16384] __attribute__((aligned(16)));

static pid_t holds_for;

// hold must not return, and must call nothing that needs a thread of its own.
static int hold(void *unused) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	// A caller that was killed before that sends no signal.
	if (getppid() != holds_for)
		_exit(1);
	for (;;)
		pause();
}

static int hold_users(void) {
	sigset_t all, before;
	holds_for = getpid();
	sigfillset(&all);
	// The child takes the mask over. With Go's handlers unblocked a signal to the
	// process group would run them on this stack.
	pthread_sigmask(SIG_BLOCK, &all, &before);
	int pid = clone(hold, stack + sizeof stack, CLONE_VM | CLONE_NEWUSER | SIGCHLD, 0);
	int why = errno;
	pthread_sigmask(SIG_SETMASK, &before, 0);
	return pid < 0 ? -why : pid;
}
*/
import "C"

import (
	"fmt"
	"sync"
	"syscall"
)

// The stack is one: one process at a time.
var one sync.Mutex

// With calls f while process pid exists in a new user namespace without maps. The
// error is f's, or clone(2)'s as a syscall.Errno.
func With(f func(pid int) error) error {
	one.Lock()
	defer one.Unlock()
	pid := int(C.hold_users())
	if pid < 0 {
		return fmt.Errorf("clone of a user namespace: %w", syscall.Errno(-pid))
	}
	defer func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		for {
			if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
				return
			}
		}
	}()
	return f(pid)
}
