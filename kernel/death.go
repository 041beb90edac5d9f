package kernel

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Death is the one cause for which a worker ended. Exactly one of the fields
// says it, in this order: Stuck, Protocol, ShadowLimit, MemoryLimit, TaskLimit, Signal, Code.
type Death struct {
	Stuck       bool   `json:"stuck,omitempty"`       // it was killed, and waits in Linux still
	Protocol    string `json:"protocol,omitempty"`    // the rule of the wire that it broke
	MemoryLimit int64  `json:"memoryLimit,omitempty"` // bytes
	TaskLimit   int64  `json:"taskLimit,omitempty"`   // processes and threads
	ShadowLimit int64  `json:"shadowLimit,omitempty"` // bytes of the layer of mode shadow
	Signal      string `json:"signal,omitempty"`      // SIGSEGV …
	Code        int    `json:"code,omitempty"`        // exit code
}

// exitStatus is how a worker's process ended, as the tier saw it.
type exitStatus struct {
	Code     int
	Signal   syscall.Signal
	OOM      bool
	TasksHit bool
	Err      error // the tier could not tell; says why
}

// death picks the one cause out of what is known.
func (e exitStatus) death(memory, tasks int64, protocol error) Death {
	switch {
	case protocol != nil:
		return Death{Protocol: protocol.Error()}
	case e.OOM:
		return Death{MemoryLimit: max(memory, 1)}
	case e.TasksHit && (e.Signal != 0 || e.Code != 0):
		return Death{TaskLimit: max(tasks, 1)}
	case e.Signal != 0:
		return Death{Signal: signalName(e.Signal)}
	}
	return Death{Code: e.Code}
}

// String is the cause as it stands in parentheses after "python kernel exited".
func (d Death) String() string {
	switch {
	case d.Stuck:
		return "killed, and not ended yet: Linux waits for something, mostly a disk"
	case d.Protocol != "":
		return "protocol error: " + d.Protocol
	case d.ShadowLimit != 0:
		return "shadow limit " + bytesText(d.ShadowLimit) + ": the layer is full"
	case d.MemoryLimit != 0:
		return "oom: memory limit " + bytesText(d.MemoryLimit)
	case d.TaskLimit != 0:
		return fmt.Sprintf("task limit %d", d.TaskLimit)
	case d.Signal == "SIGXCPU":
		return "SIGXCPU: limit of processor time"
	case d.Signal != "":
		return d.Signal
	}
	return fmt.Sprint(d.Code)
}

func signalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	return fmt.Sprintf("signal %d", int(s))
}

// bytesText prints a size in the largest binary unit that divides it.
func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
