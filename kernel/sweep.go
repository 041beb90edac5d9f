package kernel

import (
	"fmt"
	"sync"
	"time"

	"cellblock/jail"
)

// sweepRest is how long what launchers that were killed have left is not looked for again.
// Each session's start waits for the look, which goes through all that sessions now have.
const sweepRest = 10 * time.Second

// sweep removes what launchers that were killed have left, beside the start of the first
// worker: neither has to wait for the other.
type sweep struct {
	began time.Time
	done  chan struct{}
	err   error
}

// sweeps are the last ones of this process: of temporary directories, and of those and
// control groups.
var sweeps struct {
	sync.Mutex
	last map[Tier]*sweep
}

// sweeping is a session's view of a sweep.
type sweeping struct {
	*sweep
	told bool // in a reply
}

func (s *Session) sweep() *sweeping {
	sweeps.Lock()
	defer sweeps.Unlock()
	if last := sweeps.last[s.opts.Tier]; last != nil && time.Since(last.began) < sweepRest {
		return &sweeping{sweep: last}
	}
	w := &sweep{began: time.Now(), done: make(chan struct{})}
	if sweeps.last == nil {
		sweeps.last = map[Tier]*sweep{}
	}
	sweeps.last[s.opts.Tier] = w
	go func() {
		defer close(w.done)
		if s.opts.Tier == TierJail {
			if _, err := jail.Sweep(); err != nil {
				w.err = fmt.Errorf("sweep control groups of dead launchers: %w", err)
			}
		}
		sweepTemp()
	}()
	return &sweeping{sweep: w}
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
