package cgroup

import (
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
)

// Stats are a group's counters. A counter that this host does not keep is 0.
type Stats struct {
	// CPU is the processor time of all processes, ended ones included.
	CPU time.Duration
	// MemoryPeak and MemoryNow are in bytes. On v2 before Linux 5.19 there is
	// no peak and MemoryPeak is the present value.
	MemoryPeak, MemoryNow uint64
	// Tasks is the number of processes and threads that exist.
	Tasks uint64
	// OOMKills is how many processes died of the memory limit.
	OOMKills uint64
	// TasksHits is how many times the task limit refused a fork.
	TasksHits uint64
}

// Stats reads the counters. After Close they are all 0.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	var s Stats
	if g.closed {
		return s
	}
	if g.v2 != "" {
		s.CPU = time.Duration(key(g.v2, "cpu.stat", "usage_usec")) * time.Microsecond
	} else {
		for _, m := range g.v1 {
			if exists(m.dir, "cpuacct.usage") {
				s.CPU = time.Duration(value(m.dir, "cpuacct.usage"))
			}
		}
	}
	switch {
	case g.memory.dir == "":
	case g.memory.v2:
		s.MemoryNow = value(g.memory.dir, "memory.current")
		s.MemoryPeak = max(value(g.memory.dir, "memory.peak"), s.MemoryNow)
		s.OOMKills = key(g.memory.dir, "memory.events", "oom_kill")
	default:
		s.MemoryNow = value(g.memory.dir, "memory.usage_in_bytes")
		s.MemoryPeak = value(g.memory.dir, "memory.max_usage_in_bytes")
		s.OOMKills = key(g.memory.dir, "memory.oom_control", "oom_kill")
	}
	if g.tasks.dir != "" {
		s.Tasks = value(g.tasks.dir, "pids.current")
		s.TasksHits = key(g.tasks.dir, "pids.events", "max")
	}
	return s
}

func value(dir, file string) uint64 {
	text, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	return n
}

func key(dir, file, name string) uint64 {
	text, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}
