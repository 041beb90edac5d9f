package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"cellblock/kernel/extension"
	"cellblock/kernel/host"
	"cellblock/pyruntime"
)

// extensionOwner names the extensions' part of the door's table.
const extensionOwner = "the extensions"

// extensions are a session's: found and registered beside the start of its first
// worker, and run in a worker of their own. nil for a session without any.
type extensions struct {
	temp     *tempDir // keeps the worker's source where nothing else does
	registry *extension.Registry
	session  *extension.Session // nil where no worker could be described
	done     chan struct{}      // closed when registration has ended

	mu       sync.Mutex
	warnings []extension.Warning
	started  bool // the hooks of the session's start have run
}

// openExtensions looks for extensions and begins to register them.
func (s *Session) openExtensions() {
	files, warnings := s.findExtensions()
	var e *extensions
	if len(files) > 0 || len(warnings) > 0 {
		e = &extensions{done: make(chan struct{}), warnings: warnings}
	}
	if len(files) > 0 {
		launch, err := s.extensionLaunch(e)
		if err != nil {
			e.warnings = append(e.warnings, extension.Warning{Path: filepath.Dir(files[0].Path), Why: "nothing is loaded: " + err.Error()})
		} else {
			e.registry = extension.Share(launch)
			e.session = extension.New(extension.Options{Launch: launch, Name: s.name, Call: s.nestedCall}, nil)
		}
	}
	s.mu.Lock()
	s.extensions = e
	s.mu.Unlock()
	switch {
	case e == nil:
	case e.session == nil:
		close(e.done)
	default:
		go func() {
			defer close(e.done)
			s.register(context.Background(), e, files)
		}()
	}
}

// ext are the session's extensions; nil for none.
func (s *Session) ext() *extensions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.extensions
}

func (s *Session) findExtensions() ([]extension.File, []extension.Warning) {
	roots, left := extensionRoots(s.opts, s.dir, s.home, s.ownHidden())
	files, warnings := extension.Discover(roots)
	return files, append(left, warnings...)
}

// register has the files registered and puts their tools on the door's table. One
// whose tools do not go there is left out as a whole.
func (s *Session) register(ctx context.Context, e *extensions, files []extension.File) {
	known, warnings := e.registry.Register(ctx, files)
	for {
		e.session.Replace(known)
		err := s.door.Set(extensionOwner, e.session.Tools())
		if err == nil {
			break
		}
		// The name of the tool stands in the error; each is tried for itself.
		var kept []extension.Extension
		for _, one := range known {
			e.session.Replace(append(kept[:len(kept):len(kept)], one))
			if err := s.door.Set(extensionOwner, e.session.Tools()); err != nil {
				warnings = append(warnings, extension.Warning{Path: one.File.Path, Why: err.Error()})
				continue
			}
			kept = append(kept, one)
		}
		known = kept
	}
	e.mu.Lock()
	e.warnings = append(e.warnings, warnings...)
	e.mu.Unlock()
}

// extensionLaunch says how this session's extension workers are started.
func (s *Session) extensionLaunch(e *extensions) (extension.Launch, error) {
	python, err := s.extensionPython()
	if err != nil {
		return extension.Launch{}, err
	}
	source, err := storedSource(extensionSource, s.opts.Runtime, python, s.places())
	if err != nil {
		if e.temp, err = newTempDir(); err != nil {
			return extension.Launch{}, err
		}
		source = filepath.Join(e.temp.path, "extension")
		if err := os.Mkdir(source, 0o700); err != nil {
			return extension.Launch{}, fmt.Errorf("extension worker's source: %w", err)
		}
		if err := pyruntime.WriteExtensionTo(source); err != nil {
			return extension.Launch{}, err
		}
	}
	return extension.Launch{Python: python, Source: source, StartTime: s.opts.StartTimeout, Limits: s.opts.ExtensionLimits, LogDir: s.opts.ExtensionLogs}, nil
}

// extensionPython is the interpreter of extension workers: the session's, unless a
// session could have changed it, since it runs outside of any jail.
func (s *Session) extensionPython() (string, error) {
	bin := s.opts.ExtensionPython
	if bin == "" {
		bin = s.opts.PythonBin
	}
	python, err := interpreter(bin, s.places())
	if err != nil {
		return "", err
	}
	if place := s.places().overlapping(python); place != "" {
		return "", fmt.Errorf("python %q: cells can change it, or its library, in %s, and it would run outside of the jail: name another interpreter for extensions", python, place)
	}
	return python, nil
}

// nestedCall brings a host call that a handler makes to the door.
func (s *Session) nestedCall(ctx context.Context, from host.Call, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	if from.Identity.Scope == "" {
		return nil, &host.Error{Type: "HostError", Code: host.CodeScopeClosed, Message: fmt.Sprintf("host call %q: no cell runs that it could be made for", tool)}
	}
	s.mu.Lock()
	e := s.running
	s.mu.Unlock()
	if e.scope == nil || e.scope.Identity().Scope != from.Identity.Scope || !e.scope.Live() {
		return nil, &host.Error{Type: "HostError", Code: host.CodeScopeClosed, Message: fmt.Sprintf("host call %q: the cell has ended or yielded", tool)}
	}
	id := from.Identity
	id.Role = host.RoleExtension
	value, failed := s.door.Call(ctx, s.nestedRequest(e.run, host.Request{Identity: id, Tool: tool, Arguments: arguments,
		Chain: append(append([]string{}, from.Chain...), from.Tool), Record: callRecord{s, e.worker}}))
	if failed != nil {
		return nil, failed
	}
	return value, nil
}

// nestedRequest completes a nested call with what answers it. A run keeps no decision of
// it: it is a part of what the outer call does, which is not done again.
func (s *Session) nestedRequest(r *Run, q host.Request) host.Request {
	if r != nil {
		q.Record = runRecord{q.Record, r}
	}
	if !r.drives() {
		q.Approve = s.opts.Approve
		return q
	}
	q.Answer = func(ctx context.Context, c host.Call) (json.RawMessage, error) {
		a, err := r.ask(ctx, Question{Kind: AskHostCall, Call: &c})
		return answered(a, err)
	}
	q.Approve = func(ctx context.Context, a host.Approval) (bool, error) {
		got, err := r.ask(ctx, Question{Kind: AskApproval, Call: &a.Call, Approval: &a})
		if err == nil && got.Error != nil {
			err = got.Error
		}
		return got.Approved && err == nil, err
	}
	return q
}

// registered waits until the extensions are registered.
func (e *extensions) registered(ctx context.Context) error {
	if e == nil {
		return nil
	}
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reset makes a worker that was given up start again.
func (e *extensions) reset() {
	if e != nil && e.session != nil && e.session.Retired() != "" {
		e.session.Reset()
	}
}

func (e *extensions) close() {
	if e == nil {
		return
	}
	<-e.done
	if e.session != nil {
		e.session.Close()
		e.registry.Release()
	}
	if e.temp != nil {
		e.temp.remove()
	}
}
