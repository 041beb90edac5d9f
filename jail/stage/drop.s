//go:build amd64 || arm64

#include "textflag.h"

// A signal handler that does nothing and needs nothing of the runtime: it returns
// to Linux's or the action's own trampoline, which ends the signal.
TEXT ·drop(SB), NOSPLIT|NOFRAME, $0-0
	RET

DATA ·dropAddress(SB)/8, $·drop(SB)
GLOBL ·dropAddress(SB), NOPTR|RODATA, $8
