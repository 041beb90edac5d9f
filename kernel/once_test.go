package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"cellblock/kernel/host"
)

// many makes calls of each kind at once, whatever becomes of each.
const many = `
import asyncio
async def one(i):
    try:
        return await (t.do(i=i) if i % 3 == 0 else t.ask(i=i))
    except Exception as e:
        return e.code
got = await asyncio.gather(*[one(i) for i in range(24)], return_exceptions=True)
len(got)
`

// TestEachCallAndQuestionIsAnsweredOnce: sessions make many calls at once while hosts
// answer in any order, or not at all, cells are cancelled and interrupted, and some
// answers come late. What was asked is answered or withdrawn, once; what was begun
// has come back, once; no answer is another session's.
func TestEachCallAndQuestionIsAnsweredOnce(t *testing.T) {
	const sessions, rounds = 4, 6
	var all sync.WaitGroup
	for n := range sessions {
		var mu sync.Mutex
		began, back := map[string]int{}, map[string]int{}
		o := withTools(t, host.Tool{Name: "t.ask"}, host.Tool{Name: "t.do", Do: func(ctx context.Context, c host.Call) (json.RawMessage, error) {
			mu.Lock()
			began[c.ID]++
			mu.Unlock()
			defer func() {
				mu.Lock()
				back[c.ID]++
				mu.Unlock()
			}()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Duration(rand.IntN(5)) * time.Millisecond):
				return c.Arguments, nil
			}
		}})
		o.Name = fmt.Sprintf("once%d", n)
		if n%2 == 0 {
			o.Tier = TierProcess
		}
		s := open(t, o)
		all.Go(func() {
			for round := range rounds {
				r := s.Run(t.Context(), Call{Code: many, Timeout: time.Minute})
				stopped := make(chan struct{})
				stop := time.AfterFunc(time.Duration(rand.IntN(60))*time.Millisecond, func() {
					defer close(stopped)
					switch round % 3 {
					case 1:
						r.Cancel()
					case 2:
						s.Interrupt()
					}
				})
				asked, answered := map[string]int{}, map[string]int{}
				calls, returns := map[string]int{}, map[string]int{}
				var open []Question
				var last int64
				for {
					var answers []Answer
					rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
					for _, q := range open[:(len(open)+1)/2] { // the rest later
						if q.Call.Identity.Session != s.name {
							t.Errorf("%s is asked %+v", s.name, q.Call)
						}
						answers = append(answers, Answer{ID: q.ID, Value: q.Call.Arguments})
					}
					step, err := r.Step(t.Context(), answers...)
					if err != nil {
						t.Error(err)
						break
					}
					open = step.Waiting
					for _, e := range step.Events {
						if last++; e.Number != last {
							t.Errorf("event %d is number %d", last, e.Number)
						}
						switch e.Kind {
						case EventAsked:
							asked[e.Question]++
						case EventAnswered, EventWithdrawn:
							answered[e.Question]++
						case EventCall:
							calls[e.Call]++
						case EventReturn:
							returns[e.Call]++
						}
					}
					if step.State == Finished {
						// The text may tell what became of the cells before it.
						if d := step.Result.Details; round%3 == 0 && (d.Error != nil || d.Value == nil || *d.Value != "24") {
							t.Errorf("undisturbed: %s", step.Result.Text())
						}
						break
					}
				}
				if !stop.Stop() {
					<-stopped // an interrupt that came late would be the next cell's
				}
				for id, times := range asked {
					if times != 1 || answered[id] != 1 {
						t.Errorf("%s round %d: question %s: asked %d, answered %d times", s.name, round, id, times, answered[id])
					}
				}
				for id, times := range calls {
					if times != 1 || returns[id] != 1 {
						t.Errorf("%s round %d: call %s: begun %d, came back %d times", s.name, round, id, times, returns[id])
					}
				}
				for id := range returns {
					if calls[id] == 0 {
						t.Errorf("%s round %d: call %s came back and was never begun", s.name, round, id)
					}
				}
			}
			if r := s.Call(t.Context(), Call{Code: "t.do(i=7)"}); r.Details.Error != nil || r.Details.Value == nil || *r.Details.Value != "{'i': 7}" {
				t.Errorf("%s afterwards: %s", s.name, r.Text())
			}
			s.Close()
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
				mu.Lock()
				same := len(began) == len(back)
				for id, times := range began {
					if times != 1 || back[id] > 1 {
						t.Errorf("%s: call %s was carried out %d times, came back %d", s.name, id, times, back[id])
					}
				}
				mu.Unlock()
				if same {
					return
				}
				if time.Now().After(end) {
					t.Errorf("%s: tools are still at work", s.name)
					return
				}
			}
		})
	}
	all.Wait()
}
