// Package observe hears of the system calls by which the processes of a jail
// change files, execute programs, load code and connect, before Linux carries them out.
//
//	l, err := observe.Listen(fd, root) // fd: the listener of [Program]
//	defer l.Stop()
//	l.Begin(func(e observe.Event) { fmt.Println(e.Call, e.Ops) })
//
// The calls are found by a seccomp filter that stops the caller and tells the
// launcher (seccomp_unotify(2)); the call then goes on, unless it is refused by who is
// told ([Event.Refuse]). What only reads passes the filter and costs nothing.
//
// # Limitations
//
// An observer explains, it is no boundary, what it refuses included: what a call's pointers lead to can
// change between the look and the deed, so that a program that means to can be
// reported with another path than the one it changed, or, where that one is allowed, go
// unreported.
// When the observer ends, the calls that it would have heard of fail with ENOSYS:
// nothing happens unheard.
//
// Not heard: writing through a descriptor that is open already, and the
// interpreter that the first line of a script names.
package observe
