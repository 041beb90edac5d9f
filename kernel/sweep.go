package kernel

import (
	"fmt"

	"cellblock/jail"
)

// sweeping removes what launchers that were killed have left, beside the start of
// the first worker: neither has to wait for the other.
type sweeping struct {
	done chan struct{}
	err  error
	told bool // in a reply
}

func (s *Session) sweep() *sweeping {
	w := &sweeping{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		if s.opts.Tier == TierJail {
			if _, err := jail.Sweep(); err != nil {
				w.err = fmt.Errorf("sweep control groups of dead launchers: %w", err)
			}
		}
		sweepTemp()
	}()
	return w
}

// wait returns when they have been looked for. What could not be removed is no reason to
// refuse a session that has nothing to do with it.
func (w *sweeping) wait() { <-w.done }

// tell says once, in a reply, what could not be removed. The caller has the turn.
func (w *sweeping) tell(r *Result) {
	select {
	case <-w.done:
	default:
		return
	}
	if w.err != nil && !w.told {
		w.told = true
		r.Details.Notes = append(r.Details.Notes, w.err.Error())
	}
}
