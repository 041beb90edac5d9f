// Package stage is the child side of a jail's start. It runs as pid 1 of the
// new namespaces, reads the plan from its launcher, carries out the steps that
// are marked as its own, gives up everything it does not need, lets the witness
// try what is now forbidden, starts the worker and stays as the reaper. Where the worker
// is forked of a warm parent, it only stays.
//
// It trusts the launcher, which is the only other end of descriptor 3, and
// nothing else: after the worker is born it reads neither files nor messages
// that the worker could have made.
//
// Its descriptors: 0, 1 and 2 are the worker's, 3 is the launcher, 4 is the
// worker's wire. After the worker's birth it holds 3 alone, so that the end of
// the worker's output is seen at once.
//
// # Limitations
//
// The bounding set is emptied on the thread that the worker is born from. The
// runtime's other threads lose their capabilities, get no_new_privs, the
// Landlock domain and the filter, and never execute anything.
package stage
