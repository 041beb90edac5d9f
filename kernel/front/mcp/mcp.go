// Package mcp offers a session's python tool over the Model Context Protocol.
//
//	err := mcp.Serve(ctx, session, version, kernel.ToolDescription(options), mcp.Lines(os.Stdin, os.Stdout))
//	handler := mcp.Handler(ctx, session.Call, version, description) // streamable HTTP
//
// # Limitations
//
// One session a connection, and one a handler. The transport's streams are the
// launcher's: cells have pipes of their own and cannot write frames.
package mcp

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync/atomic"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"cellblock/kernel"
)

// Arguments are the tool's parameters.
type Arguments struct {
	Code         *string `json:"code,omitempty" jsonschema:"Python source of one cell"`
	Reset        bool    `json:"reset,omitempty" jsonschema:"clear the namespace and return to the session directory; code is not executed"`
	ReloadSkills bool    `json:"reload_skills,omitempty" jsonschema:"import every mounted skill afresh"`
}

// Session runs the calls of the tool: a *kernel.Session, or one of a server elsewhere.
type Session interface {
	Call(context.Context, kernel.Call) kernel.Result
	Abort() // ends what runs, and what waits
}

// Serve answers one client until it leaves or serving ends, which aborts the session:
// the server's own end waits for the call that runs. A cancelled call interrupts
// its cell, and kills it if it does not unwind.
func Serve(serving context.Context, session Session, version, description string, transport sdk.Transport) error {
	server := newServer(serving, session.Call, version, description)
	defer context.AfterFunc(serving, session.Abort)()
	return server.Run(serving, transport)
}

// newServer has the tool. No call outlives serving.
func newServer(serving context.Context, run func(context.Context, kernel.Call) kernel.Result, version, description string) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "cellblock", Version: version}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "python", Description: description},
		func(ctx context.Context, req *sdk.CallToolRequest, in Arguments) (*sdk.CallToolResult, any, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(serving, cancel)()
			ctx = context.WithValue(ctx, asking{}, req.Session)
			call := kernel.Call{Reset: in.Reset, ReloadSkills: in.ReloadSkills}
			switch {
			case in.Code != nil:
				call.Code = *in.Code
			case !in.Reset && !in.ReloadSkills:
				return nil, nil, errors.New("code: missing; it may be left out with reset or reload_skills only")
			}
			if token := req.Params.GetProgressToken(); token != nil {
				done := make(chan struct{})
				defer close(done)
				call.Output = progress(ctx, req, token, done)
			}
			return convert(run(ctx, call)), nil, nil
		})
	return server
}

// progress tells the client how much a cell has written. At most one message is
// under way; a slow client does not slow the cell down.
func progress(ctx context.Context, req *sdk.CallToolRequest, token any, done chan struct{}) func(stream, text string) {
	var written atomic.Int64
	wake := make(chan string, 1)
	go func() {
		for {
			select {
			case <-done:
				return
			case text := <-wake:
				_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
					ProgressToken: token, Progress: float64(written.Load()), Message: text})
			}
		}
	}()
	return func(_, text string) {
		written.Add(int64(len(text)))
		if len(text) > 400 {
			text = strings.ToValidUTF8(text[:400], "") // no character in two
		}
		select {
		case wake <- text:
		default:
		}
	}
}

func convert(r kernel.Result) *sdk.CallToolResult {
	out := &sdk.CallToolResult{IsError: r.IsError, StructuredContent: r.Details}
	for _, c := range r.Content {
		switch c.Type {
		case "image":
			data, err := base64.StdEncoding.DecodeString(c.Data)
			if err != nil {
				continue // a guest's own text that is no image
			}
			out.Content = append(out.Content, &sdk.ImageContent{Data: data, MIMEType: c.MimeType})
		default:
			out.Content = append(out.Content, &sdk.TextContent{Text: c.Text})
		}
	}
	return out
}
