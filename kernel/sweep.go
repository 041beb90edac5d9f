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

// wait returns when nothing is left of them; the error is the sweep's.
func (w *sweeping) wait() error {
	<-w.done
	return w.err
}
