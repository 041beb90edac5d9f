package stage

import (
	"syscall"

	"cellblock/jail/plan"
)

// adopt makes this the first process of a worker that joins its namespaces and is not its
// child: it serves the launcher, and Linux collects what else ends here. Who was forked
// by a warm parent is waited for there.
func (s *stage) adopt(*plan.Step) error {
	if !s.allowed {
		return &callError{"witness", "launcher's go", syscall.EPERM}
	}
	if err := ignoreSignals(); err != nil {
		return err
	}
	// A parent that ignores SIGCHLD has no zombies (sigaction(2)); nothing is executed
	// here that could inherit it.
	child, err := action(syscall.SIGCHLD, nil)
	if err != nil {
		return err
	}
	child.setHandler(sigIgn)
	if _, err := action(syscall.SIGCHLD, &child); err != nil {
		return err
	}
	syscall.Close(wireFD) // /dev/null; the worker has its own
	if err := s.send(plan.KindBorn, plan.EncodeInt(0)); err != nil {
		return err
	}
	s.watchLauncher()
	return nil
}

// sigIgn is Linux's SIG_IGN.
const sigIgn = 1
