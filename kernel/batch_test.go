package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"cellblock/kernel/host"
)

func TestABatchKeepsItsBound(t *testing.T) {
	for _, bound := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(bound), func(t *testing.T) {
			var now, most atomic.Int32
			o := withTools(t, host.Tool{Name: "t.work", Do: func(ctx context.Context, _ host.Call) (json.RawMessage, error) {
				n := now.Add(1)
				defer now.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				// Long enough that all that may run at once do.
				for end := time.Now().Add(5 * time.Second); bound > 1 && most.Load() < int32(bound) && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				return nil, nil
			}})
			o.Tier = TierProcess
			var jobs []Job
			for i := range 6 {
				jobs = append(jobs, Job{open(t, o), Call{Code: fmt.Sprintf("t.work(); %d", i)}})
			}
			for i, r := range NewBatch(bound).Call(t.Context(), jobs...) {
				if r.IsError || *r.Details.Value != fmt.Sprint(i) {
					t.Errorf("job %d: %s", i, r.Text())
				}
			}
			if want := int32(max(bound, 1)); most.Load() != want {
				t.Errorf("%d at once, want %d", most.Load(), want)
			}
		})
	}
}

func TestABatchIsDrivenAndCancelled(t *testing.T) {
	o := withTools(t, host.Tool{Name: "t.ask"})
	first, second := open(t, o), open(t, o)
	b := NewBatch(1)
	a := b.Run(t.Context(), first, Call{Code: "t.ask()"})
	step, err := a.Step(t.Context())
	for err == nil && step.State != Waiting {
		step, err = a.Step(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	// The place is taken until the first has its answer.
	ctx, cancel := context.WithCancel(t.Context())
	waits := b.Run(ctx, second, Call{Code: "1"})
	cancel()
	if end, _, err := steps(t, waits, nothingAsked(t)); err != nil || end.Result.Details.Error.Name != KernelKilled || end.Result.Details.StateLost {
		t.Errorf("%+v, %v", end.Result, err)
	}
	c := b.Run(t.Context(), second, Call{Code: "2"})
	if _, err := a.Step(t.Context(), Answer{ID: step.Waiting[0].ID}); err != nil {
		t.Fatal(err)
	}
	<-a.Done()
	if end, _, err := steps(t, c, nothingAsked(t)); err != nil || end.Result.Text() != "2" {
		t.Errorf("%+v, %v", end.Result, err)
	}
}
