package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"cellblock/kernel/front/http/api"
)

// stream sends events (HTML, 9.2) while a cell runs. What it is given it sends at once
// and whole: a client that reads slowly slows its cell down, and one that reads nothing
// for writeGrace is gone.
type stream struct {
	w    http.ResponseWriter
	ctl  *http.ResponseController
	gone context.CancelFunc // ends the call

	mu    sync.Mutex
	ended bool
}

// beat is how often a stream says that it is alive, so that a client that has gone, and
// a proxy between, are noticed.
const beat = 10 * time.Second

func newStream(w http.ResponseWriter, gone context.CancelFunc) *stream {
	s := &stream{w: w, ctl: http.NewResponseController(w), gone: gone}
	w.Header().Set("Content-Type", "text/event-stream")
	s.mu.Lock()
	defer s.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	s.write([]byte(": begin\n\n"))
	return s
}

// alive beats until ctx ends.
func (s *stream) alive(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.mu.Lock()
			s.write([]byte(": alive\n\n"))
			s.mu.Unlock()
		}
	}
}

// output is the Output of a kernel.Call.
func (s *stream) output(name, text string) {
	if text != "" {
		s.event(api.EventOutput, api.Output{Stream: name, Text: text})
	}
}

// event sends one event. JSON has no line feed in it, and one line holds it.
func (s *stream) event(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.gone()
		return
	}
	var b bytes.Buffer
	b.WriteString("event: " + name + "\ndata: ")
	b.Write(data)
	b.WriteString("\n\n")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(b.Bytes())
}

// write needs the lock.
func (s *stream) write(data []byte) {
	if s.ended {
		return
	}
	_ = s.ctl.SetWriteDeadline(time.Now().Add(writeGrace))
	_, err := s.w.Write(data)
	if err == nil {
		err = s.ctl.Flush()
	}
	if err != nil {
		s.ended = true
		s.gone()
	}
}

// end lets nothing more be written: the handler returns.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}
