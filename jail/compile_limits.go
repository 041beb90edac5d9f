package jail

import (
	"strconv"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// tmpSize is the size option of a private tmpfs; without a limit half of the
// memory, which is what Linux gives by itself.
func tmpSize(bytes int64) string {
	if bytes <= 0 {
		return "50%"
	}
	return strconv.FormatInt(bytes, 10)
}

// stageTasks is what the stage itself may need where tasks are counted by user:
// its threads count too.
const stageTasks = 16

// limits chooses what keeps each limit: the cgroup where it can, else a resource
// limit, which is weaker and therefore noted.
func (c *compiler) limits() {
	l := c.spec.Limits
	var group []plan.Limit
	note := func(name string, value int64, by string) {
		if value > 0 {
			c.plan.Limits = append(c.plan.Limits, plan.Limit{Name: name, Value: value, By: by})
		}
	}
	if l.MemoryBytes > 0 {
		by := "cgroup"
		if found := c.noCgroup(CgroupMemory); found.No() {
			by = "rlimit"
			c.degrade(CgroupMemory, "memory is limited for each process by RLIMIT_DATA, not for all together: "+found.Why, found.Remedy)
		} else {
			group = append(group, plan.Limit{Name: "memory", Value: l.MemoryBytes, By: by})
		}
		note("memory", l.MemoryBytes, by)
	}
	if l.Tasks > 0 {
		by := "cgroup"
		if found := c.noCgroup(CgroupTasks); found.No() {
			by = "rlimit"
			c.degrade(CgroupTasks, "tasks are limited by RLIMIT_NPROC: "+found.Why, found.Remedy)
		} else {
			group = append(group, plan.Limit{Name: "tasks", Value: l.Tasks, By: by})
		}
		note("tasks", l.Tasks, by)
	}
	note("open-files", l.OpenFiles, "rlimit")
	note("file-size", l.FileSizeBytes, "rlimit")
	note("cpu-seconds", l.CPUSeconds, "rlimit")
	note("tmp", l.TmpBytes, "tmpfs")
	if c.host.CgroupMode != "none" && c.host.CgroupMode != "" {
		c.launcher(plan.Step{Op: plan.OpCgroup, Path: c.spec.Name, Limits: group,
			Reason: "limits stand before the first process is born; the end of the group is the end of all in it"})
	}
}

// noCgroup is the finding for one part of Cgroup: without the whole there is no
// part.
func (c *compiler) noCgroup(part Feature) Finding {
	if whole := c.host.Get(Cgroup); whole.No() && c.host.CgroupMode == "none" {
		return whole
	}
	return c.host.Get(part)
}

// rlimits are set on the stage and inherited by everything.
func (c *compiler) rlimits() {
	l := c.spec.Limits
	apart := func(name string, resource int, soft, hard int64, reason string) {
		c.stage(plan.Step{Op: plan.OpRlimit, Names: []string{name}, Num: uint64(resource), Soft: uint64(soft), Hard: uint64(hard), Reason: reason})
	}
	set := func(name string, resource int, value int64, reason string) {
		apart(name, resource, value, value, reason)
	}
	set("core", unix.RLIMIT_CORE, 0, "a crash leaves no memory image behind")
	if l.OpenFiles > 0 {
		set("nofile", unix.RLIMIT_NOFILE, l.OpenFiles, "open files of one process")
	}
	if l.FileSizeBytes > 0 {
		set("fsize", unix.RLIMIT_FSIZE, l.FileSizeBytes, "size of one file")
	}
	if l.CPUSeconds > 0 {
		// The hard limit's SIGKILL comes a second after the soft one's SIGXCPU, so
		// that the cause of the death can be told (setrlimit(2)).
		apart("cpu", unix.RLIMIT_CPU, l.CPUSeconds, l.CPUSeconds+1, "processor time of one process")
	}
	if l.MemoryBytes > 0 && c.noCgroup(CgroupMemory).No() {
		set("data", unix.RLIMIT_DATA, l.MemoryBytes, "memory of one process, since no cgroup can keep the memory limit")
	}
	if l.Tasks > 0 && c.noCgroup(CgroupTasks).No() {
		set("nproc", unix.RLIMIT_NPROC, l.Tasks+stageTasks, "tasks of this user namespace, since no cgroup can keep the task limit")
	}
}
