package extension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"cellblock/kernel/host"
)

// hookTime bounds a hook: one that takes longer is cancelled.
const hookTime = 5 * time.Second

// Tools are the tools of all extensions, named "<extension>.<tool>".
func (s *Session) Tools() []host.Tool {
	var out []host.Tool
	for _, e := range s.Extensions() {
		for _, t := range e.Tools {
			out = append(out, s.tool(e, t))
		}
	}
	return out
}

func (s *Session) tool(e Extension, t Tool) host.Tool {
	reason := t.Reason
	if reason == "" {
		reason = "a tool of the extension " + e.File.Path
	}
	fields := func(c host.Call) map[string]any {
		arguments := c.Arguments
		if len(arguments) == 0 {
			arguments = json.RawMessage("{}")
		}
		return map[string]any{"tool": t.Name, "arguments": arguments}
	}
	made := host.Tool{Name: e.Name + "." + t.Name, Doc: t.Doc, Signature: t.Signature, Schema: t.Schema, Roles: t.Roles, Purposes: t.Purposes, Reason: reason}
	made.Do = func(ctx context.Context, c host.Call) (json.RawMessage, error) {
		if t.TimeoutMs == 0 {
			return s.do(ctx, "call", e.Name, c, fields(c))
		}
		limit := time.Duration(t.TimeoutMs) * time.Millisecond
		timed, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		value, err := s.do(timed, "call", e.Name, c, fields(c))
		var failed *host.Error
		if errors.As(err, &failed) && failed.Code == host.CodeCancelled && ctx.Err() == nil {
			return nil, failure(host.CodeCancelled, "it took longer than %s, the time that the extension gives it", limit)
		}
		return value, err
	}
	if t.Preflight {
		made.Preflight = func(ctx context.Context, c host.Call) (json.RawMessage, error) {
			return s.do(ctx, "preflight", e.Name, c, fields(c))
		}
	}
	return made
}

// Commands lists the slash commands of all extensions; of two of one name the first
// counts.
func (s *Session) Commands() []Command {
	var out []Command
	seen := map[string]bool{}
	for _, e := range s.Extensions() {
		for _, c := range e.Slash {
			if !seen[c.Name] {
				seen[c.Name] = true
				out = append(out, c)
			}
		}
	}
	return out
}

// Slash runs a slash command and returns what to show; empty for nothing. The error
// is an *host.Error.
func (s *Session) Slash(ctx context.Context, command, text string, id host.Identity) (string, error) {
	for _, e := range s.Extensions() {
		for _, c := range e.Slash {
			if c.Name != command {
				continue
			}
			value, err := s.do(ctx, "slash", e.Name, host.Call{Identity: id}, map[string]any{"command": command, "text": text})
			var shown *string
			if err == nil {
				err = json.Unmarshal(value, &shown)
			}
			if err != nil || shown == nil {
				return "", err
			}
			return *shown, nil
		}
	}
	return "", failure(host.CodeUnknown, "there is no command /%s", command)
}

// The hooks of an extension.
const (
	SessionStart = "session_start"
	BeforeCell   = "before_cell"
	AfterCell    = "after_cell"
	SessionEnd   = "session_end"
)

// Hook runs the hooks of that name, one extension after the other, and returns a note
// for each that failed. event is JSON data.
func (s *Session) Hook(ctx context.Context, hook string, id host.Identity, event map[string]any) (notes []string) {
	for _, e := range s.Extensions() {
		for _, h := range e.Hooks {
			if h != hook {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, hookTime)
			_, err := s.do(ctx, "hook", e.Name, host.Call{Identity: id}, map[string]any{"hook": hook, "event": event})
			cancel()
			if err != nil {
				notes = append(notes, fmt.Sprintf("extension %s: hook %s: %v", e.Name, hook, err))
			}
		}
	}
	return notes
}

// Has reports whether some extension has that hook.
func (s *Session) Has(hook string) bool {
	for _, e := range s.Extensions() {
		for _, h := range e.Hooks {
			if h == hook {
				return true
			}
		}
	}
	return false
}

// Prompt is what the extensions tell the model, a paragraph each.
func (s *Session) Prompt() string {
	var parts []string
	for _, e := range s.Extensions() {
		if text := strings.TrimSpace(e.Prompt); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n\n")
}
