package server

import (
	"net/http"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
)

// route is one thing that can be asked. The table is all there is: what the server
// answers, what openapi.json says and what the tests walk come from it.
type route struct {
	method, path string
	id           string // in openapi.json
	summary      string
	open         bool // without a token
	body         any  // of the request; nil for none
	answers      any  // of the status below; nil for no body
	status       int  // when all went well
	problems     []int
	stream       bool   // answers as events, too, when asked
	plain        string // media type of an answer that is no JSON of ours
	do           func(*Server, http.ResponseWriter, *http.Request, caller) *answer
}

// Each route may answer these, beside its own: who asks is looked at first.
var everywhere = []int{http.StatusForbidden}

func routes() []route {
	const (
		bad, none, conflict, large, media, many, busy = http.StatusBadRequest, http.StatusNotFound, http.StatusConflict,
			http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests, http.StatusServiceUnavailable
	)
	return []route{
		{method: "GET", path: "/v1/health", id: "health", summary: "Whether the server takes work; no token is needed.", open: true,
			answers: api.Health{}, status: http.StatusOK, problems: []int{busy}, do: (*Server).health},
		{method: "GET", path: "/v1/openapi.json", id: "openapi", summary: "This document.",
			status: http.StatusOK, plain: "application/json", do: (*Server).openapi},
		{method: "GET", path: "/v1/metrics", id: "metrics", summary: "Numbers of all callers together, in Prometheus' text format.",
			status: http.StatusOK, plain: "text/plain", do: (*Server).numbers},
		{method: "POST", path: "/v1/sessions", id: "create", summary: "Opens a session. Its interpreter starts with the first call.",
			body: api.Create{}, answers: api.Session{}, status: http.StatusCreated, problems: []int{bad, conflict, large, media, many, http.StatusInternalServerError, busy}, do: (*Server).create},
		{method: "GET", path: "/v1/sessions", id: "list", summary: "The caller's own sessions, the oldest first.",
			answers: api.Sessions{}, status: http.StatusOK, do: (*Server).list},
		{method: "GET", path: "/v1/sessions/{id}", id: "get", summary: "What is known of a session.",
			answers: api.Session{}, status: http.StatusOK, problems: []int{none}, do: (*Server).get},
		{method: "DELETE", path: "/v1/sessions/{id}", id: "end", summary: "Ends a session, with what runs in it.",
			status: http.StatusNoContent, problems: []int{none}, do: (*Server).end},
		{method: "POST", path: "/v1/sessions/{id}/run", id: "run", summary: "Runs a cell. Calls of one session run one after the other; when the client goes, its cell is interrupted.",
			body: api.Run{}, answers: kernel.Result{}, status: http.StatusOK, problems: []int{bad, none, large, media, many, busy}, stream: true, do: (*Server).run},
		{method: "POST", path: "/v1/sessions/{id}/runs", id: "begin", summary: "Begins a call that its caller drives: output, questions of input(), host calls and approvals come with its steps.",
			body: api.Run{}, answers: api.Started{}, status: http.StatusCreated, problems: []int{bad, none, large, media, many, busy}, do: (*Server).begin},
		{method: "POST", path: "/v1/sessions/{id}/runs/{run}/step", id: "step", summary: "Answers what a run waits for, and waits for its next step.",
			body: api.Ask{}, answers: api.Step{}, status: http.StatusOK, problems: []int{bad, none, conflict, large, media}, do: (*Server).step},
		{method: "POST", path: "/v1/sessions/{id}/runs/{run}/answer", id: "answer", summary: "Answers what a run waits for. An answer to a question that was withdrawn meanwhile is dropped.",
			body: api.Answers{}, status: http.StatusNoContent, problems: []int{bad, none, large, media}, do: (*Server).answer},
		{method: "DELETE", path: "/v1/sessions/{id}/runs/{run}", id: "cancel", summary: "Cancels a run. Its end comes with a later step.",
			status: http.StatusNoContent, problems: []int{none}, do: (*Server).cancel},
		{method: "POST", path: "/v1/sessions/{id}/reset", id: "reset", summary: "Clears the namespace, in its turn among the calls.",
			body: api.Nothing{}, answers: kernel.Result{}, status: http.StatusOK, problems: []int{bad, none, large, media, many, busy}, do: (*Server).reset},
		{method: "POST", path: "/v1/sessions/{id}/interrupt", id: "interrupt", summary: "Stops the cell that runs; its session keeps its state when the cell unwinds.",
			body: api.Nothing{}, answers: api.Interrupted{}, status: http.StatusOK, problems: []int{bad, none, large, media}, do: (*Server).interrupt},
		{method: "POST", path: "/v1/sessions/{id}/abort", id: "abort", summary: "Kills the interpreter; what runs and what waits fails at once, and state is lost.",
			body: api.Nothing{}, status: http.StatusNoContent, problems: []int{bad, none, large, media}, do: (*Server).abort},
		{method: "POST", path: "/v1/sessions/{id}/mcp", id: "mcp", summary: "The session as a server of the Model Context Protocol (streamable HTTP), which defines bodies and answers.",
			status: http.StatusOK, plain: "text/event-stream", problems: []int{bad, none, large}, do: (*Server).protocol},
		{method: "GET", path: "/v1/sessions/{id}/mcp", id: "mcpListen", summary: "Messages from the MCP server.",
			status: http.StatusOK, plain: "text/event-stream", problems: []int{bad, none}, do: (*Server).protocol},
		{method: "DELETE", path: "/v1/sessions/{id}/mcp", id: "mcpEnd", summary: "Ends the MCP client's own session; the Python session stays.",
			status: http.StatusNoContent, problems: []int{bad, none}, do: (*Server).protocol},
	}
}
