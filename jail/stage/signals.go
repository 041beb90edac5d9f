package stage

import (
	"encoding/binary"
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// ignoreSignals keeps pid 1 alive whatever its own children send it. Handlers,
// not SIG_IGN: that would be inherited. SIGKILL and SIGSTOP from inside do not
// reach the first process of a pid namespace.
//
// Nor should a signal without a handler (pid_namespaces(7)), but one does that comes
// while its first thread blocks signals, as it does within a handler: Linux then does
// not ignore it, and another thread takes it with its default action. The runtime
// leaves a few signals without (32 and 34, which C libraries use) and dies of them
// when they are led to its own handler, so that these get one that does nothing.
func ignoreSignals() error {
	signal.Notify(make(chan os.Signal, 1))
	nothing, err := action(syscall.SIGTERM, nil) // for the trampoline and the stack
	if err != nil {
		return err
	}
	nothing.setHandler(dropAddress)
	for sig := syscall.Signal(1); sig <= lastSignal; sig++ {
		if sig == syscall.SIGKILL || sig == syscall.SIGSTOP {
			continue
		}
		now, err := action(sig, nil)
		if err != nil {
			return err
		}
		if now.handler() != 0 { // SIG_DFL
			continue
		}
		if _, err := action(sig, &nothing); err != nil {
			return err
		}
	}
	return nil
}

// drop.s has the handler and its address.
func drop() //nolint:unused // its address is what is used

var dropAddress uint64

// lastSignal is Linux's SIGRTMAX on all architectures that we build for.
const lastSignal = 64

// sigaction is Linux's own struct (rt_sigaction(2)): handler, flags, restorer, mask.
type sigaction [32]byte

func (a sigaction) handler() uint64 { return binary.NativeEndian.Uint64(a[:]) }

func (a *sigaction) setHandler(at uint64) { binary.NativeEndian.PutUint64(a[:], at) }

// action reads the action of a signal, and replaces it unless to is nil.
func action(sig syscall.Signal, to *sigaction) (was sigaction, err error) {
	_, err = call("rt_sigaction", sig.String(), syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(&was)), 8, 0)
	return was, err
}
