package server

import (
	"context"
	"net/http"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
)

// asking runs a call whose stream tells what the cell asks. The run ends with its
// stream: a client that goes stops its cell.
func (s *Server) asking(ctx context.Context, gone context.CancelFunc, w http.ResponseWriter, e *entry, call kernel.Call) *answer {
	d := &driven{id: s.registry.nextRun(e), stream: true, begun: time.Now()}
	d.run = e.session.Run(ctx, call)
	if a := s.registry.keep(e, d); a != nil {
		gone()
		<-d.run.Done()
		return a
	}
	out := newStream(w, gone)
	defer out.end()
	go out.alive(ctx)
	out.event(api.EventStarted, api.Started{Run: d.id})
	told := map[string]bool{}
	for {
		// Its end comes also when the client has gone: the run's own context says so.
		step, err := d.run.Step(context.Background())
		if err != nil && step.Result == nil {
			return nil // cannot be: nobody else takes its steps
		}
		for _, event := range step.Events {
			switch event.Kind {
			case kernel.EventOutput:
				out.output(event.Stream, event.Text)
			case kernel.EventWithdrawn:
				out.event(api.EventWithdrawn, api.Withdrawn{ID: event.Question})
			}
		}
		if step.Result != nil {
			s.metrics.call(*step.Result, time.Since(d.begun))
			out.event(api.EventResult, *step.Result)
			return nil
		}
		// Of those that wait no more nothing is kept: a cell asks as often as it likes.
		waiting := map[string]bool{}
		for _, q := range step.Waiting {
			if waiting[q.ID] = true; !told[q.ID] {
				out.event(api.EventQuestion, question(q))
			}
		}
		told = waiting
	}
}

// answer answers what a run waits for.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, who caller) *answer {
	d, a := s.registry.driven(who, r.PathValue("id"), r.PathValue("run"))
	if a != nil {
		return a
	}
	// Bodies are large: one at a time is taken in for each run.
	d.answering.Lock()
	defer d.answering.Unlock()
	var in api.Answers
	if a := read(w, r, &in, maxRun, false); a != nil {
		return a
	}
	if err := d.run.Answer(answers(in.Answers)...); err != nil {
		return refuse(http.StatusBadRequest, api.CodeInvalid, "field \"answers\": %v", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
