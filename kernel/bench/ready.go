package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
)

// stocked is a stock of workers under enforce, and what opens and starts a session that
// may get one. It returns how long each of the two took.
func (b *bench) stocked(most int) (*kernel.Stock, func(context.Context) (session, [2]time.Duration, error), error) {
	room, err := os.MkdirTemp(b.dir, "room-")
	if err != nil {
		return nil, nil, err
	}
	if err := os.Chmod(room, 0o755); err != nil {
		return nil, nil, err
	}
	stock, err := kernel.OpenStock(kernel.StockOptions{Sessions: room, Max: most})
	if err != nil {
		return nil, nil, err
	}
	return stock, func(ctx context.Context) (s session, took [2]time.Duration, err error) {
		o, err := b.options(policy.Enforce)
		if err != nil {
			return s, took, err
		}
		if o.SessionDir, err = os.MkdirTemp(room, "session-"); err != nil {
			return s, took, err
		}
		o.Stock = stock
		begin := time.Now()
		k, err := kernel.Open(o)
		if err != nil {
			return s, took, err
		}
		opened := time.Now()
		if err := k.Start(ctx); err != nil {
			k.Close()
			return s, took, err
		}
		return session{k}, [2]time.Duration{opened.Sub(begin), time.Since(opened)}, nil
	}, nil
}

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
	const fork, fresh, start, both = "fork of a warm interpreter, no jail", "cellblock, enforce, started afresh", "cellblock, enforce, from stock: start", "cellblock, enforce, from stock: open and start"
	stock, open, err := b.stocked(1)
	if err != nil {
		return nil, err
	}
	defer stock.Close()
	var opening time.Duration
	given := func(ctx context.Context) (float64, error) {
		// Filled again, outside of what is measured.
		o, err := b.options(policy.Enforce)
		if err != nil {
			return 0, err
		}
		o.SessionDir, o.Stock = filepath.Join(stock.Sessions(), "prepare"), stock
		if err := os.MkdirAll(o.SessionDir, 0o700); err != nil {
			return 0, err
		}
		if err := stock.Prepare(ctx, o); err != nil {
			return 0, err
		}
		s, took, err := open(ctx)
		if err != nil {
			return 0, err
		}
		defer s.end()
		if !s.Info().Stock {
			return 0, fmt.Errorf("the session found no worker: %+v", stock.Stats())
		}
		opening = took[0]
		return milliseconds(took[1]), nil
	}
	var wholes []float64
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
		{name: start, once: func(ctx context.Context) (float64, error) {
			value, err := given(ctx)
			if err == nil {
				wholes = append(wholes, value+milliseconds(opening))
			}
			return value, err
		}},
	}
	if r.Ways, err = turns(ctx, b.warm(), 2*b.Rounds, ways); err != nil {
		return nil, err
	}
	if warm := b.warm(); len(wholes) > warm {
		r.Ways = append(r.Ways, wayOf(both, wholes[warm:]))
	}
	r.ratio(start, fork, 1.0, false)
	r.worst(start, fork, 3)
	r.ratio(both, fork, 1.0, false)
	return r, nil
}
