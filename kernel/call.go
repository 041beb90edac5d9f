package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cellblock/kernel/host"
	"cellblock/kernel/wire"
	"cellblock/policy/audit"
)

// crashNotice begins the reply after a worker's death.
const crashNotice = "[python kernel crashed; prior state is lost - it restarts on the next call]"

// resetText is the reply to a reset.
const resetText = "(namespace reset)"

// Call runs one call of the tool and always returns a whole result. When ctx
// ends first, the cell is interrupted, and killed if it does not unwind in time.
func (s *Session) Call(ctx context.Context, c Call) Result {
	r := newRun(ctx, s, c, false)
	r.play()
	return r.result
}

func (s *Session) call(ctx context.Context, c Call) Result {
	if err := s.take(ctx); err != nil {
		return s.notStarted(errStopped{err})
	}
	defer s.give()
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	s.wanted(c)
	w, err := s.live(ctx)
	rebuilt := c.Reset && errors.As(err, new(*RetiredError))
	if rebuilt {
		s.rebuild()
		w, err = s.live(ctx)
	}
	if err == nil {
		w, err = s.restore(ctx, w, stop)
	}
	if err != nil {
		return s.notStarted(err)
	}
	s.mu.Lock()
	lost := s.lost // also by a death between two calls
	s.mu.Unlock()
	if c.Reset {
		s.ext().reset()
	}
	var r Result
	switch {
	case rebuilt: // its namespace is as new
		r = s.step(w, audit.OpReset, func() Result {
			r := s.result(w)
			r.Content = []Content{{Type: "text", Text: resetText}}
			return r
		})
	case c.Reset:
		r = s.step(w, audit.OpReset, func() Result {
			if !w.spawned {
				r := s.runtimeCall(w, wire.Request{Reset: true})
				if r.IsError && r.Details.Error.Name != ToolError {
					return r // the worker is gone
				}
				if !r.IsError && s.bindTools(w, s.opts.CellTimeout) == nil {
					return r
				}
			}
			// Processes and threads of the old namespace cannot be told to end from
			// within it, and a cell may have broken the interpreter so that it resets
			// nothing; a fresh worker has neither.
			s.retire(w)
			s.keep.clear()
			if w, err = s.live(ctx); err != nil {
				return s.notStarted(err)
			}
			r := s.result(w)
			r.Content = []Content{{Type: "text", Text: resetText}}
			return r
		})
	case c.ReloadSkills:
		r = s.step(w, audit.OpReload, func() Result { return s.reload(ctx, w) })
		if c.Code != "" && !r.IsError {
			reload := r
			r = s.cell(ctx, w, c, stop)
			r.Details.ReloadSkills = reload.Details.ReloadSkills
			r.Content[0].Text = reload.Content[0].Text + "\n" + r.Content[0].Text
		}
	default:
		r = s.cell(ctx, w, c, stop)
	}
	s.keep.tell(&r)
	s.swept.tell(&r)
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

// notStarted is the result of a call that found no worker to run in.
func (s *Session) notStarted(err error) Result {
	if errors.As(err, new(errStopped)) {
		return s.failed(KernelKilled, "python kernel killed: "+err.Error(), nil)
	}
	if retired := new(RetiredError); errors.As(err, &retired) {
		r := s.failed(KernelRetired, retired.Error(), nil)
		r.Details.Error.Cause, r.Details.StateLost = retired.Why, true
		return r
	}
	return s.refused(err)
}

// reload imports the skills afresh and reads the extensions' files again.
func (s *Session) reload(ctx context.Context, w *worker) Result {
	r := s.runtimeCall(w, wire.Request{Reload: true})
	if r.Details.Error != nil {
		return r
	}
	_, warnings, err := s.reloadExtensions(ctx)
	for _, warning := range warnings {
		r.Details.Notes = append(r.Details.Notes, warning.String())
	}
	if err != nil {
		r.Details.Notes = append(r.Details.Notes, err.Error())
	}
	return r
}

// runtimeCall resets the namespace or reloads the skills.
func (s *Session) runtimeCall(w *worker, r wire.Request) Result {
	r.Op, r.Session, r.Directory = wire.OpInstallRuntime, s.name, s.dir
	m, err := w.request(r, s.opts.CellTimeout)
	switch {
	case errors.Is(err, errLate):
		w.kill(KernelTimeout)
		s.bury(w, s.unreported(w)...)
		return s.failed(KernelTimeout, timeoutText(s.opts.CellTimeout), nil)
	case err != nil:
		return s.exited(w)
	case m.Error != nil:
		return s.failed(ToolError, m.Error.Error(), nil)
	}
	result := s.result(w)
	if !r.Reload {
		s.keep.clear()
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
	if p := host.Purpose(c.Purpose); p != "" && !p.Known() {
		return s.failed(ToolError, fmt.Sprintf("purpose %q is none of interactive, maintenance, eval", c.Purpose), nil)
	}
	if err := s.recordCell(w, number, c, limit); err != nil {
		return s.failed(ToolError, err.Error(), nil)
	}
	notes := s.beforeCell(ctx, stop, number, c)
	r := s.artefacts(func() Result { return s.execute(ctx, w, c, number, limit, stop) })
	s.recordResult(w, number, r)
	notes = append(notes, s.afterCell(ctx, stop, number, c, r)...)
	r.Details.Notes = append(r.Details.Notes, notes...)
	return r
}

// execute runs a cell that stands in the record.
func (s *Session) execute(ctx context.Context, w *worker, c Call, number int, limit time.Duration, stop chan struct{}) Result {
	out := newCellOutput(s.opts.MaxOutput, w.temp.path, number, &w.room, c.Output)
	request := wire.Request{Op: wire.OpRunBlock, Session: s.name, Code: &c.Code, Purpose: c.Purpose, Cell: number, Scope: s.scope(number)}
	s.keep.begin(&request, c)
	if c.run.drives() {
		asks := true
		request.Input = &asks
	}
	var fds []int
	if w.forked {
		ends, err := w.out.open()
		if err != nil {
			return s.failed(ToolError, short(err).Error(), nil)
		}
		for _, end := range ends {
			fds = append(fds, int(end.Fd()))
			defer end.Close()
		}
		request.Pipes = true
	}
	w.out.begin(out, s.scope(number))
	start := time.Now()
	var m *wire.Message
	var why string
	var scope *host.Scope
	var err error
	for again := false; ; again = true {
		scope = host.NewScope(context.WithoutCancel(ctx), host.Identity{Session: s.name, Workspace: s.dir, Generation: w.generation,
			Cell: number, Scope: s.scope(number), Purpose: cmp.Or(host.Purpose(c.Purpose), host.Interactive), Role: host.RoleSandbox})
		m, why, err = s.exchange(ctx, w, request, fds, execution{worker: w, scope: scope, run: c.run, restoring: c.restoring}, stop, limit)
		// A cell of a worker without room for its pipes has not begun; the worker has
		// made room now.
		if again || !request.Pipes || why != "" || m == nil || m.Error == nil || m.Error.Type != wire.ErrorNoDescriptors {
			break
		}
	}
	c.run.release()
	if err != nil {
		w.out.finish()
		out.end()
		if errors.As(err, new(*wire.ProtocolError)) {
			return s.failed(ToolError, err.Error(), nil)
		}
		return s.exited(w)
	}
	background, dropped := w.out.finish()
	d := cellResult{out: out, path: out.end(), background: background, dropped: dropped, limit: limit, took: time.Since(start)}
	if m == nil || why == KernelKilled {
		if why == "" {
			why = w.killedBy()
		}
		death := s.bury(w)
		return s.died(w, why, death, d)
	}
	if m.Error != nil {
		return s.failed(ToolError, m.Error.Error(), nil)
	}
	cell, err := wire.ParseCell(m.Value)
	if err == nil {
		err = s.keep.took(cell.Definitions)
	}
	if err != nil {
		w.fail(err)
		return s.died(w, "", s.bury(w), d)
	}
	if w.hears, err = w.proc.Settle(); err != nil {
		cell.Notes = append(cell.Notes, err.Error()+": what it would have told of has failed since")
	}
	cell.Yielded = cell.Yielded || scope.Yielded()
	w.forked = cell.Forked
	w.spawned = w.spawned || cell.Forked
	return s.compose(w, cell, d, why)
}

// exchange sends the request of an execution and waits for its end, as await does. The
// error is that of sending.
func (s *Session) exchange(ctx context.Context, w *worker, request wire.Request, fds []int, e execution, stop chan struct{}, limit time.Duration) (m *wire.Message, why string, err error) {
	e.done = make(chan struct{})
	defer close(e.done)
	defer s.setRunning(execution{})
	defer e.scope.Close()
	id, reply, err := w.send(request, fds, func(id int64) {
		// The cell may run, and be seen to, before send returns: an interrupt has
		// to find it from then on.
		e.number = id
		s.setRunning(e)
	})
	if err != nil {
		return nil, "", err
	}
	m, why = s.await(ctx, w, id, reply, stop, limit)
	return m, why, nil
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
	select {
	case m := <-reply:
		return m, ""
	case <-w.gone:
		select {
		case m := <-reply:
			return m, ""
		default:
			return nil, ""
		}
	case <-stop:
		w.kill(KernelKilled)
		return nil, KernelKilled
	case <-ctx.Done():
		if m := s.unwind(w, id, reply, "the call was cancelled"); m != nil {
			return m, "interrupted"
		}
		w.kill(KernelKilled)
		return nil, KernelKilled
	case <-late:
		if s.opts.OnTimeout == TimeoutInterrupt {
			if m := s.unwind(w, id, reply, "the time limit"); m != nil {
				return m, KernelTimeout
			}
		}
		w.kill(KernelTimeout)
		return nil, KernelTimeout
	}
}

// unwind interrupts an execution and gives it time to end; nil when it did not.
func (s *Session) unwind(w *worker, id int64, reply chan *wire.Message, why string) *wire.Message {
	s.recordControl(w, audit.OpInterrupt, why)
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
	s.mu.Lock()
	e := s.running
	s.mu.Unlock()
	if e.worker == w && e.number == id {
		e.scope.Interrupt()
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

// exited is the reply of a call whose worker died, or was ended by Abort or
// Close, before it could run.
func (s *Session) exited(w *worker) Result {
	log := w.out.tail()
	death := s.bury(w)
	return s.died(w, w.killedBy(), death, cellResult{log: log})
}
