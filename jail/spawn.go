package jail

import (
	"syscall"

	"cellblock/jail/cgroup"
	"cellblock/jail/spawner"
)

// spawn clones a process, born in the group when there is one. The step that
// failed is told by name.
func spawn(argv0 string, argv []string, attr *syscall.ProcAttr, group *cgroup.Group) (pid int, err error) {
	// On cgroup v1 it is this thread, and no other, that steps into the new group.
	spawner.Do(func() {
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
