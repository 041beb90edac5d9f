package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"cellblock/kernel/front/http/api"
)

// TestTheServerAnswersAsItsDocumentSays walks openapi.json: each status of each route is
// brought about at a live server, whose answer has the form that the document gives it,
// and a route that the document lacks answers 404.
func TestTheServerAnswersAsItsDocumentSays(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			ID        string                     `json:"operationId"`
			Responses map[string]json.RawMessage `json:"responses"`
		} `json:"paths"`
	}
	made, types := document()
	if err := json.Unmarshal(openAPI, &doc); err != nil || !slices.Equal(made, openAPI) {
		t.Fatalf("openapi.json: %v", err)
	}
	byID := map[string]route{}
	declared, seen := map[string]bool{}, map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			i := slices.IndexFunc(routes(), func(r route) bool { return r.path == path && strings.ToLower(r.method) == method })
			if i < 0 {
				t.Fatalf("%s %s is no route", method, path)
			}
			byID[op.ID] = routes()[i]
			for status := range op.Responses {
				declared[op.ID+" "+status] = true
			}
		}
	}
	if len(byID) != len(routes()) {
		t.Errorf("the document has %d routes, the server %d", len(byID), len(routes()))
	}
	check := func(id string, want int, g got) {
		t.Helper()
		key := fmt.Sprintf("%s %d", id, g.status)
		seen[key] = true
		if g.status != want {
			t.Errorf("%s: want %d, got %d %.300s", id, want, g.status, g.body)
		}
		if !declared[key] {
			t.Errorf("%s: the document has no such answer: %.300s", key, g.body)
		}
		r := byID[id]
		switch {
		case strings.HasPrefix(id, "mcp") && g.status != http.StatusForbidden && g.status != http.StatusUnauthorized && g.status != http.StatusNotFound:
			return // the protocol's own
		case g.status != r.status:
			conforms(t, key, types, api.Failure{}, g.body)
			if retry := g.header.Get("Retry-After"); (g.status == http.StatusTooManyRequests || g.status == http.StatusServiceUnavailable) && retry == "" {
				t.Errorf("%s: no Retry-After", key)
			}
		case r.answers != nil:
			conforms(t, key, types, r.answers, g.body)
		}
	}

	l := serve(t, nil)
	session := l.create("")
	driven := l.begin(session, "input('who? ')")
	at := func(r route) string {
		return strings.Replace(strings.Replace(r.path, "/v1/sessions/{id}", session, 1), "{run}", driven, 1)
	}
	nowhere := func(r route) string { return strings.Replace(r.path, "{id}", "s-none", 1) }
	for id, r := range byID {
		check(id, http.StatusForbidden, l.ask(r.method, at(r), "", "Origin: http://127.0.0.1"))
		if !r.open {
			check(id, http.StatusUnauthorized, l.port(r.method, at(r), ""))
		}
		if strings.Contains(r.path, "{id}") {
			body := ""
			if r.body != nil {
				body = `{}`
			}
			check(id, http.StatusNotFound, l.ask(r.method, nowhere(r), body))
		}
		if r.body != nil {
			check(id, http.StatusBadRequest, l.ask(r.method, at(r), `{"nowhere": 1}`))
			check(id, http.StatusUnsupportedMediaType, l.ask(r.method, at(r), `{}`, "Content-Type: text/plain"))
			most := maxOther
			if id == "run" || id == "begin" || id == "step" || id == "answer" {
				most = maxRun
			}
			check(id, http.StatusRequestEntityTooLarge, l.ask(r.method, at(r), strings.Repeat(" ", most+1)))
		}
	}
	for _, id := range []string{"health", "openapi", "metrics", "list", "get"} {
		check(id, http.StatusOK, l.ask("GET", at(byID[id]), ""))
	}
	step := session + "/runs/" + driven + "/step"
	check("step", http.StatusOK, l.ask("POST", step, `{"waitSeconds": 30}`))
	waited := make(chan got, 1)
	go func() {
		// It may meet one of the short ones below, and is then the one to be refused.
		g := l.ask("POST", step, `{"waitSeconds": 1.5}`)
		for g.status == http.StatusConflict {
			g = l.ask("POST", step, `{"waitSeconds": 1.5}`)
		}
		waited <- g
	}()
	eventually(t, "one request at once", func() bool {
		g := l.ask("POST", step, `{"waitSeconds": 0.001}`)
		if g.status == http.StatusConflict {
			check("step", http.StatusConflict, g)
		}
		return g.status == http.StatusConflict
	})
	check("step", http.StatusOK, <-waited)
	check("answer", http.StatusNoContent, l.ask("POST", session+"/runs/"+driven+"/answer", `{"answers": []}`))
	check("cancel", http.StatusNoContent, l.ask("DELETE", session+"/runs/"+driven, ""))
	check("begin", http.StatusCreated, l.ask("POST", session+"/runs", `{"code": "1"}`))
	check("run", http.StatusOK, l.ask("POST", session+"/run", `{"code": "import json\nopen('/etc/x', 'w')"}`))
	check("reset", http.StatusOK, l.ask("POST", session+"/reset", ""))
	check("interrupt", http.StatusOK, l.ask("POST", session+"/interrupt", "{}"))
	check("abort", http.StatusNoContent, l.ask("POST", session+"/abort", ""))
	check("create", http.StatusCreated, l.ask("POST", "/v1/sessions", `{"directory": "b", "make": true, "limits": {"memory": "256MiB"}, "timeoutSeconds": 2.5}`))
	check("create", http.StatusConflict, l.ask("POST", "/v1/sessions", `{"directory": "a/beneath", "make": true}`))

	const both = "Accept: application/json, text/event-stream"
	initialize := l.ask("POST", session+"/mcp", `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}`, both)
	check("mcp", http.StatusOK, initialize)
	check("mcp", http.StatusRequestEntityTooLarge, l.ask("POST", session+"/mcp", strings.Repeat(" ", maxRun+1), both))
	check("mcp", http.StatusBadRequest, l.ask("POST", session+"/mcp", `{`, both))
	id := "Mcp-Session-Id: " + initialize.header.Get("Mcp-Session-Id")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	listening := l.start(ctx, l.unix(), "http://x", "GET", session+"/mcp", "", "Accept: text/event-stream", id)
	check("mcpListen", http.StatusOK, got{status: listening.StatusCode})
	check("mcpListen", http.StatusBadRequest, l.ask("GET", session+"/mcp", "", "Accept: text/html"))
	check("mcpEnd", http.StatusBadRequest, l.ask("DELETE", session+"/mcp", ""))
	check("mcpEnd", http.StatusNoContent, l.ask("DELETE", session+"/mcp", "", id))
	check("end", http.StatusNoContent, l.ask("DELETE", session, ""))
	if g := l.ask("GET", "/v1/nowhere", ""); g.status != http.StatusNotFound || g.code() != api.CodeNotFound {
		t.Errorf("%+v", g)
	}
	if g := l.ask("PUT", "/v1/sessions", "{}"); g.status != http.StatusMethodNotAllowed || g.header.Get("Allow") == "" {
		t.Errorf("%+v", g)
	}

	full := serve(t, func(c *api.Config) {
		c.Bounds.CallerSessions, c.Bounds.Queue = 1, 0
		c.Session.Audit = filepath.Join(c.Roots[0].Path, "..", "log")
	})
	session = full.create("")
	check("create", http.StatusTooManyRequests, full.ask("POST", "/v1/sessions", `{"directory": "a"}`))
	full.busy(session)
	check("run", http.StatusTooManyRequests, full.ask("POST", session+"/run", `{"code": "1"}`))
	check("begin", http.StatusTooManyRequests, full.ask("POST", session+"/runs", `{"code": "1"}`))
	check("reset", http.StatusTooManyRequests, full.ask("POST", session+"/reset", ""))
	full.drain()
	eventually(t, "the server drains", func() bool { return full.ask("GET", "/v1/health", "").status != http.StatusOK })
	check("health", http.StatusServiceUnavailable, full.ask("GET", "/v1/health", ""))
	check("create", http.StatusServiceUnavailable, full.ask("POST", "/v1/sessions", `{"directory": "a"}`))
	check("run", http.StatusServiceUnavailable, full.ask("POST", session+"/run", `{"code": "1"}`))
	check("begin", http.StatusServiceUnavailable, full.ask("POST", session+"/runs", `{"code": "1"}`))
	check("reset", http.StatusServiceUnavailable, full.ask("POST", session+"/reset", ""))

	unrecorded := serve(t, func(c *api.Config) {
		c.Session.Audit = filepath.Join(c.Roots[0].Path, "..", "file", "log")
		if err := os.WriteFile(filepath.Dir(c.Session.Audit), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	check("create", http.StatusInternalServerError, unrecorded.ask("POST", "/v1/sessions", `{"directory": "a"}`))

	for _, key := range slices.Sorted(maps.Keys(declared)) {
		if !seen[key] {
			t.Errorf("%s: the document says so, and nothing here brings it about", key)
		}
	}
}

// conforms holds an answer against the schema of its type.
func conforms(t *testing.T, what string, types schemas, v any, body string) {
	t.Helper()
	types.ref(v, false)
	name := strings.TrimPrefix(types.ref(v, false)["$ref"].(string), "#/components/schemas/")
	resolved, err := types[name].Resolve(&jsonschema.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Errorf("%s: no JSON: %v: %.300s", what, err, body)
		return
	}
	if err := resolved.Validate(value); err != nil {
		t.Errorf("%s: is no %s: %v\n%.600s", what, name, err, body)
	}
}
