package bench

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pinned runs f with every thread of this process, and whatever it starts, on one
// processor: the last one that it may use. Threads that are made meanwhile inherit it.
func pinned(f func() error) error {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	var one unix.CPUSet
	for cpu := len(before) * 64; cpu >= 0; cpu-- {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := affinity(&one); err != nil {
		return err
	}
	err := f()
	if back := affinity(&before); err == nil {
		err = back
	}
	return err
}

// affinity sets it for all threads. Twice, for those that one made which had not been
// reached yet.
func affinity(set *unix.CPUSet) error {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range tasks {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(id, set); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}
