package kernel

import (
	"context"
	"time"

	"cellblock/kernel/extension"
	"cellblock/kernel/host"
)

// extensionIdentity is who a hook or a slash command runs for, beside any cell.
func (s *Session) extensionIdentity(number int, purpose host.Purpose) host.Identity {
	s.mu.Lock()
	generation := s.generation
	s.mu.Unlock()
	if purpose == "" {
		purpose = host.Interactive
	}
	return host.Identity{Session: s.name, Workspace: s.dir, Generation: generation, Cell: number, Purpose: purpose, Role: host.RoleExtension}
}

// hooks runs the hooks of that name and returns what to note of them. stop ends them
// early.
func (e *extensions) hooks(ctx context.Context, stop <-chan struct{}, hook string, id host.Identity, event map[string]any) []string {
	if e == nil || e.session == nil || !e.session.Has(hook) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ended:
		}
	}()
	return e.session.Hook(ctx, hook, id, event)
}

// beforeCell runs the hooks that come before a cell, and before the first one those
// of the session's start.
func (s *Session) beforeCell(ctx context.Context, stop <-chan struct{}, number int, c Call) (notes []string) {
	e := s.ext()
	if e == nil {
		return nil
	}
	id := s.extensionIdentity(number, host.Purpose(c.Purpose))
	e.mu.Lock()
	first := !e.started
	e.started = true
	e.mu.Unlock()
	if first {
		notes = e.hooks(ctx, stop, extension.SessionStart, id, map[string]any{})
	}
	return append(notes, e.hooks(ctx, stop, extension.BeforeCell, id, map[string]any{"cell": number, "purpose": string(id.Purpose), "code": c.Code})...)
}

// afterCell runs the hooks that come after a cell, however it ended.
func (s *Session) afterCell(ctx context.Context, stop <-chan struct{}, number int, c Call, r Result) []string {
	event := map[string]any{"cell": number, "status": r.Details.Status, "durationMs": r.Details.DurationMs, "error": nil}
	if r.Details.Error != nil {
		event["error"] = r.Details.Error.Name
	}
	return s.ext().hooks(context.WithoutCancel(ctx), stop, extension.AfterCell, s.extensionIdentity(number, host.Purpose(c.Purpose)), event)
}

// endTime bounds the hooks of a session's end.
const endTime = time.Second

// ended runs the hooks of the session's end, when those of its start have run. What
// fails there nobody is left to be told.
func (e *extensions) ended(id host.Identity) {
	if e == nil {
		return
	}
	e.mu.Lock()
	started := e.started
	e.mu.Unlock()
	if !started {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	_ = e.hooks(ctx, nil, extension.SessionEnd, id, map[string]any{})
}
