//go:build stagefault

package stage

import "syscall"

var (
	calls   int
	failing = -1
)

func init() {
	text, ok := syscall.Getenv("STAGE_FAULT")
	if !ok {
		return
	}
	failing = 0
	for _, c := range []byte(text) {
		failing = failing*10 + int(c-'0')
	}
}

// inject lets the call fail whose number STAGE_FAULT names, counted from 0.
func inject(string) syscall.Errno {
	n := calls
	calls++
	if n == failing {
		return syscall.EIO
	}
	return 0
}
