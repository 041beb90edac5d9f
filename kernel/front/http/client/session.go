package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/kernel/host"
)

// Session is a session of the server's. Its methods are those of a kernel.Session.
type Session struct {
	api.Session // as it was when it was opened

	// Input and Approve answer what cells ask; when nil, nobody does. They are as those of
	// kernel.Options. Approve's context ends when nobody waits for the answer any more.
	Input   func(prompt string, password bool) (string, error)
	Approve func(ctx context.Context, a host.Approval) (approved bool, err error)

	client *Client
}

func (s *Session) path(what string) string { return "/v1/sessions/" + s.ID + what }

// Call runs one call and always returns a whole result. When ctx ends first the
// connection is closed, upon which the server interrupts the cell.
func (s *Session) Call(ctx context.Context, c kernel.Call) kernel.Result {
	r, err := s.call(ctx, c)
	if err == nil {
		return r
	}
	name := kernel.ToolError
	if ctx.Err() != nil {
		name = kernel.KernelKilled
		err = errors.New("python kernel killed: the call was cancelled")
	}
	return kernel.Result{IsError: true, Content: []kernel.Content{{Type: "text", Text: err.Error()}},
		Details: kernel.Details{Status: kernel.StatusError, Session: s.ID, Mode: s.Info.Mode, Tier: s.Info.Tier,
			Error: &kernel.ErrorDetail{Name: name, Value: err.Error()}}}
}

func (s *Session) call(ctx context.Context, c kernel.Call) (r kernel.Result, err error) {
	if c.Reset {
		answer, err := s.client.send(ctx, http.MethodPost, s.path("/reset"), api.Nothing{}, "application/json")
		if err != nil {
			return r, err
		}
		defer answer.Body.Close()
		if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&r); err != nil {
			return r, fmt.Errorf("server %s: its answer: %w", s.client.address, err)
		}
		return r, nil
	}
	answer, err := s.client.send(ctx, http.MethodPost, s.path("/run"),
		api.Run{Code: &c.Code, ReloadSkills: c.ReloadSkills, TimeoutSeconds: c.Timeout.Seconds(), Questions: s.Input != nil || s.Approve != nil}, "text/event-stream")
	if err != nil {
		return r, err
	}
	defer answer.Body.Close()
	found := false
	asked := s.asking(ctx)
	defer asked.end()
	err = events(answer.Body, func(name string, data []byte) error {
		switch name {
		case api.EventOutput:
			var o api.Output
			if err := json.Unmarshal(data, &o); err != nil {
				return err
			}
			if c.Output != nil {
				c.Output(o.Stream, o.Text)
			}
		case api.EventStarted, api.EventQuestion, api.EventWithdrawn:
			return asked.take(name, data)
		case api.EventResult:
			found = true
			return json.Unmarshal(data, &r)
		}
		return nil
	})
	switch {
	case err != nil:
		return r, fmt.Errorf("server %s: the stream of events: %w", s.client.address, err)
	case !found:
		return r, fmt.Errorf("server %s: it ended before the cell did; what the session had set is lost", s.client.address)
	}
	return r, nil
}

// events reads a stream of events, as far as the server uses them: a name and one line
// of data each.
func events(stream io.Reader, take func(name string, data []byte) error) error {
	in := bufio.NewReaderSize(stream, 64<<10)
	var name string
	var data []byte
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		field, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case len(line) == 0:
			if name != "" {
				if err := take(name, data); err != nil {
					return err
				}
			}
			name, data = "", nil
		case string(field) == "event":
			name = string(value)
		case string(field) == "data":
			data = bytes.Clone(value)
		}
	}
}

func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxAnswer:
			return nil, fmt.Errorf("a line of more than %d bytes", maxAnswer)
		}
	}
}

// Interrupt stops the cell that runs now; false when none does, or nobody answers.
func (s *Session) Interrupt() bool {
	var answer api.Interrupted
	err := s.client.ask(context.Background(), http.MethodPost, s.path("/interrupt"), api.Nothing{}, &answer)
	return err == nil && answer.Interrupted
}

// Abort kills the session's interpreter. A server that cannot be reached has none.
func (s *Session) Abort() {
	_ = s.client.ask(context.Background(), http.MethodPost, s.path("/abort"), api.Nothing{}, nil)
}

// Close ends the session. One that has ended already is no error.
func (s *Session) Close() error {
	err := s.client.ask(context.Background(), http.MethodDelete, s.path(""), nil, nil)
	var gone *api.Problem
	if errors.As(err, &gone) && gone.Code == api.CodeNotFound {
		err = nil
	}
	s.client.Close()
	return err
}
