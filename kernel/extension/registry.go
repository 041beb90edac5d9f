package extension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cellblock/kernel/host"
	"cellblock/kernel/wire"
)

// Bounds of what a file registers.
const (
	maxTools  = 256
	maxPrompt = 16 << 10 // bytes
)

// Extension is what one file has registered.
type Extension struct {
	Name   string    `json:"name"`
	File   File      `json:"file"`
	Tools  []Tool    `json:"tools,omitempty"`
	Prompt string    `json:"prompt,omitempty"`
	Slash  []Command `json:"slash,omitempty"`
	Hooks  []string  `json:"hooks,omitempty"`
}

// Tool is one tool of an extension, as its file describes it.
type Tool struct {
	Name      string          `json:"name"` // without the extension's
	Doc       string          `json:"doc,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Schema    json.RawMessage `json:"schema,omitempty"`
	Preflight bool            `json:"preflight,omitempty"`
	Purposes  []host.Purpose  `json:"purposes,omitempty"`
	Roles     []host.Role     `json:"roles,omitempty"`
	TimeoutMs int64           `json:"timeoutMs,omitempty"`
	Reason    string          `json:"reason,omitempty"`
}

// Command is a slash command: "/name text".
type Command struct {
	Name string `json:"name"`
	Doc  string `json:"doc,omitempty"`
}

// reserved are names that an extension cannot have: those of the launcher's own
// calls, and of what cells find bound.
var reserved = []string{"cellblock", "host", "input", "workspace", "evidence", "maintenance"}

// Registry has files registered in one worker that all sessions of the launcher
// share, each file's text once. Its methods may be called from several goroutines.
type Registry struct {
	launch Launch
	users  int // guarded by shared.mu

	mu     sync.Mutex
	worker *worker
	known  map[string]registered // by path and digest
	count  int
}

// registered is what came of a file; warning is empty when it was registered.
type registered struct {
	extension Extension
	warning   string
}

var shared struct {
	mu         sync.Mutex
	registries map[Launch]*Registry
}

// Share returns the registry of workers that are started so. Each call is matched by
// one of Release, the last of which ends the worker.
func Share(launch Launch) *Registry {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.registries == nil {
		shared.registries = map[Launch]*Registry{}
	}
	r := shared.registries[launch]
	if r == nil {
		r = &Registry{launch: launch, known: map[string]registered{}}
		shared.registries[launch] = r
	}
	r.users++
	return r
}

// Release gives the registry back.
func (r *Registry) Release() {
	shared.mu.Lock()
	r.users--
	last := r.users == 0
	if last {
		delete(shared.registries, r.launch)
	}
	shared.mu.Unlock()
	if last {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.drop()
	}
}

func (r *Registry) drop() {
	if r.worker != nil {
		r.worker.end()
		r.worker = nil
	}
}

// Register returns what the files register, in their order, and why some do not. Of
// two extensions of one name the first counts. A file that was seen before, with the
// same text, is not evaluated again.
func (r *Registry) Register(ctx context.Context, files []File) (found []Extension, warnings []Warning) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range files {
		key := f.Path + "\x00" + f.Digest + "\x00" + f.Root
		got, ok := r.known[key]
		if !ok {
			var keep bool
			got, keep = r.evaluate(ctx, f)
			if keep {
				r.known[key] = got
			}
		}
		got.extension.File = f
		if got.warning == "" {
			if i := slices.IndexFunc(found, func(e Extension) bool { return e.Name == got.extension.Name }); i >= 0 {
				got.warning = fmt.Sprintf("there is an extension %s already: %s", got.extension.Name, found[i].File.Path)
			}
		}
		if got.warning != "" {
			warnings = append(warnings, Warning{f.Path, got.warning})
			continue
		}
		found = append(found, got.extension)
	}
	return found, warnings
}

// evaluate has one file evaluated; keep is false when another try may end otherwise.
func (r *Registry) evaluate(ctx context.Context, f File) (got registered, keep bool) {
	if r.worker == nil {
		w, err := startWorker(r.launch, "registration", refuseCall)
		if err != nil {
			return registered{warning: err.Error()}, false
		}
		r.worker = w
	}
	r.count++
	m, err := r.worker.load(ctx, fmt.Sprintf("r%d", r.count), f, r.launch.startTime())
	switch {
	case err != nil:
		why := "it did not load within " + r.launch.startTime().String()
		if errors.Is(err, errGone) {
			why = "loading it: " + r.worker.death()
		} else if ctx.Err() != nil {
			why = ctx.Err().Error()
		}
		r.drop()
		return registered{warning: why}, false
	case m.Error != nil:
		return registered{warning: plain(m.Error)}, true
	}
	var e Extension
	if err := json.Unmarshal(m.Value, &e); err != nil {
		return registered{warning: "what it registers cannot be read: " + err.Error()}, true
	}
	if why := e.wrong(); why != "" {
		return registered{warning: why}, true
	}
	return registered{extension: e}, true
}

// refuseCall answers a host call for which there is no session.
func refuseCall(w *worker, m *wire.Message) {
	go func() {
		_ = w.conn.Reply(wire.Answer{ID: m.ID, Scope: m.Scope, Error: &wire.HostError{Type: "HostError", Code: host.CodeScopeClosed, Message: "host calls are possible during a call of a session only"}})
	}()
}

// wrong says what the launcher does not take of an extension; empty for nothing.
func (e *Extension) wrong() string {
	switch {
	case !identifier(e.Name):
		return fmt.Sprintf("%q is no name for an extension", e.Name)
	case slices.Contains(reserved, e.Name):
		return fmt.Sprintf("the name %s is the launcher's own: take another", e.Name)
	case len(e.Tools) > maxTools:
		return fmt.Sprintf("it has %d tools, at most %d are taken", len(e.Tools), maxTools)
	case len(e.Prompt) > maxPrompt:
		return fmt.Sprintf("its prompt has %d bytes, at most %d are taken", len(e.Prompt), maxPrompt)
	}
	for _, t := range e.Tools {
		if !identifier(t.Name) {
			return fmt.Sprintf("%q is no name for a tool", t.Name)
		}
	}
	return ""
}

// identifier reports whether text can be written as a name in Python; ASCII only, so
// that what is read is what is meant.
func identifier(text string) bool {
	if text == "" || len(text) > 100 || strings.HasPrefix(text, "__") || text[0] >= '0' && text[0] <= '9' {
		return false
	}
	for _, r := range text {
		if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return true
}
