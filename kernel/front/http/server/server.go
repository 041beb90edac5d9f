package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/policy"
)

// Times that no caller can stretch.
const (
	headerGrace = 10 * time.Second // for a request's header
	bodyGrace   = 30 * time.Second // for its body
	keepAlive   = 2 * time.Minute  // of a connection that is not used
	lastWords   = 5 * time.Second  // for answers under way, when all cells have ended
)

// Hooks connect a server with the program that it is in.
type Hooks struct {
	Log *slog.Logger

	// MCP makes the handler that offers one session over MCP until living ends. call runs
	// in the session
	// and always returns a whole result.
	MCP func(living context.Context, call func(context.Context, kernel.Call) kernel.Result, description string) http.Handler

	// Ready is called once, when every listener is open.
	Ready func(addresses []string)
}

// Server is the sessions of many callers.
type Server struct {
	config   api.Config
	hooks    Hooks
	uid      int // of this process
	tokens   tokens
	places   places
	limits   policy.Limits // the operator's, policy and options together
	doors    []*door
	registry *registry
	metrics  *metrics
	stocks   stocks
	http     *http.Server
}

// New checks the configuration and opens its listeners. Nobody is served before Serve.
func New(config api.Config, hooks Hooks) (_ *Server, err error) {
	s := &Server{config: config, hooks: hooks, uid: os.Geteuid()}
	if err := config.Bounds.Check(); err != nil {
		return nil, fmt.Errorf("bounds: %w", err)
	}
	if err := config.Stock.Check(); err != nil {
		return nil, fmt.Errorf("stock: %w", err)
	}
	if len(config.Roots) == 0 {
		return nil, errors.New("roots: none; sessions need a directory beneath which they may be (--root DIR)")
	}
	if s.places, err = newPlaces(config.Roots); err != nil {
		return nil, err
	}
	if config.TokenFile != "" {
		if s.tokens, err = readTokens(config.TokenFile); err != nil {
			return nil, err
		}
	}
	if config.Listen != "" && s.tokens == nil {
		return nil, fmt.Errorf("listen %s: every user of this host can connect there; name a file of tokens (--token-file)", config.Listen)
	}
	if s.doors, err = open(config); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if len(s.doors) == 0 {
		return nil, errors.New("nothing to listen on: name a socket")
	}
	if err := s.hide(); err != nil {
		return nil, err
	}
	if err := s.checkSessions(); err != nil {
		return nil, err
	}
	if s.stocks, err = openStocks(config.Stock, s.places, hooks.Log); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(func() (int, int, bool) { return s.registry.counts() }, s.stocks)
	s.registry = newRegistry(config.Bounds, s.metrics)
	s.http = &http.Server{
		Handler: s.handler(), ConnContext: known, ReadHeaderTimeout: headerGrace, IdleTimeout: keepAlive, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(hooks.Log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// hide keeps the server's own places out of every session's sight, in every mode: the
// directories of its sockets, and the file of tokens. For activated sockets they are
// asked for their paths.
func (s *Server) hide() error {
	var own []string
	for _, d := range s.doors {
		switch addr := d.Addr().(type) {
		case *net.UnixAddr:
			if addr.Name == "" || addr.Name[0] == '@' {
				return fmt.Errorf("socket %q: has no path; one in the abstract namespace is everybody's", addr.Name)
			}
			own = append(own, filepath.Dir(addr.Name))
		case *net.TCPAddr:
			if s.tokens == nil {
				return fmt.Errorf("listen %s: every user of this host can connect there; name a file of tokens (--token-file)", addr)
			}
		}
	}
	for _, dir := range own {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		for _, root := range s.places {
			if policy.Within(real, root.Path) || real == "/" {
				return fmt.Errorf("socket: sessions may not see its directory %s, and root %s is in it: put the socket into a directory of its own", real, root.Path)
			}
		}
		if !slices.Contains(s.config.Session.State, real) {
			s.config.Session.State = append(slices.Clone(s.config.Session.State), real)
		}
	}
	if s.config.TokenFile == "" {
		return nil
	}
	real, err := filepath.EvalSymlinks(s.config.TokenFile)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	if s.config.Session.Policy == nil {
		doc, err := kernel.BuiltInPolicy(s.config.Session.Profile)
		if err != nil {
			return err
		}
		s.config.Session.Policy = &doc
		if doc.Tools.Rego != nil {
			s.config.Session.Modules = doc.Tools.Rego.Sources
		}
	}
	doc := *s.config.Session.Policy
	doc.FS.Rules = append(slices.Clone(doc.FS.Rules), policy.FSRule{ID: "serve.tokens", Path: real, Access: policy.AccessRead, Effect: policy.Deny,
		Mode: policy.Enforce, Reason: "the server's tokens"})
	s.config.Session.Policy = &doc
	return nil
}

// checkSessions finds what would be wrong with every session, before the first.
func (s *Server) checkSessions() error {
	o := s.config.Session.Kernel()
	o.SessionDir = s.places[0].Path
	compiled, _, err := kernel.Policy(o)
	if err != nil {
		return err
	}
	s.limits = compiled.Limits
	_, err = o.Interpreter()
	return err
}

// Addresses are where the server is reached.
func (s *Server) Addresses() []string {
	var out []string
	for _, d := range s.doors {
		out = append(out, d.Addr().Network()+":"+d.Addr().String())
	}
	return out
}

func (s *Server) close() {
	for _, d := range s.doors {
		d.close()
	}
	s.stocks.close()
}

// Serve answers until ctx ends. It lets nothing new in then, gives what runs the bound
// Drain to end in, or until now ends, aborts the rest, ends all sessions and returns. The
// error is that of a listener.
func (s *Server) Serve(ctx, now context.Context) error {
	failed := make(chan error, len(s.doors))
	var serving sync.WaitGroup
	for _, d := range s.doors {
		serving.Go(func() {
			if err := s.http.Serve(d); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", d.Addr(), err)
			}
		})
	}
	idle, stop := context.WithCancel(context.WithoutCancel(ctx))
	serving.Go(func() { s.expire(idle) })
	if s.hooks.Ready != nil {
		s.hooks.Ready(s.Addresses())
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.hooks.Log.Info("draining", "bound", s.config.Bounds.Drain.String())
	s.drain(now)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if s.http.Shutdown(last) != nil {
		s.http.Close()
	}
	stop()
	serving.Wait()
	s.close()
	s.hooks.Log.Info("ended")
	return err
}

// drain waits for what runs, aborts what goes on, and ends all sessions.
func (s *Server) drain(now context.Context) {
	quiet := s.registry.drain()
	bound := time.NewTimer(s.config.Bounds.Drain)
	defer bound.Stop()
	select {
	case <-quiet:
	case <-bound.C:
	case <-now.Done():
	}
	for _, e := range s.registry.each() {
		e.session.Abort()
	}
	s.finishAll(s.registry.all(), "shutdown")
}

// finishAll ends sessions at once: one that is slow to end delays no other.
func (s *Server) finishAll(all []*entry, cause string) {
	var ending sync.WaitGroup
	for _, e := range all {
		ending.Go(func() { s.finish(e, cause) })
	}
	ending.Wait()
}

// expire ends sessions that nobody uses.
func (s *Server) expire(ctx context.Context) {
	tick := time.NewTicker(min(max(s.config.Bounds.Idle/8, 250*time.Millisecond), 15*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-tick.C:
			s.finishAll(s.registry.expired(at), "idle")
		}
	}
}

// finish ends a session that is out of the registry.
func (s *Server) finish(e *entry, cause string) {
	e.ended()
	err := e.session.Close()
	s.metrics.ended.WithLabelValues(cause).Inc()
	log := s.hooks.Log.With("session", e.id, "caller", string(e.owner), "cause", cause)
	if err != nil {
		log.Error("session ended", "error", err.Error())
		return
	}
	log.Info("session ended")
}

// handler is the table of routes, with what comes before each.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	byPath := map[string][]route{}
	for _, r := range routes() {
		byPath[r.path] = append(byPath[r.path], r)
	}
	for path, all := range byPath {
		mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, path, all) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, "", nil) })
	return mux
}

// serve answers one request to a path.
func (s *Server) serve(w http.ResponseWriter, req *http.Request, path string, all []route) {
	start := time.Now()
	noted := &status{ResponseWriter: w, code: http.StatusOK}
	h := noted.Header()
	// What cells write may be anything: no browser is to take it for a page.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'")
	h.Set("Cache-Control", "no-store")
	var who caller
	a := func() *answer {
		at := slices.IndexFunc(all, func(r route) bool { return r.method == req.Method })
		var a *answer
		if who, a = s.identify(req, at >= 0 && all[at].open); a != nil {
			// Who may not ask keeps no connection from those who may.
			h.Set("Connection", "close")
			return a
		}
		switch {
		case len(all) == 0:
			return refuse(http.StatusNotFound, api.CodeNotFound, "path %.200q: there is none; /v1/openapi.json lists them", req.URL.Path)
		case at < 0:
			var allowed []string
			for _, r := range all {
				allowed = append(allowed, r.method)
			}
			h.Set("Allow", strings.Join(allowed, ", "))
			return refuse(http.StatusMethodNotAllowed, api.CodeMethod, "method %.20q: this path has %s", req.Method, strings.Join(allowed, " and "))
		}
		return all[at].do(s, noted, req, who)
	}()
	if a != nil {
		s.metrics.refusal(a.problem.Code)
		a.send(noted)
	}
	name := req.Method + " " + path
	if path == "" || !slices.ContainsFunc(all, func(r route) bool { return r.method == req.Method }) {
		name = "other" // never what a client chose
	}
	s.metrics.request(name, noted.code)
	level := slog.LevelInfo
	if path == "/v1/health" || path == "/v1/metrics" {
		level = slog.LevelDebug
	}
	attrs := []any{"route", name, "status", noted.code, "ms", time.Since(start).Milliseconds(), "caller", string(who)}
	if a != nil {
		attrs = append(attrs, "code", string(a.problem.Code))
	}
	s.hooks.Log.Log(req.Context(), level, "request", attrs...)
}

// status notes what was answered.
type status struct {
	http.ResponseWriter
	code int
}

func (w *status) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets a ResponseController reach what is beneath.
func (w *status) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is asked for by handlers that know no ResponseController.
func (w *status) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
