package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"cellblock/kernel/front/http/api"
)

// answer is what a request gets in place of what it asked for.
type answer struct {
	status  int
	problem api.Problem
}

func refuse(status int, code api.Code, message string, args ...any) *answer {
	return &answer{status, api.Problem{Code: code, Message: fmt.Sprintf(message, args...)}}
}

// later tells when asking again makes sense.
func (a *answer) later(wait time.Duration) *answer {
	a.problem.RetrySeconds = max(1, int(wait.Round(time.Second)/time.Second))
	return a
}

// writeGrace is how long a client may take to read an answer, or a piece of a stream.
// One that reads nothing for so long is gone.
const writeGrace = 30 * time.Second

// send writes an answer that is not a stream. The client may be gone; nobody is left to
// be told then.
func send(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		// What is sent are this product's own types, which marshal.
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"host","message":"the answer cannot be written"}}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeGrace))
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

func (a *answer) send(w http.ResponseWriter) {
	if a.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="cellblock"`)
	}
	if a.problem.RetrySeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.problem.RetrySeconds))
	}
	send(w, a.status, api.Failure{Error: a.problem})
}
