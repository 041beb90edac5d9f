package kernel

import (
	"context"
	"errors"
	"fmt"

	"cellblock/kernel/extension"
	"cellblock/kernel/host"
)

// Extensions returns what the session's files register, and why some are not used.
// It waits until that is known, or for ctx.
func (s *Session) Extensions(ctx context.Context) ([]extension.Extension, []extension.Warning) {
	e := s.ext()
	if e == nil || e.registered(ctx) != nil {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session == nil {
		return nil, e.warnings
	}
	return e.session.Extensions(), e.warnings
}

// ReloadExtensions reads the extensions' files again: the worker in which they ran is
// ended, and what they register now is bound in the session. It waits for the
// session's turn. The error says why the session could not be told.
func (s *Session) ReloadExtensions(ctx context.Context) ([]extension.Extension, []extension.Warning, error) {
	if err := s.take(ctx); err != nil {
		return nil, nil, err
	}
	defer s.give()
	return s.reloadExtensions(ctx)
}

// reloadExtensions is ReloadExtensions for who has the turn.
func (s *Session) reloadExtensions(ctx context.Context) ([]extension.Extension, []extension.Warning, error) {
	e := s.ext()
	if err := e.registered(ctx); err != nil {
		return nil, nil, err
	}
	if e != nil && e.session != nil {
		files, warnings := s.findExtensions()
		e.mu.Lock()
		e.warnings = warnings
		e.mu.Unlock()
		s.register(ctx, e, files)
	} else {
		e.close()
		s.openExtensions()
		if err := s.ext().registered(ctx); err != nil {
			return nil, nil, err
		}
	}
	s.mu.Lock()
	w := s.worker
	s.mu.Unlock()
	var err error
	if w != nil {
		err = s.bindTools(w, s.opts.CellTimeout)
	}
	known, warnings := s.Extensions(ctx)
	return known, warnings, err
}

// Commands lists the slash commands of the session's extensions.
func (s *Session) Commands(ctx context.Context) []extension.Command {
	if e := s.ext(); e != nil && e.registered(ctx) == nil && e.session != nil {
		return e.session.Commands()
	}
	return nil
}

// Slash runs the slash command "/name text" of an extension and returns what to show.
// It waits for the session's turn, as a cell does. The error is an *host.Error where
// the command itself failed.
func (s *Session) Slash(ctx context.Context, name, text string) (string, error) {
	if err := s.take(ctx); err != nil {
		return "", err
	}
	defer s.give()
	e := s.ext()
	if err := e.registered(ctx); err != nil {
		return "", err
	}
	if e == nil || e.session == nil {
		return "", &host.Error{Type: "HostError", Code: host.CodeUnknown, Message: fmt.Sprintf("there is no command /%s", name)}
	}
	return e.session.Slash(ctx, name, text, s.extensionIdentity(0, host.Interactive))
}

// Description is what a model is told of the session's tool: ToolDescription, with
// what the extensions add.
func (s *Session) Description(ctx context.Context) string {
	prompt := ""
	if e := s.ext(); e != nil && e.registered(ctx) == nil && e.session != nil {
		prompt = e.session.Prompt()
	}
	return describeTool(s.opts, prompt)
}

// FindExtensions returns what a session with these options would load, and why some
// files are not used. No sandbox is started.
func FindExtensions(ctx context.Context, opts Options) ([]extension.Extension, []extension.Warning, error) {
	s, err := newSession(opts)
	if err != nil {
		return nil, nil, err
	}
	s.openExtensions()
	defer s.ext().close()
	known, warnings := s.Extensions(ctx)
	if err := ctx.Err(); err != nil {
		return nil, nil, errors.Join(err, context.Cause(ctx))
	}
	return known, warnings, nil
}
