package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
)

// throughput runs one-shot programs, several at once.
func (b *bench) throughput(ctx context.Context) (*Row, error) {
	r := &Row{Name: "throughput", Work: "one-shot executions a second; of those from stock four were ready before, and who finds none has one made in the same way", Unit: "1/s"}
	count, rounds := 60, max(b.Rounds/10, 3)
	if b.Quick {
		count, rounds = 4, 1
	}
	bare := oneShot{argv: []string{b.python, "-I", "-c", printed}}
	wrapped, missing := b.bubblewrap()
	ours, err := b.cellblockRun(policy.Enforce)
	if err != nil {
		return nil, err
	}
	stocks, err := b.stocks(4)
	if err != nil {
		return nil, err
	}
	defer stocks.close()
	var ways []entry
	var fromStock []string
	ready := map[string][]float64{}
	for _, atOnce := range []int{2, 8} {
		name := func(n string) string { return fmt.Sprintf("%s, %d at once", n, atOnce) }
		many := func(n string, once func(context.Context) (float64, error)) entry {
			return entry{name: name(n), once: func(ctx context.Context) (float64, error) { return rate(ctx, count, atOnce, once) }}
		}
		ways = append(ways, many(wayBare, bare.once))
		if missing != nil {
			ways = append(ways, absent(name(wayBubblewrap), "%s", missing.missing))
		} else {
			// Each has a copy of the filter's files: they are read from their beginning.
			ways = append(ways, many(wayBubblewrap, func(ctx context.Context) (float64, error) { return wrapped.apart(ctx) }))
		}
		ways = append(ways, many(wayEnforce+", command", ours.once))
		for _, stock := range stocks {
			name := name(stock.name)
			ways = append(ways, entry{name: name, once: func(ctx context.Context) (float64, error) {
				value, share, err := stock.rate(ctx, count, atOnce)
				ready[name] = append(ready[name], share)
				return value, err
			}})
			fromStock = append(fromStock, name)
		}
	}
	const warm = 1
	r.Ways, err = turns(ctx, warm, rounds, ways)
	// A rate says little without it: who finds no worker waits until one is made.
	for _, name := range fromStock {
		r.note(name+": of 100 found a worker", ready[name], warm)
	}
	for _, atOnce := range []string{", 2 at once", ", 8 at once"} {
		r.ratio(wayExec+atOnce, wayBubblewrap+atOnce, 1, true)
		r.ratio(wayFork+atOnce, wayBubblewrap+atOnce, 3, true)
	}
	return r, err
}

// rate does something count times, so many at once, and returns how often a second.
func rate(ctx context.Context, count, atOnce int, once func(context.Context) (float64, error)) (float64, error) {
	var (
		work   = make(chan struct{}, count)
		group  sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	for range count {
		work <- struct{}{}
	}
	close(work)
	begin := time.Now()
	for range atOnce {
		group.Go(func() {
			for range work {
				if _, err := once(ctx); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	return float64(count) / time.Since(begin).Seconds(), failed
}

// memory holds eight idle interpreters of each kind at once.
func (b *bench) memory(ctx context.Context) (*Row, error) {
	count := 8
	if b.Quick {
		count = 2
	}
	r := &Row{Name: "memory", Work: fmt.Sprintf("an idle session, of %d at once: PSS of all its processes; of one that was forked, and 1/%d of the process that waits for them, without the one that forks", count, count), Unit: "MB"}
	stock, err := b.stocked(wayFork, kernel.WayFork, 1)
	if err != nil {
		return nil, err
	}
	defer stock.Close()
	shared := &warmParent{stock: stock}
	for _, way := range []struct {
		name   string
		start  func() (runner, error)
		common func([]runner) (float64, error)
	}{
		{wayLoop, func() (runner, error) { return startLoop(b.python) }, nothingShared},
		{wayEnforce, func() (runner, error) { return b.open(ctx, policy.Enforce, nil) }, nothingShared},
		{wayFork, func() (runner, error) { s, _, err := stock.given(ctx); return s, err }, shared.pss},
	} {
		samples, err := idlePSS(ctx, count, way.start, way.common)
		if err != nil {
			r.Ways = append(r.Ways, Way{Name: way.name, Missing: err.Error()})
			continue
		}
		r.Ways = append(r.Ways, wayOf(way.name, samples))
	}
	r.note(wayFork+": the process that waits, whole", shared.found, 0)
	r.ratio(wayEnforce, wayLoop, 1.3, false)
	r.ratio(wayFork, wayLoop, 0.4, false)
	return r, ctx.Err()
}

// idlePSS is the memory of so many runners that wait at once: each one's own, and an even
// part of what common, which is asked first, finds that they have together.
func idlePSS(ctx context.Context, count int, start func() (runner, error), common func([]runner) (float64, error)) ([]float64, error) {
	var running []runner
	defer func() {
		for _, r := range running {
			r.end()
		}
	}()
	for range count {
		r, err := start()
		if err != nil {
			return nil, err
		}
		running = append(running, r)
		if _, err := r.run(ctx, "1+1"); err != nil {
			return nil, err
		}
	}
	together, err := common(running)
	if err != nil {
		return nil, err
	}
	var samples []float64
	for _, r := range running {
		pids, err := r.pids()
		if err != nil {
			return nil, err
		}
		mb, err := pss(pids)
		if err != nil {
			return nil, err
		}
		samples = append(samples, mb+together/float64(count))
	}
	return samples, nil
}

// nothingShared is what runners have together that have processes of their own alone.
func nothingShared([]runner) (float64, error) { return 0, nil }

// warmParent is the memory of what waits for a stock's forked sessions.
type warmParent struct {
	stock *stocked
	found []float64
}

// pss closes the stock first: a worker that is ready has a share of the pages, too, and
// would take its part of them off the sessions. Of the parent, the process that waits stays
// as long as they do; the one that forks ends with the stock.
func (p *warmParent) pss(running []runner) (float64, error) {
	if err := p.stock.Close(); err != nil {
		return 0, err
	}
	parent := 0
	for _, r := range running {
		of, err := warmOf(r.(session).Info().WorkerPID)
		if err != nil {
			return 0, err
		}
		if parent != 0 && of != parent {
			return 0, fmt.Errorf("the sessions have different warm parents: %d, %d", parent, of)
		}
		parent = of
	}
	mb, err := pss([]int{parent})
	p.found = append(p.found, mb)
	return mb, err
}

// idle measures a cell while many other sessions wait.
func (b *bench) idle(ctx context.Context) (*Row, error) {
	if b.Idle <= 0 {
		return nil, ctx.Err()
	}
	r := &Row{Name: "idle", Work: fmt.Sprintf("the cell 1+1 in one of %d sessions, and their memory", b.Idle), Unit: "µs"}
	var running []runner
	defer func() {
		for _, s := range running {
			s.end()
		}
	}()
	// Both counts cannot be measured in turn, so that each is beside a bare loop.
	bare, err := startLoop(b.python)
	if err != nil {
		return nil, err
	}
	defer bare.end()
	once := func(in func() runner) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			begin := time.Now()
			_, err := in().run(ctx, "1+1")
			return microseconds(time.Since(begin)), err
		}
	}
	name := func(what string, count int) string { return fmt.Sprintf("%s, beside %d idle sessions", what, count-1) }
	for _, count := range []int{1, b.Idle} {
		for len(running) < count {
			s, err := b.open(ctx, policy.Enforce, nil)
			if err != nil {
				r.Ways = append(r.Ways, Way{Name: name(wayEnforce, count), Missing: fmt.Sprintf("session %d: %v", len(running)+1, err)})
				return r, ctx.Err()
			}
			running = append(running, s)
		}
		ways, err := turns(ctx, 20, b.often(), []entry{
			{name: name(wayLoop, count), once: once(func() runner { return bare })},
			{name: name(wayEnforce, count), once: once(func() runner { return running[0] })},
		})
		if err != nil {
			return nil, err
		}
		r.Ways = append(r.Ways, ways...)
	}
	var total float64
	for _, s := range running {
		pids, err := s.pids()
		if err != nil {
			return nil, err
		}
		mb, err := pss(pids)
		if err != nil {
			return nil, err
		}
		total += mb
	}
	crowd := Goal{Text: fmt.Sprintf("a cell beside %d sessions / alone ≤ 1.2, each as a multiple of the bare loop", b.Idle-1), Limit: 1.2}
	if r.Ways[0].Missing+r.Ways[1].Missing+r.Ways[2].Missing+r.Ways[3].Missing == "" {
		crowd.Value = r.Ways[3].Median / r.Ways[2].Median / (r.Ways[1].Median / r.Ways[0].Median)
		crowd.Met = crowd.Value <= crowd.Limit
	} else {
		crowd.Missing = "not all were measured"
	}
	r.Goals = append(r.Goals, crowd, Goal{Text: "all sessions fit in 24576 MB", Value: total, Limit: 24 << 10, Met: total <= 24<<10})
	return r, nil
}
