package kernel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cellblock/kernel/wire"
)

// crashNotice begins the reply after a worker's death.
const crashNotice = "[python kernel crashed; prior state is lost - it restarts on the next call]"

// resetText is the reply to a reset.
const resetText = "(namespace reset)"

// Call runs one call of the tool and always returns a whole result. When ctx
// ends first, the cell is interrupted, and killed if it does not unwind in time.
func (s *Session) Call(ctx context.Context, c Call) Result {
	if err := s.take(ctx); err != nil {
		return s.failed(KernelKilled, "python kernel killed: "+err.Error(), nil)
	}
	defer s.give()
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	w, err := s.live()
	if err != nil {
		return s.failed(ToolError, err.Error(), nil)
	}
	s.mu.Lock()
	lost := s.lost // also by a death between two calls
	s.mu.Unlock()
	var r Result
	switch {
	case c.Reset && w.spawned:
		// Processes and threads of the old namespace cannot be told to end from
		// within it; a fresh worker has none.
		s.retire(w)
		if w, err = s.live(); err != nil {
			return s.failed(ToolError, err.Error(), nil)
		}
		r = s.result(w)
		r.Content = []Content{{Type: "text", Text: resetText}}
	case c.Reset:
		r = s.runtimeCall(w, wire.Request{Reset: true})
	case c.ReloadSkills:
		r = s.runtimeCall(w, wire.Request{Reload: true})
		if c.Code != "" && !r.IsError {
			reload := r
			r = s.cell(ctx, w, c, stop)
			r.Details.ReloadSkills = reload.Details.ReloadSkills
			r.Content[0].Text = reload.Content[0].Text + "\n" + r.Content[0].Text
		}
	default:
		r = s.cell(ctx, w, c, stop)
	}
	if lost {
		// Said once; a worker that died in this very call sets it again.
		r.Content[0].Text = crashNotice + "\n" + r.Content[0].Text
		r.Details.StateLost = true
		s.mu.Lock()
		if s.worker == w {
			s.lost = false
		}
		s.mu.Unlock()
	}
	return r
}

// runtimeCall resets the namespace or reloads the skills.
func (s *Session) runtimeCall(w *worker, r wire.Request) Result {
	r.Op, r.Session, r.Directory = wire.OpInstallRuntime, s.name, s.dir
	m, err := w.request(r, nil, s.opts.CellTimeout)
	switch {
	case errors.Is(err, errLate):
		w.kill(KernelTimeout)
		s.bury(w)
		return s.failed(KernelTimeout, timeoutText(s.opts.CellTimeout), nil)
	case err != nil:
		return s.exited(w)
	case m.Error != nil:
		return s.failed(ToolError, m.Error.Error(), nil)
	}
	result := s.result(w)
	if !r.Reload {
		result.Content = []Content{{Type: "text", Text: resetText}}
		return result
	}
	var told []string
	if m.Info != nil {
		result.Details.ReloadSkills = m.Info.Reload
		result.Details.SkErrors = m.Info.SkErrors
		for _, name := range m.Info.Skills {
			told = append(told, name+": "+m.Info.Reload[name])
			result.IsError = result.IsError || m.Info.Reload[name] != "ok"
		}
	}
	if result.IsError {
		result.Details.Status = StatusError
	}
	if len(told) == 0 {
		told = []string{"(no modules)"}
	}
	result.Content = []Content{{Type: "text", Text: "reload_skills: " + strings.Join(told, ", ")}}
	return result
}

// cell runs code in the worker.
func (s *Session) cell(ctx context.Context, w *worker, c Call, stop chan struct{}) Result {
	limit := c.Timeout
	if limit <= 0 {
		limit = s.opts.CellTimeout
	}
	if wall := time.Duration(s.policy.Limits.WallSeconds) * time.Second; wall > 0 {
		limit = min(limit, wall)
	}
	s.mu.Lock()
	s.cells++
	number := s.cells
	s.mu.Unlock()
	out := newCellOutput(s.opts.MaxOutput, w.temp.path, number, c.Output)
	if most := s.policy.Limits.OutputBytes; most > 0 {
		out.maxSpill = min(most, maxSpill)
	}
	request := wire.Request{Op: wire.OpRunBlock, Session: s.name, Code: &c.Code, Purpose: c.Purpose, Cell: number, Scope: fmt.Sprintf("%s/%d", s.name, number)}
	var fds []int
	if w.forked {
		ends, err := w.out.open()
		if err != nil {
			return s.failed(ToolError, err.Error(), nil)
		}
		for _, end := range ends {
			fds = append(fds, int(end.Fd()))
			defer end.Close()
		}
		request.Pipes = true
	}
	w.out.begin(out, number)
	start := time.Now()
	id, reply, err := w.send(request, fds)
	if err != nil {
		w.out.finish()
		out.end()
		if errors.As(err, new(*wire.ProtocolError)) {
			return s.failed(ToolError, err.Error(), nil)
		}
		return s.exited(w)
	}
	done := make(chan struct{})
	s.setRunning(execution{worker: w, number: id, done: done})
	m, why := s.await(ctx, w, id, reply, stop, limit)
	s.setRunning(execution{})
	close(done)
	background, dropped := w.out.finish()
	d := cellResult{out: out, path: out.end(), background: background, dropped: dropped, limit: limit, took: time.Since(start)}
	if m == nil || why == KernelKilled {
		if why == "" {
			why = w.killedBy()
		}
		death := s.bury(w)
		return s.died(why, death, d)
	}
	if m.Error != nil {
		return s.failed(ToolError, m.Error.Error(), nil)
	}
	cell, err := wire.ParseCell(m.Value)
	if err != nil {
		w.fail(err)
		return s.died("", s.bury(w), d)
	}
	w.forked = cell.Forked
	w.spawned = w.spawned || cell.Forked
	return s.compose(w, cell, d, why)
}

func (s *Session) setRunning(e execution) {
	s.mu.Lock()
	s.running = e
	s.mu.Unlock()
}

// await waits for the reply of an execution. why is set when the launcher ended
// the wait: KernelTimeout or KernelKilled. m is nil when the worker has gone.
func (s *Session) await(ctx context.Context, w *worker, id int64, reply chan *wire.Message, stop chan struct{}, limit time.Duration) (m *wire.Message, why string) {
	late, cancel := after(limit)
	defer cancel()
	done := ctx.Done()
	for {
		select {
		case m := <-reply:
			return m, why
		case <-w.gone:
			select {
			case m := <-reply:
				return m, why
			default:
				return nil, why
			}
		case <-stop:
			w.kill(KernelKilled)
			return nil, KernelKilled
		case <-done:
			done = nil
			why = KernelKilled
			if m := s.unwind(w, id, reply); m != nil {
				return m, "interrupted"
			}
			w.kill(KernelKilled)
			return nil, KernelKilled
		case <-late:
			why = KernelTimeout
			if s.opts.OnTimeout == TimeoutInterrupt {
				if m := s.unwind(w, id, reply); m != nil {
					return m, KernelTimeout
				}
			}
			w.kill(KernelTimeout)
			return nil, KernelTimeout
		}
	}
}

// unwind interrupts an execution and gives it time to end; nil when it did not.
func (s *Session) unwind(w *worker, id int64, reply chan *wire.Message) *wire.Message {
	grace, cancel := after(unwindGrace)
	defer cancel()
	if _, err := w.interrupt(s.name, id); err != nil {
		select {
		case m := <-reply:
			return m
		default:
			return nil
		}
	}
	select {
	case m := <-reply:
		return m
	case <-grace:
		return nil
	case <-w.gone:
		return nil
	}
}

func timeoutText(limit time.Duration) string {
	return fmt.Sprintf("python cell timed out after %gs", limit.Seconds())
}

// exited is the reply of a call whose worker died before it could run.
func (s *Session) exited(w *worker) Result {
	log := w.out.tail()
	death := s.bury(w)
	return s.died("", death, cellResult{log: log})
}
