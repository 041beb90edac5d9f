package bench

import (
	"context"
	"time"

	"cellblock/policy"
)

// forking forks an interpreter that has its modules, and waits until the child runs.
const forking = `import json, os, re, subprocess, pathlib, time
ends = os.pipe()
t = time.perf_counter()
child = os.fork()
if not child:
    os.write(ends[1], b"1")
    os._exit(0)
os.read(ends[0], 1)
took = time.perf_counter() - t
os.waitpid(child, 0)
for end in ends: os.close(end)`

// ready measures what a session waits for before its first cell can run.
func (b *bench) ready(ctx context.Context) (*Row, error) {
	r := &Row{Name: "ready", Work: "a session's interpreter is ready, in its jail, from a launcher that runs", Unit: "ms"}
	const fork, fresh = "fork of a warm interpreter, no jail", "cellblock, enforce, started afresh"
	const start, both = ": start", ": open and start"
	stocks, err := b.stocks(1)
	if err != nil {
		return nil, err
	}
	defer stocks.close()
	ways := []entry{
		b.lasting(fork, func() (runner, error) { return startLoop(b.python) }, timed(forking, time.Millisecond)),
		{name: fresh, once: func(ctx context.Context) (float64, error) {
			begin := time.Now()
			s, err := b.open(ctx, policy.Enforce, nil)
			if err != nil {
				return 0, err
			}
			defer s.end()
			return milliseconds(time.Since(begin)), nil
		}},
	}
	wholes := make([][]float64, len(stocks))
	for i, stock := range stocks {
		ways = append(ways, entry{name: stock.name + start, once: func(ctx context.Context) (float64, error) {
			s, took, err := stock.given(ctx)
			if err != nil {
				return 0, err
			}
			wholes[i] = append(wholes[i], milliseconds(took[0]+took[1]))
			s.end()
			return milliseconds(took[1]), stock.fill(ctx)
		}})
	}
	if r.Ways, err = turns(ctx, b.warm(), 2*b.Rounds, ways); err != nil {
		return nil, err
	}
	for i, stock := range stocks {
		r.note(stock.name+both, wholes[i], b.warm())
		r.ratio(stock.name+start, fork, 1.0, false)
		r.worst(stock.name+start, fork, 3)
		r.ratio(stock.name+both, fork, 1.0, false)
	}
	return r, nil
}
