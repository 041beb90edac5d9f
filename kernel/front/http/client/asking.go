package client

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/kernel/host"
)

// asking answers what the cell of one call asks, each question in a goroutine of its own:
// output goes on meanwhile.
type asking struct {
	s    *Session
	ctx  context.Context
	end  context.CancelFunc
	run  string
	open sync.Map // of the questions that are asked now: id to context.CancelFunc
}

func (s *Session) asking(ctx context.Context) *asking {
	ctx, end := context.WithCancel(ctx)
	return &asking{s: s, ctx: ctx, end: end}
}

// take takes an event of the stream that is about questions.
func (a *asking) take(name string, data []byte) error {
	switch name {
	case api.EventStarted:
		var started api.Started
		err := json.Unmarshal(data, &started)
		a.run = started.Run
		return err
	case api.EventWithdrawn:
		var gone api.Withdrawn
		if err := json.Unmarshal(data, &gone); err != nil {
			return err
		}
		if end, asked := a.open.LoadAndDelete(gone.ID); asked {
			end.(context.CancelFunc)()
		}
		return nil
	}
	var q api.Question
	if err := json.Unmarshal(data, &q); err != nil {
		return err
	}
	ctx, end := context.WithCancel(a.ctx)
	a.open.Store(q.ID, end)
	go func() {
		defer end()
		defer a.open.Delete(q.ID) // a cell asks as often as it likes
		answer := a.s.answer(ctx, q)
		if ctx.Err() == nil { // an answer that comes too late is dropped, here or there
			_ = a.s.client.ask(ctx, http.MethodPost, a.s.path("/runs/"+a.run+"/answer"), api.Answers{Answers: []api.Answer{answer}}, nil)
		}
	}()
	return nil
}

// answer asks whom the session names.
func (s *Session) answer(ctx context.Context, q api.Question) api.Answer {
	out := api.Answer{ID: q.ID}
	failed := func(code, message string) api.Answer {
		out.Error = &api.ToolFailure{Code: code, Message: message}
		return out
	}
	var err error
	switch {
	case q.Kind == kernel.AskInput && s.Input != nil:
		out.Text, err = s.Input(q.Prompt, q.Hidden)
	case q.Kind == kernel.AskApproval && s.Approve != nil && q.Approval != nil && q.Call != nil:
		out.Approved, err = s.Approve(ctx, host.Approval{ID: q.Approval.ID, Action: q.Approval.Action, Digest: q.Approval.Digest, Reason: q.Approval.Reason, Expires: q.Approval.Expires,
			Call: host.Call{ID: q.Call.ID, Identity: host.Identity{Session: s.ID}, Tool: q.Call.Tool, Arguments: q.Call.Arguments, Chain: q.Call.Chain}})
	case q.Kind == kernel.AskIndeterminate && q.Error != nil:
		return failed(q.Error.Code, q.Error.Message)
	case q.Kind == kernel.AskIndeterminate:
		return failed(host.CodeIndeterminate, "it is not known whether it was done")
	default:
		return failed(host.CodeNoAnswer, "nobody is here to answer")
	}
	if err != nil {
		out.Text, out.Approved = "", false
		return failed(host.CodeNoAnswer, err.Error())
	}
	return out
}
