// Package cgroup holds the processes of one jail together: it limits their
// memory and number, counts what they use, and ends them all at once.
//
//	group, err := cgroup.New("s1", cgroup.Limits{MemoryBytes: 2 << 30, Tasks: 512})
//	leave, err := group.Enter()      // cgroup v1: this thread's children are born inside
//	// clone with CLONE_INTO_CGROUP and group.Fd() where that is >= 0
//	leave()
//	stats := group.Stats()           // before Close: the counters go with the group
//	group.Kill()
//	group.Close()
//
// Whichever the host has is used: cgroup v2, v1, or both side by side, where
// each controller is taken from the hierarchy that it is bound to and v2 gives
// birth, death and the processor time. A group is made before its first
// process and entered at that process's birth, so that nothing runs outside it.
//
// Groups stand in a directory named cellblock below the launcher's own cgroup,
// or, on v2, below the nearest ancestor that may hand out controllers. Their
// names carry the launcher's pid namespace, pid and start time, by which Sweep
// tells what a killed launcher left behind.
//
// # Limitations
//
// On v2 a cgroup that has processes cannot hand out controllers. When the
// launcher is alone in such a cgroup it moves itself to a leaf below it, and
// back at the end. When it is not alone, and no ancestor can be used, the limit
// is not enforced by cgroup, and Group.Unenforced says so.
package cgroup
