package kernel

import (
	"context"
	"sync"
)

// Batch runs calls of several sessions at once, up to a bound.
type Batch struct{ places chan struct{} }

// Job is one call of a batch.
type Job struct {
	Session *Session
	Call    Call
}

// NewBatch makes a batch that runs at most bound calls at once; less than 1 is 1.
func NewBatch(bound int) *Batch {
	return &Batch{places: make(chan struct{}, max(bound, 1))}
}

// enter waits for a place, which end gives back.
func (b *Batch) enter(ctx context.Context) (end func(), err error) {
	select {
	case b.places <- struct{}{}:
		return func() { <-b.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run begins a call that the host drives, as soon as there is a place for it. One
// that waits for an answer keeps its place.
func (b *Batch) Run(ctx context.Context, s *Session, c Call) *Run {
	r := newRun(ctx, s, c, true)
	r.begin = b.enter
	go r.play()
	return r
}

// Call runs jobs to their ends and returns their results in the order of the jobs.
// Calls of one session run one after the other, in no promised order. What ctx ends
// before it has begun has a result that says so.
func (b *Batch) Call(ctx context.Context, jobs ...Job) []Result {
	results := make([]Result, len(jobs))
	var all sync.WaitGroup
	for i, job := range jobs {
		all.Go(func() {
			r := newRun(ctx, job.Session, job.Call, false)
			r.begin = b.enter
			r.play()
			results[i] = r.result
		})
	}
	all.Wait()
	return results
}
