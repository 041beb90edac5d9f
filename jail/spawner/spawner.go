// Package spawner starts processes from one thread that lives as long as this process.
//
// Linux sends a parent's death signal (PR_SET_PDEATHSIG, prctl(2)) when the thread that
// cloned ends, and Go ends threads when it likes: a child that is to end with its launcher,
// and not before, is started here. A change that is made to the thread alone, such as its
// group of cgroup v1, has to be undone by who made it.
package spawner

import (
	"runtime"
	"sync"
)

var thread = sync.OnceValue(func() chan func() {
	calls := make(chan func())
	go spawning(calls)
	return calls
})

// Do runs f on the thread, one after the other, and returns when f has.
func Do(f func()) {
	done := make(chan struct{})
	thread() <- func() { defer close(done); f() }
	<-done
}

// spawning is the thread. It has a name so that tests can tell it from a goroutine that
// was left behind.
func spawning(calls chan func()) {
	runtime.LockOSThread()
	for call := range calls {
		call()
	}
}
