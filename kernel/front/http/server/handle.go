package server

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // openapi.json
	"errors"
	"io"
	"mime"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
)

// Bounds of bodies, in bytes. JSON may need six for one of a cell's.
const (
	maxRun   = 64 << 20
	maxOther = 64 << 10
)

//go:embed openapi.json
var openAPI []byte

func (s *Server) health(w http.ResponseWriter, _ *http.Request, _ caller) *answer {
	if _, _, draining := s.registry.counts(); draining {
		return s.registry.ending()
	}
	send(w, http.StatusOK, api.Health{Status: api.StatusOK})
	return nil
}

func (s *Server) openapi(w http.ResponseWriter, _ *http.Request, _ caller) *answer {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
	return nil
}

func (s *Server) numbers(w http.ResponseWriter, r *http.Request, _ caller) *answer {
	s.metrics.handler.ServeHTTP(w, r)
	return nil
}

// taken is a request's body, whole and in time.
func taken(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *answer) {
	ctl := http.NewResponseController(w)
	_ = ctl.SetReadDeadline(time.Now().Add(bodyGrace))
	// Until all is read net/http does not notice that a client goes.
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	_ = ctl.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuse(http.StatusRequestEntityTooLarge, api.CodeTooLarge, "the body has more than %d bytes; put data into files of the session directory", large.Limit)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, api.CodeInvalid, "the body did not come whole")
	}
	return data, nil
}

// read reads a request's body into v. One that may be left out is as if {} were there.
func read(w http.ResponseWriter, r *http.Request, v any, most int64, optional bool) *answer {
	data, a := taken(w, r, most)
	switch {
	case a != nil:
		return a
	case optional && len(bytes.TrimSpace(data)) == 0:
		return nil
	}
	// A form on a page could send JSON as text/plain without asking anybody.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, api.CodeMediaType, "header Content-Type: %.60q is not application/json", r.Header.Get("Content-Type"))
	}
	if err := api.Decode(bytes.NewReader(data), v); err != nil {
		return refuse(http.StatusBadRequest, api.CodeInvalid, "%v", err)
	}
	return nil
}

// whole takes a body in that another handler reads, within the time and the size that
// bodies here have.
func whole(w http.ResponseWriter, r *http.Request) *answer {
	data, a := taken(w, r, maxRun)
	r.Body = io.NopCloser(bytes.NewReader(data))
	return a
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, who caller) *answer {
	var c api.Create
	if a := read(w, r, &c, maxOther, false); a != nil {
		return a
	}
	dir, a := s.places.find(who, c.Directory, c.Make, s.uid)
	if a != nil {
		return a
	}
	options, idle, a := s.tighten(c, dir)
	if a != nil {
		return a
	}
	claimed, a := s.registry.claim(who, dir)
	if a != nil {
		return a
	}
	if options.Tools, a = tools(c.Tools); a != nil {
		s.registry.drop(claimed)
		return a
	}
	options.Stock = s.stocks.of(dir)
	e, a := s.open(who, c.Name, options, idle)
	if a != nil {
		s.registry.drop(claimed)
		return a
	}
	if !s.registry.add(claimed, e) {
		s.finish(e, "shutdown")
		return s.registry.ending()
	}
	s.metrics.opened.Inc()
	s.hooks.Log.Info("session opened", "session", e.id, "caller", string(who), "directory", dir, "mode", string(options.Mode))
	w.Header().Set("Location", "/v1/sessions/"+e.id)
	send(w, http.StatusCreated, s.describe(e))
	return nil
}

// open opens a session for a caller.
func (s *Server) open(who caller, name string, o kernel.Options, idle time.Duration) (*entry, *answer) {
	id := newID()
	o.Name = id
	if dir := s.config.Session.Audit; dir != "" {
		o.Audit = filepath.Join(dir, time.Now().UTC().Format("20060102T150405.000")+"-"+id+".jsonl")
	}
	session, err := kernel.Open(o)
	if err != nil {
		return nil, openFailed(err)
	}
	if got := session.Info().Directory; got != o.SessionDir {
		_ = session.Close()
		return nil, refuse(http.StatusForbidden, api.CodeDirectory, "directory %.200q: was exchanged for a link while the session was opened", o.SessionDir)
	}
	now := time.Now()
	e := &entry{id: id, name: name, owner: who, directory: o.SessionDir, description: session.Description(context.Background()), timeout: o.CellTimeout,
		idle: idle, created: now, used: now, session: session, bodies: make(chan struct{}, 1)}
	e.living, e.ended = context.WithCancel(context.Background())
	return e, nil
}

// openFailed tells what the caller has asked wrongly from what this host cannot do.
func openFailed(err error) *answer {
	if errors.As(err, new(*kernel.OptionError)) {
		return refuse(http.StatusBadRequest, api.CodeInvalid, "%v", err)
	}
	return refuse(http.StatusInternalServerError, api.CodeHost, "%v", err)
}

// describe is what a session's owner is told of it.
func (s *Server) describe(e *entry) api.Session {
	used, calls := s.registry.seen(e)
	info := e.session.Info()
	if uid, is := e.owner.uid(); !is || uid != s.uid && uid != 0 {
		info.Audit = "" // where the operator keeps records is not everybody's business
	}
	return api.Session{ID: e.id, Name: e.name, Created: e.created.UTC(), LastUsed: used.UTC(), Calls: calls, IdleSeconds: e.idle.Seconds(),
		TimeoutSeconds: e.timeout.Seconds(), Description: e.description, Info: info}
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request, who caller) *answer {
	own := s.registry.of(who)
	slices.SortFunc(own, func(a, b *entry) int { return cmp.Or(a.created.Compare(b.created), strings.Compare(a.id, b.id)) })
	out := api.Sessions{Sessions: []api.Session{}}
	for _, e := range own {
		out.Sessions = append(out.Sessions, s.describe(e))
	}
	send(w, http.StatusOK, out)
	return nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, who caller) *answer {
	e, a := s.registry.find(who, r.PathValue("id"))
	if a != nil {
		return a
	}
	send(w, http.StatusOK, s.describe(e))
	return nil
}

func (s *Server) end(w http.ResponseWriter, r *http.Request, who caller) *answer {
	e, a := s.registry.find(who, r.PathValue("id"))
	if a != nil {
		return a
	}
	if s.registry.remove(e) {
		s.finish(e, "asked")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) run(w http.ResponseWriter, r *http.Request, who caller) *answer {
	// Room first: bodies that nobody could run now are not taken in.
	e, leave, a := s.registry.enter(who, r.PathValue("id"))
	if a != nil {
		return a
	}
	defer leave()
	var in api.Run
	if a := read(w, r, &in, maxRun, false); a != nil {
		return a
	}
	call, a := callOf(e, in)
	if a != nil {
		return a
	}
	switch {
	case !wantsEvents(r) && in.Questions:
		return refuse(http.StatusBadRequest, api.CodeInvalid, "field \"questions\": they come with a stream of events; ask for it with \"Accept: text/event-stream\"")
	case !wantsEvents(r):
		send(w, http.StatusOK, s.call(r.Context(), e, call))
		return nil
	}
	ctx, gone := context.WithCancel(r.Context())
	defer gone()
	if in.Questions {
		return s.asking(ctx, gone, w, e, call)
	}
	out := newStream(w, gone)
	defer out.end()
	go out.alive(ctx)
	call.Output = out.output
	out.event(api.EventResult, s.call(ctx, e, call))
	return nil
}

// callOf is the call that a request asks for.
func callOf(e *entry, in api.Run) (kernel.Call, *answer) {
	// No client gets a checkpoint: what it answers is not kept for one.
	call := kernel.Call{ReloadSkills: in.ReloadSkills, NoCheckpoint: true}
	switch {
	case in.Code != nil:
		call.Code = *in.Code
	case !in.ReloadSkills:
		return call, refuse(http.StatusBadRequest, api.CodeInvalid, "field \"code\": missing; it may be left out with reloadSkills only")
	}
	if in.TimeoutSeconds != 0 {
		limit, why := secondsOf(in.TimeoutSeconds)
		switch {
		case why != "":
			return call, refuse(http.StatusBadRequest, api.CodeInvalid, "field \"timeoutSeconds\": %s", why)
		case limit > e.timeout:
			return call, refuse(http.StatusForbidden, api.CodeWider, "field \"timeoutSeconds\": %v is more than the session's %v; a request can make it tighter only", limit, e.timeout)
		}
		call.Timeout = limit
	}
	return call, nil
}

func wantsEvents(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if kind, _, err := mime.ParseMediaType(part); err == nil && kind == "text/event-stream" {
			return true
		}
	}
	return false
}

// call runs in a session, whose caller has room for it.
func (s *Server) call(ctx context.Context, e *entry, c kernel.Call) kernel.Result {
	start := time.Now()
	r := e.session.Call(ctx, c)
	s.metrics.call(r, time.Since(start))
	return r
}

func (s *Server) reset(w http.ResponseWriter, r *http.Request, who caller) *answer {
	e, leave, a := s.registry.enter(who, r.PathValue("id"))
	if a != nil {
		return a
	}
	defer leave()
	if a := read(w, r, &api.Nothing{}, maxOther, true); a != nil {
		return a
	}
	send(w, http.StatusOK, s.call(r.Context(), e, kernel.Call{Reset: true}))
	return nil
}

func (s *Server) interrupt(w http.ResponseWriter, r *http.Request, who caller) *answer {
	e, a := s.registry.find(who, r.PathValue("id"))
	if a != nil {
		return a
	}
	if a := read(w, r, &api.Nothing{}, maxOther, true); a != nil {
		return a
	}
	send(w, http.StatusOK, api.Interrupted{Interrupted: e.session.Interrupt()})
	return nil
}

func (s *Server) abort(w http.ResponseWriter, r *http.Request, who caller) *answer {
	e, a := s.registry.find(who, r.PathValue("id"))
	if a != nil {
		return a
	}
	if a := read(w, r, &api.Nothing{}, maxOther, true); a != nil {
		return a
	}
	e.session.Abort()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// protocol hands a request to the session's MCP server.
func (s *Server) protocol(w http.ResponseWriter, r *http.Request, who caller) *answer {
	e, a := s.registry.find(who, r.PathValue("id"))
	if a != nil {
		return a
	}
	e.mcpOnce.Do(func() {
		e.mcp = s.hooks.MCP(e.living, func(ctx context.Context, c kernel.Call) kernel.Result {
			_, leave, a := s.registry.enter(e.owner, e.id)
			if a != nil {
				s.metrics.refusal(a.problem.Code)
				return toolError(a.problem)
			}
			defer leave()
			return s.call(ctx, e, c)
		}, e.description)
	})
	select {
	case e.bodies <- struct{}{}: // they are large: one at a time is taken in for a session
	case <-r.Context().Done():
		return nil
	}
	a = whole(w, r)
	<-e.bodies
	if a != nil {
		return a
	}
	// A stream that waits for messages does not outlive its session.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(e.living, cancel)()
	e.mcp.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// toolError is the result of a call that there was no room for.
func toolError(p api.Problem) kernel.Result {
	return kernel.Result{IsError: true, Content: []kernel.Content{{Type: "text", Text: p.Message}},
		Details: kernel.Details{Status: kernel.StatusError, Error: &kernel.ErrorDetail{Name: kernel.ToolError, Value: p.Message}}}
}
