package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/kernel/front/http/client"
	"cellblock/kernel/host"
)

// TestAClientAnswersItsCell: what a cell asks comes with its stream, to whom the client
// names, and the answers reach the cell; without anybody to ask the cell is told so.
func TestAClientAnswersItsCell(t *testing.T) {
	l := serve(t, withTools(t))
	server, err := client.New(l.socket, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.Create(t.Context(), api.Create{Directory: "a", Tools: []api.Tool{{Name: "orders.drop"}, {Name: "prices.of"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	shows := func(code, want string) {
		t.Helper()
		if r := s.Call(t.Context(), kernel.Call{Code: code}); r.Details.Value == nil || *r.Details.Value != want {
			t.Errorf("%s: want %s, got %+v", code, want, r.Details)
		}
	}
	fails := func(code, want string) {
		t.Helper()
		r := s.Call(t.Context(), kernel.Call{Code: code})
		if !r.IsError {
			t.Errorf("%s: want %s, got no error", code, want)
		} else if got := r.Details.Error.Name + ": " + r.Details.Error.Value; !strings.Contains(got, want) {
			t.Errorf("%s: want %s, got %s", code, want, got)
		}
	}
	fails("input('who? ')", "EOFError")
	fails("orders.drop(id=1)", "no-answer")

	var mu sync.Mutex
	var asked []string
	waits, release := make(chan struct{}), make(chan struct{})
	s.Input = func(prompt string, password bool) (string, error) {
		mu.Lock()
		asked = append(asked, prompt)
		mu.Unlock()
		switch {
		case prompt == "fails ":
			return "", errors.New("no more lines")
		case prompt == "waits ":
			close(waits)
			<-release
		case password:
			return "hidden", nil
		}
		return "Ada", nil
	}
	s.Approve = func(_ context.Context, a host.Approval) (bool, error) {
		if a.Call.Tool != "orders.drop" || a.Reason != "it cannot be undone" || a.Digest == "" {
			t.Errorf("asked to approve %+v", a)
		}
		return !strings.Contains(string(a.Call.Arguments), "13"), nil
	}
	shows("name = input('who? '); name", "'Ada'")
	shows("import getpass; getpass.getpass('word? ')", "'hidden'")
	fails("input('fails ')", "EOFError: input(): no more lines")
	fails("orders.drop(id=13)", "denied")
	// Approved, and then nobody carries it out: it is the caller's own tool.
	fails("orders.drop(id=7)", "no-answer")
	fails("prices.of()", "no-answer")
	if want := []string{"who? ", "word? ", "fails "}; strings.Join(asked, ",") != strings.Join(want, ",") {
		t.Errorf("asked %q", asked)
	}

	// An interrupt gets out of a question, and its late answer hits nothing.
	done := make(chan kernel.Result, 1)
	go func() { done <- s.Call(context.Background(), kernel.Call{Code: "input('waits ')"}) }()
	<-waits
	if !s.Interrupt() {
		t.Error("nothing was interrupted")
	}
	if r := <-done; !r.IsError || r.Details.Error.Name != "KeyboardInterrupt" {
		t.Errorf("%+v", r.Details)
	}
	close(release)
	shows("name", "'Ada'")
}

// TestQuestionsOfAStream: what belongs to no stream is refused; a run whose stream tells what
// happens gives no steps; and a client that goes stops its cell though it asks.
func TestQuestionsOfAStream(t *testing.T) {
	l := serve(t, nil)
	s := l.create("")
	for path, body := range map[string]string{"/run": `{"code": "1", "questions": true}`, "/runs": `{"code": "1", "questions": true}`} {
		if g := l.ask("POST", s+path, body); g.status != http.StatusBadRequest || !strings.Contains(g.body, "questions") {
			t.Errorf("%s: %d %s", path, g.status, g.body)
		}
	}
	ctx, gone := context.WithCancel(t.Context())
	defer gone()
	stream := l.start(ctx, l.unix(), "http://x", "POST", s+"/run", `{"code": "kept = 1\ninput('who? ')", "questions": true}`, "Accept: text/event-stream")
	defer stream.Body.Close()
	var seen strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(seen.String(), "who? ") {
		n, err := stream.Body.Read(buffer)
		seen.Write(buffer[:n])
		if err != nil {
			t.Fatalf("%v after %q", err, seen.String())
		}
	}
	_, after, _ := strings.Cut(seen.String(), "event: started\ndata: ")
	data, _, _ := strings.Cut(after, "\n")
	var started api.Started
	if err := json.Unmarshal([]byte(data), &started); err != nil {
		t.Fatalf("%v: %q", err, seen.String())
	}
	run := s + "/runs/" + started.Run
	if g := l.ask("POST", run+"/step", `{}`); g.status != http.StatusConflict {
		t.Errorf("a step: %d %s", g.status, g.body)
	}
	if g := l.ask("POST", run+"/answer", `{"answers": [{"id": "q99", "text": "x"}]}`); g.status != http.StatusBadRequest {
		t.Errorf("no such question: %d %s", g.status, g.body)
	}
	gone()
	if r := l.run(s, "kept"); r.Details.Value == nil || *r.Details.Value != "1" {
		t.Errorf("after its client had gone: %+v", r.Details)
	}
}
