package jail

import (
	"runtime"
	"sync"
	"syscall"

	"cellblock/jail/cgroup"
)

// spawner clones every stage from one thread that lives as long as the
// launcher. Linux sends the death signal of a parent when the thread that
// cloned ends, and Go ends threads when it likes; on cgroup v1 it is this
// thread, and no other, that steps into the new group for the clone.
var spawner struct {
	once  sync.Once
	calls chan func()
}

func onSpawner(f func()) {
	spawner.once.Do(func() {
		spawner.calls = make(chan func())
		go spawning()
	})
	done := make(chan struct{})
	spawner.calls <- func() { f(); close(done) }
	<-done
}

// spawning is the spawner's thread. It has a name so that tests can tell it from
// a goroutine that was left behind.
func spawning() {
	runtime.LockOSThread()
	for call := range spawner.calls {
		call()
	}
}

// spawn clones a process, born in the group when there is one. The step that
// failed is told by name.
func spawn(argv0 string, argv []string, attr *syscall.ProcAttr, group *cgroup.Group) (pid int, err error) {
	onSpawner(func() {
		if group != nil {
			var leave func() error
			if leave, err = group.Enter(); err != nil {
				return
			}
			defer func() {
				if back := leave(); back != nil && err == nil {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					_, _ = syscall.Wait4(pid, nil, 0, nil)
					err = back
				}
			}()
			if fd := group.Fd(); fd >= 0 {
				attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
			}
		}
		pid, err = syscall.ForkExec(argv0, argv, attr)
	})
	return pid, err
}
