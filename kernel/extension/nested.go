package extension

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"cellblock/kernel/host"
	"cellblock/kernel/wire"
)

// cancelCall is the name under which a worker takes a host call of its own back.
const cancelCall = "host.cancel"

// hostCall takes a host call of a handler. The scope that it names is the number of
// the call that the handler serves; who that call's caller is the launcher knows. It
// never waits.
func (s *Session) hostCall(w *worker, m *wire.Message) {
	answer := func(value json.RawMessage, failed *host.Error) {
		a := wire.Answer{ID: m.ID, Scope: m.Scope, Value: value}
		if failed != nil {
			a.Value, a.Error = nil, &wire.HostError{Type: failed.Type, Code: failed.Code, Message: failed.Message, Fields: failed.Fields}
		}
		_ = w.conn.Reply(a) // a worker that has gone needs none
	}
	number, _ := strconv.ParseInt(m.Scope, 10, 64) // 0 is the number of no call
	s.mu.Lock()
	now := s.serving[number]
	s.mu.Unlock()
	if now == nil || now.worker != w || now.ctx.Err() != nil {
		go answer(nil, failure(host.CodeScopeClosed, "the call that made this host call has returned or was cancelled"))
		return
	}
	if m.Name == cancelCall {
		var asked struct {
			Call int64 `json:"call"`
		}
		_ = json.Unmarshal(m.Arguments, &asked) // of anything else there is no call
		found := now.cancel(asked.Call)
		go answer(json.RawMessage(strconv.FormatBool(found)), nil)
		return
	}
	ctx, done, ok := now.begin(m.ID)
	if !ok {
		go answer(nil, failure(host.CodeBusy, "%d host calls of this handler wait for an answer", MaxNested))
		return
	}
	go func() {
		defer done()
		value, err := s.opts.Call(ctx, now.call, m.Name, m.Arguments)
		if err == nil {
			if len(value) == 0 {
				value = json.RawMessage("null")
			}
			answer(value, nil)
			return
		}
		var failed *host.Error
		if !errors.As(err, &failed) {
			failed = failure(host.CodeFailed, "%v", err)
		}
		answer(nil, failed)
	}()
}

func (n *serving) begin(id int64) (ctx context.Context, done func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.nested) >= MaxNested {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(n.ctx)
	n.nested[id] = cancel
	return ctx, func() {
		n.mu.Lock()
		delete(n.nested, id)
		n.mu.Unlock()
		cancel()
	}, true
}

func (n *serving) cancel(id int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	cancel, ok := n.nested[id]
	if ok {
		cancel()
	}
	return ok
}
