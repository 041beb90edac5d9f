// Package seccomp turns a system call profile in the OCI (podman, Docker)
// format into BPF programs for the kernel's seccomp filters.
//
//	filter, err := seccomp.Load("strict", document)
//	for _, program := range filter.Programs {
//		// install in this order with seccomp(SECCOMP_SET_MODE_FILTER, TSYNC)
//	}
//
// One call is decided so, from the first line that fits:
//
//	no SCMP_ACT_ALLOW entry names it, or all are     the errno of its SCMP_ACT_ERRNO
//	conditional, none matches, and nothing else      entry, else the profile's
//	refuses it                                       default
//	a conditional SCMP_ACT_ERRNO entry matches       its errno
//	an SCMP_ACT_ALLOW entry matches                  allowed
//	else                                             the errno of the entry that
//	                                                 refuses it without conditions
//
// (An unconditional allow of a call that another entry refuses, as
// unconditionally, counts for nothing.)
//
// The plain reading of the format cannot say that: libseccomp lets an
// unconditional rule swallow every conditional one for the same call, and no
// comparison says "not equal" for the low 32 bits alone, which are all that
// Linux reads of an int. So one profile becomes several stacked programs, of
// which Linux takes the strictest answer, and of two errnos the one that was
// installed last:
//
//	fallback   one for each errno that stands behind a conditional allow, and
//	           one for each call that libseccomp gets wrong beside others
//	denials    conditional refusals, allows all others
//	table      allowed and refused calls, default for all others; last, since it
//	           may refuse the call that installs a program
//
// A system call of another ABI (i386 by int 0x80, x32, AArch32) kills the
// process in every program.
//
// The programs of the built-in profiles are compiled ahead, for amd64 and
// arm64, and used when the digest of the profile's text is theirs: libseccomp
// needs some 17 ms for a profile of this size. Other profiles are compiled when
// they are loaded, once in a process. What libseccomp made is run through a BPF
// interpreter, on every call and every argument value that the profile looks
// at, before it counts as compiled.
//
// # Limitations
//
// A filter sees numbers, not what a pointer points to: clone3 and openat2 can
// only be refused whole. Only SCMP_ACT_ALLOW and SCMP_ACT_ERRNO are understood;
// a profile that asks for a listener, for logging or for a signal is refused
// and not weakened. A comparison of the format is 64 bits wide: use
// SCMP_CMP_MASKED_EQ for arguments of which Linux reads 32 bits.
package seccomp
