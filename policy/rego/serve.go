package rego

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"cellblock/policy"
)

// Request is one line that Serve reads: exactly one of its first three members is set.
type Request struct {
	Load  *Load          `json:"load,omitempty"`  // a query and its modules, before any call
	Call  *policy.ToolOp `json:"call,omitempty"`  // asked of what was loaded
	Tests []Module       `json:"tests,omitempty"` // run the tests of these
	// Milliseconds bound the work; 0 is a second.
	Milliseconds int `json:"milliseconds,omitempty"`
}

// Load is a query and its modules.
type Load struct {
	Query   string   `json:"query"`
	Modules []Module `json:"modules"`
}

// Response is the line that answers a Request.
type Response struct {
	Error       string              `json:"error,omitempty"`
	Effect      policy.Effect       `json:"effect,omitempty"`
	Reasons     []string            `json:"reasons,omitempty"`
	Obligations []policy.Obligation `json:"obligations,omitempty"`
	Outcomes    []Outcome           `json:"outcomes,omitempty"`
}

// MaxRequest bounds a line, in bytes.
const MaxRequest = 8 << 20

// Serve answers requests, one line each, until there are no more.
func Serve(r io.Reader, w io.Writer) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), MaxRequest)
	out := json.NewEncoder(w)
	var query *Query
	for lines.Scan() {
		var request Request
		response := Response{}
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			response.Error = "request: " + err.Error()
		} else {
			response = answer(request, &query)
		}
		if err := out.Encode(response); err != nil {
			return err
		}
	}
	return lines.Err()
}

func answer(r Request, query **Query) (response Response) {
	limit := time.Second
	if r.Milliseconds > 0 {
		limit = time.Duration(r.Milliseconds) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	// The engine is large, and what it is given is an operator's mistake at the worst
	// moment: a panic is an error like any other, and with it a denial.
	defer func() {
		if problem := recover(); problem != nil {
			response = Response{Error: fmt.Sprint("the engine failed: ", problem)}
		}
	}()
	var err error
	switch {
	case r.Load != nil:
		*query, err = Compile(ctx, r.Load.Query, r.Load.Modules)
	case r.Call != nil && *query == nil:
		err = errors.New("nothing is loaded")
	case r.Call != nil:
		response.Effect, response.Reasons, response.Obligations, err = (*query).Evaluate(ctx, *r.Call)
	case r.Tests != nil:
		response.Outcomes, err = Test(ctx, r.Tests)
	default:
		err = errors.New("an empty request")
	}
	if err != nil {
		return Response{Error: err.Error()}
	}
	return response
}
