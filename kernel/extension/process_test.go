package extension

import (
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stranger is a process with a group of its own; how says which signal ended it.
func stranger(t *testing.T) (pid int, how func() syscall.Signal) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	how = sync.OnceValue(func() syscall.Signal {
		_ = cmd.Wait() // its state says it
		return cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the test may have ended it
		how()
	})
	return cmd.Process.Pid, how
}

// A worker that died by itself is ended, and its wire's reader may find fault with it,
// long after its number has gone to another process.
func TestNoSignalGoesToTheNextOwnerOfANumber(t *testing.T) {
	for name, late := range map[string]func(*worker){
		"end":  func(w *worker) { w.proc.end() },
		"kill": func(w *worker) { w.fail(errGone) },
	} {
		t.Run(name, func(t *testing.T) {
			w, err := startWorker(launch(t), "test", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.end)
			w.proc.kill()
			<-w.gone
			w.death()
			pid, how := stranger(t)
			w.proc.pid = pid // as if Linux had given the number again
			late(w)
			// The control, which is also the first signal that the stranger may get.
			(&process{pid: pid}).signal(unix.SIGSTKFLT)
			if got := how(); got != unix.SIGSTKFLT {
				t.Errorf("a process that is no worker got %v", got)
			}
		})
	}
}
