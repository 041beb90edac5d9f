package kernel

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"cellblock/kernel/wire"
	"cellblock/policy"
)

// settle waits until a worker that was just made for sessions like a model takes requests,
// and returns its memory in bytes. It is told of the places that all of these may write,
// and finds out where they lead before a session waits for it.
func (w *worker) settle(model *Session, limit time.Duration) (int64, error) {
	late := time.AfterFunc(limit, w.proc.Kill)
	defer late.Stop()
	read, refusal := []string{}, ""
	write := slices.DeleteFunc(model.writable(), func(p string) bool { return policy.Within(model.dir, p) })
	err := w.conn.Request(wire.Request{Op: wire.OpConfine, Read: &read, Write: &write, Refusal: &refusal}, nil, func(int64) {})
	var answer *wire.Message
	if err == nil {
		answer, err = w.conn.ReadMessage()
	}
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	if err != nil {
		return 0, fmt.Errorf("python %q: was not ready: %w: %s", w.python, err, lastLines(w.out.tail()))
	}
	if j, ok := w.proc.(*jailed); ok {
		w.places = j.places()
	}
	size, err := pssOf(w.proc.Pid())
	if err != nil {
		size = expectedBytes // hidden from us: Linux tells the owner of its memory alone
	}
	return size, nil
}

// pssOf is the memory of a process with its share of what others use too, in bytes.
func pssOf(pid int) (int64, error) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kb); err == nil {
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("smaps_rollup of %d: no line Pss", pid)
}
