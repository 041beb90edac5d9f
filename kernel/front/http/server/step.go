package server

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/kernel/host"
)

const (
	stepWait = 20 * time.Second // for something to happen, when a request says nothing else
	maxWait  = 60 * time.Second
	maxTools = 64
	// maxRuns is how many runs of a session are kept, ended ones whose end nobody has
	// asked for included. The oldest ended one goes for a new one.
	maxRuns = 32
)

// driven is a run that its caller drives.
type driven struct {
	id      string
	run     *kernel.Run
	stream  bool // tells what happens; nobody takes steps
	begun   time.Time
	waiting chan struct{} // holds one token while a step is waited for

	answering sync.Mutex // held while an answer is taken in

	// By whoever has the token.
	last api.Step
}

// tools are the host calls that a request declares; who drives a run answers them.
func tools(asked []api.Tool) ([]host.Tool, *answer) {
	if len(asked) > maxTools {
		return nil, refuse(http.StatusBadRequest, api.CodeInvalid, "field \"tools\": %d are more than %d", len(asked), maxTools)
	}
	var out []host.Tool
	for _, t := range asked {
		out = append(out, host.Tool{Name: t.Name, Doc: t.Doc, Signature: t.Signature, Schema: t.Schema, Reason: t.Reason})
	}
	return out, nil
}

// begin begins a run.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, who caller) *answer {
	e, leave, a := s.registry.enter(who, r.PathValue("id"))
	if a != nil {
		return a
	}
	var in api.Run
	if a = read(w, r, &in, maxRun, false); a == nil {
		var call kernel.Call
		if call, a = callOf(e, in); a == nil && in.Questions {
			a = refuse(http.StatusBadRequest, api.CodeInvalid, "field \"questions\": steps have them anyway; it is for 'run'")
		}
		if a == nil {
			d := &driven{id: s.registry.nextRun(e), begun: time.Now(), waiting: make(chan struct{}, 1)}
			d.run = e.session.Run(e.living, call)
			if a = s.registry.keep(e, d); a == nil {
				go func() {
					<-d.run.Done()
					// Also one whose end nobody asks for is a call.
					s.metrics.call(*d.run.Result(), time.Since(d.begun))
					leave()
				}()
				w.Header().Set("Location", "/v1/sessions/"+e.id+"/runs/"+d.id)
				send(w, http.StatusCreated, api.Started{Run: d.id})
				return nil
			}
			d.run.Cancel()
			<-d.run.Done()
		}
	}
	leave()
	return a
}

// step takes a run's next step, or says the last one again.
func (s *Server) step(w http.ResponseWriter, r *http.Request, who caller) *answer {
	d, a := s.registry.driven(who, r.PathValue("id"), r.PathValue("run"))
	if a != nil {
		return a
	}
	if d.stream {
		return refuse(http.StatusConflict, api.CodeOverlap, "run %s: its stream tells what happens; answers go to its 'answer'", d.id)
	}
	select {
	case d.waiting <- struct{}{}:
		defer func() { <-d.waiting }()
	default:
		return refuse(http.StatusConflict, api.CodeOverlap, "run %s: another request waits for its next step; one may at once", d.id)
	}
	// With the token: bodies are large, and one at a time is taken in for each run.
	var in api.Ask
	if a := read(w, r, &in, maxRun, true); a != nil {
		return a
	}
	wait := stepWait
	if in.WaitSeconds != 0 {
		var why string
		if wait, why = secondsOf(in.WaitSeconds); why != "" || wait > maxWait {
			return refuse(http.StatusBadRequest, api.CodeInvalid, "field \"waitSeconds\": give seconds, up to %v", maxWait.Seconds())
		}
	}
	switch {
	case in.Step != 0 && in.Step == d.last.Step:
		send(w, http.StatusOK, d.last)
		return nil
	case in.Step != 0 && in.Step != d.last.Step+1:
		return refuse(http.StatusBadRequest, api.CodeInvalid, "field \"step\": the last was %d; ask for that or for the next", d.last.Step)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	step, err := d.run.Step(ctx, answers(in.Answers)...)
	if errors.Is(err, kernel.ErrRunEnded) {
		step, err = d.run.Continue(ctx)
	}
	switch {
	case errors.Is(err, kernel.ErrAnswer):
		return refuse(http.StatusBadRequest, api.CodeInvalid, "field \"answers\": %v", err)
	case ctx.Err() != nil && err != nil:
		send(w, http.StatusOK, api.Step{State: api.StateNothing, Events: []kernel.Event{}, Waiting: []api.Question{}})
		return nil
	case err != nil:
		return refuse(http.StatusInternalServerError, api.CodeHost, "run %s: %v", d.id, err)
	}
	d.last = shown(step, d.last.Step+1)
	send(w, http.StatusOK, d.last)
	return nil
}

// cancel cancels a run; its end comes with a later step.
func (s *Server) cancel(w http.ResponseWriter, r *http.Request, who caller) *answer {
	d, a := s.registry.driven(who, r.PathValue("id"), r.PathValue("run"))
	if a != nil {
		return a
	}
	d.run.Cancel()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func answers(in []api.Answer) []kernel.Answer {
	var out []kernel.Answer
	for _, a := range in {
		k := kernel.Answer{ID: a.ID, Value: a.Value, Text: a.Text, Approved: a.Approved, Again: a.Again}
		if a.Error != nil {
			k.Error = &host.Error{Type: "HostError", Code: a.Error.Code, Message: a.Error.Message}
		}
		out = append(out, k)
	}
	return out
}

// shown is a step as a client reads it.
func shown(step kernel.Step, number int) api.Step {
	out := api.Step{Step: number, State: step.State, Events: step.Events, Waiting: []api.Question{}, Result: step.Result}
	if out.Events == nil {
		out.Events = []kernel.Event{}
	}
	for _, q := range step.Waiting {
		out.Waiting = append(out.Waiting, question(q))
	}
	return out
}

func question(q kernel.Question) api.Question {
	asks := api.Question{ID: q.ID, Kind: q.Kind, Prompt: q.Prompt, Hidden: q.Hidden}
	if q.Call != nil {
		asks.Call = &api.HostCall{ID: q.Call.ID, Tool: q.Call.Tool, Arguments: q.Call.Arguments, Chain: q.Call.Chain}
	}
	if q.Approval != nil {
		asks.Approval = &api.Approval{ID: q.Approval.ID, Action: q.Approval.Action, Digest: q.Approval.Digest, Reason: q.Approval.Reason, Expires: q.Approval.Expires}
	}
	if q.Error != nil {
		asks.Error = &api.ToolFailure{Code: q.Error.Code, Message: q.Error.Message}
	}
	return asks
}

// nextRun is the id of a session's next run.
func (r *registry) nextRun(e *entry) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.begun++
	return "r" + strconv.Itoa(e.begun)
}

// keep keeps a run to be found, and forgets the oldest that has ended for it.
func (r *registry) keep(e *entry, d *driven) *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[e.id] != e {
		return refuse(http.StatusNotFound, api.CodeNotFound, "session %s: has ended", e.id)
	}
	e.runs = append(e.runs, d)
	for i := 0; i < len(e.runs) && len(e.runs) > maxRuns; i++ {
		select {
		case <-e.runs[i].run.Done():
			e.runs = append(e.runs[:i:i], e.runs[i+1:]...)
			i--
		default:
		}
	}
	return nil
}

// driven is a run of a caller's session.
func (r *registry) driven(c caller, session, id string) (*driven, *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, a := r.findLocked(c, session)
	if a != nil {
		return nil, a
	}
	for _, d := range e.runs {
		if d.id == id {
			return d, nil
		}
	}
	return nil, refuse(http.StatusNotFound, api.CodeNotFound, "run %.80q: this session has none of this id", id)
}
