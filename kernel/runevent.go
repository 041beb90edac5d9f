package kernel

import (
	"slices"

	"cellblock/kernel/host"
)

// EventKind says what happened in a run.
type EventKind string

// The kinds of events.
const (
	EventOutput    EventKind = "output"    // the cell has written: Stream and Text
	EventCall      EventKind = "call"      // a host call is carried out: Tool and Call
	EventReturn    EventKind = "return"    // it has come back: Code is empty for a result
	EventRefused   EventKind = "refused"   // a host call is not carried out, by Rule
	EventAsked     EventKind = "asked"     // the run waits for the answer to Question
	EventAnswered  EventKind = "answered"  // Question has been answered
	EventWithdrawn EventKind = "withdrawn" // nobody waits for the answer to Question any more
	EventEnd       EventKind = "end"       // the last one; Status is the result's
)

// Event is something that happened in a run. Numbers begin with 1 and have no
// gaps; each event is told once.
type Event struct {
	Number   int64     `json:"number"`
	Kind     EventKind `json:"kind"`
	Stream   string    `json:"stream,omitempty"` // stdout or stderr
	Text     string    `json:"text,omitempty"`
	Call     string    `json:"call,omitempty"` // id of a host call, as in the record
	Tool     string    `json:"tool,omitempty"`
	Code     string    `json:"code,omitempty"`     // of a host call's error
	Rule     string    `json:"rule,omitempty"`     // that refused a host call, as in the record
	Question string    `json:"question,omitempty"` // id
	Status   string    `json:"status,omitempty"`
}

// Bounds of the events that wait for a step. Who makes the next one waits with it.
const (
	maxEvents     = 4096
	maxEventBytes = 1 << 20
)

// isHeard reports whether anybody is told of events.
func (r *Run) isHeard() bool { return r != nil && (r.driven || r.call.Events != nil) }

// emit tells of an event. While the host takes no steps and the bounds are reached
// it waits, until the run is cancelled or the cell has come back.
func (r *Run) emit(e Event) {
	if !r.isHeard() {
		return
	}
	r.order.Lock()
	defer r.order.Unlock()
	r.mu.Lock()
	for r.driven && !r.loose && !r.ended && (len(r.events) >= maxEvents || r.held >= maxEventBytes) {
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-r.ctx.Done():
			r.release()
		}
		r.mu.Lock()
	}
	over := r.ended // a tool that came back after its cell
	r.mu.Unlock()
	if !over {
		r.tell(e)
	}
}

// tell gives an event its number, the sink and the next step, in this order: what a
// step returns the sink has had. The caller holds order.
func (r *Run) tell(e Event) {
	r.last++
	e.Number = r.last
	r.follow(e)
	if r.call.Events != nil {
		r.call.Events(e)
	}
	if !r.driven {
		return
	}
	r.mu.Lock()
	r.events = append(r.events, e)
	r.held += len(e.Text)
	r.happened()
	r.mu.Unlock()
}

// follow notes what an event leaves open. The caller holds order.
func (r *Run) follow(e Event) {
	switch e.Kind {
	case EventAsked:
		r.unsettled = append(r.unsettled, Event{Kind: EventWithdrawn, Question: e.Question})
	case EventCall:
		r.unsettled = append(r.unsettled, Event{Kind: EventReturn, Call: e.Call, Tool: e.Tool, Code: host.CodeCancelled})
	case EventAnswered, EventWithdrawn, EventReturn:
		r.unsettled = slices.DeleteFunc(r.unsettled, func(o Event) bool { return o.Question == e.Question && o.Call == e.Call })
	}
}

// end makes the result known, together with the last event. What is still open ends
// before it: nobody waits for it any more.
func (r *Run) end(result Result) {
	r.release()
	r.order.Lock()
	defer r.order.Unlock()
	for _, e := range slices.Clone(r.unsettled) {
		r.tell(e)
	}
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.tell(Event{Kind: EventEnd, Status: result.Details.Status})
	r.mu.Lock()
	r.result, r.known = result, true
	r.happened()
	r.mu.Unlock()
	close(r.over)
}

// release lets events that wait for room go on: the cell has come back, or is to
// end, and nobody may be held up by a host that takes no steps.
func (r *Run) release() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loose {
		r.loose = true
		close(r.changed)
		r.changed = make(chan struct{})
	}
}
