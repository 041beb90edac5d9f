package stage

import "syscall"

// callError is a refused system call. The launcher makes the text.
type callError struct {
	call   string
	object string
	errno  syscall.Errno
}

func (e *callError) Error() string { return e.call + " " + e.object + ": " + e.errno.Error() }

// call is the one way into Linux for every step of the set-up, so that a test
// can let each call fail in turn (see fault_on.go). The directive keeps alive what
// an argument points to when the conversion stands in the call expression.
//
//go:uintptrescapes
func call(name, object string, trap, a1, a2, a3, a4, a5 uintptr) (int, error) {
	if errno := inject(name); errno != 0 {
		return -1, &callError{name, object, errno}
	}
	r, _, errno := syscall.Syscall6(trap, a1, a2, a3, a4, a5, 0)
	if errno != 0 {
		return -1, &callError{name, object, errno}
	}
	return int(r), nil
}

// callAll makes the call on every thread of the stage. Only for calls that
// answer alike on all of them.
//
//go:uintptrescapes
func callAll(name string, trap, a1, a2, a3, a4, a5 uintptr) error {
	if errno := inject(name); errno != 0 {
		return &callError{name, "all threads", errno}
	}
	if _, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, a3, a4, a5, 0); errno != 0 {
		return &callError{name, "all threads", errno}
	}
	return nil
}

// cstr returns s with its terminating zero. A string with a zero inside cannot
// come here: Compile refuses it.
func cstr(s string) *byte {
	b := make([]byte, len(s)+1)
	copy(b, s)
	return &b[0]
}

func isErrno(err error, errnos ...syscall.Errno) bool {
	e, ok := err.(*callError)
	if !ok {
		return false
	}
	for _, x := range errnos {
		if e.errno == x {
			return true
		}
	}
	return false
}
