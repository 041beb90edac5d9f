package extension

import (
	"time"
)

// Limits bound one extension worker and all that it starts. Zero is no limit.
type Limits struct {
	MemoryBytes int64 // by its cgroup, else the address space of each process
	OpenFiles   int64 // of each process
	CPUSeconds  int64 // of each process, over its whole life
	Tasks       int64 // processes and threads; where there is a cgroup
}

// Launch says how extension workers are started.
type Launch struct {
	// Python is the interpreter: a file that no session can change.
	Python string
	// Source is the directory of the worker's own source; see pyruntime.
	Source string
	// StartTime bounds how long loading one file may take; 0 is DefaultStartTime.
	StartTime time.Duration
	Limits    Limits
	// LogDir keeps the workers' logs, a file each; empty keeps none.
	LogDir string
}

// The times of an extension worker.
const (
	DefaultStartTime = 10 * time.Second
	cancelAgain      = time.Second            // from a cancel to a second one
	unwindTime       = 2 * time.Second        // from a cancel to a handler that has unwound
	termTime         = 200 * time.Millisecond // from SIGTERM to SIGKILL
	reapTime         = time.Second            // for the exit status of a worker whose wire has closed
)

func (l Launch) startTime() time.Duration {
	if l.StartTime > 0 {
		return l.StartTime
	}
	return DefaultStartTime
}
