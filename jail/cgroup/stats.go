package cgroup

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
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

// Used is what a group has used: the part of Stats that is asked for often.
type Used struct {
	CPU        time.Duration
	MemoryPeak uint64
	Tasks      uint64
}

// Stats reads the counters. After Close they are all 0.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return Stats{}
	}
	used := g.used()
	s := Stats{CPU: used.CPU, MemoryPeak: used.MemoryPeak, Tasks: used.Tasks}
	switch {
	case g.memory.dir == "":
	case g.memory.v2:
		s.MemoryNow = value(read(g.memory.dir, "memory.current"))
		s.MemoryPeak = max(s.MemoryPeak, s.MemoryNow)
		s.OOMKills = key(read(g.memory.dir, "memory.events"), "oom_kill")
	default:
		s.MemoryNow = value(read(g.memory.dir, "memory.usage_in_bytes"))
		s.OOMKills = key(read(g.memory.dir, "memory.oom_control"), "oom_kill")
	}
	if g.tasks.dir != "" {
		s.TasksHits = key(read(g.tasks.dir, "pids.events"), "max")
	}
	return s
}

// Used reads what has been used, in one system call a counter: the files stay open from
// the first time to Close.
func (g *Group) Used() Used {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return Used{}
	}
	return g.used()
}

func (g *Group) used() (u Used) {
	if g.v2 != "" {
		u.CPU = time.Duration(key(g.counter(g.v2, "cpu.stat"), "usage_usec")) * time.Microsecond
	} else {
		for _, m := range g.v1 {
			if text := g.counter(m.dir, "cpuacct.usage"); len(text) > 0 {
				u.CPU = time.Duration(value(text))
			}
		}
	}
	switch {
	case g.memory.dir == "":
	case g.memory.v2:
		text := g.counter(g.memory.dir, "memory.peak")
		if len(text) == 0 { // before Linux 5.19
			text = g.counter(g.memory.dir, "memory.current")
		}
		u.MemoryPeak = value(text)
	default:
		u.MemoryPeak = value(g.counter(g.memory.dir, "memory.max_usage_in_bytes"))
	}
	if g.tasks.dir != "" {
		u.Tasks = value(g.counter(g.tasks.dir, "pids.current"))
	}
	return u
}

// counter is the text of a file of the group, which stays open; empty for one that is
// not there. It is good until the next one is read. The caller holds the lock.
func (g *Group) counter(dir, file string) []byte {
	at := counterFile{dir, file}
	f, known := g.counters[at]
	if !known {
		var err error
		if f, err = cgroups.OpenFile(dir, file, os.O_RDONLY); err != nil {
			f = nil
		}
		if g.counters == nil {
			g.counters, g.text = map[counterFile]*os.File{}, make([]byte, 4096)
		}
		g.counters[at] = f
	}
	if f == nil {
		return nil
	}
	// Linux makes the whole text of such a file at the first read.
	n, err := unix.Pread(int(f.Fd()), g.text, 0)
	if err != nil {
		return nil
	}
	return g.text[:n]
}

// counterFile is a file of a group.
type counterFile struct{ dir, name string }

func read(dir, file string) []byte {
	text, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return nil
	}
	return []byte(text)
}

func value(text []byte) uint64 {
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64) // empty: 0
	return n
}

func key(text []byte, name string) uint64 {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			return value(rest)
		}
	}
	return 0
}
