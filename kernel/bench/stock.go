package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
)

// Names of ways whose workers were ready, by how the stock has made them.
const (
	wayExec = wayEnforce + ", from stock, exec"
	wayFork = wayEnforce + ", from stock, fork"
)

// stocked is a stock of workers under enforce, and what its sessions need.
type stocked struct {
	*kernel.Stock
	bench *bench
	name  string
}

// stocks is one for each way to make workers.
type stocks []*stocked

func (all stocks) close() {
	for _, s := range all {
		s.Close()
	}
}

// stocks opens one of each way that keeps so many workers ready. They are closed when
// their row ends: idle workers share pages with those whose memory another row measures.
func (b *bench) stocks(count int) (stocks, error) {
	exec, err := b.stocked(wayExec, kernel.WayExec, count)
	if err != nil {
		return nil, err
	}
	fork, err := b.stocked(wayFork, kernel.WayFork, count)
	if err != nil {
		exec.Close()
		return nil, err
	}
	return stocks{exec, fork}, nil
}

// stocked opens a stock, which has no worker until fill is called.
func (b *bench) stocked(name string, way kernel.StockWay, count int) (*stocked, error) {
	room, err := os.MkdirTemp(b.dir, "room-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(room, 0o755); err != nil {
		return nil, err
	}
	stock, err := kernel.OpenStock(kernel.StockOptions{Sessions: room, Min: count, Max: count, Way: way})
	return &stocked{stock, b, name}, err
}

func (s *stocked) options(dir string) kernel.Options {
	o := s.bench.common(policy.Enforce)
	o.SessionDir, o.Stock = dir, s.Stock
	return o
}

// fill waits until the stock is full. Before and after what is measured it keeps the
// making of workers out of that, and out of the next way's turn.
func (s *stocked) fill(ctx context.Context) error {
	dir := filepath.Join(s.Sessions(), "prepare")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return s.Prepare(ctx, s.options(dir))
}

// open opens and starts a session that gets a worker where one is ready. It returns how
// long each of the two took.
func (s *stocked) open(ctx context.Context) (made session, took [2]time.Duration, err error) {
	dir, err := os.MkdirTemp(s.Sessions(), "session-")
	if err != nil {
		return made, took, err
	}
	o := s.options(dir)
	begin := time.Now()
	k, err := kernel.Open(o)
	if err != nil {
		return made, took, err
	}
	opened := time.Now()
	if err := k.Start(ctx); err != nil {
		k.Close()
		return made, took, err
	}
	return session{k}, [2]time.Duration{opened.Sub(begin), time.Since(opened)}, nil
}

// given is open of a session that has to find a worker.
func (s *stocked) given(ctx context.Context) (made session, took [2]time.Duration, err error) {
	if err := s.fill(ctx); err != nil {
		return made, took, err
	}
	made, took, err = s.open(ctx)
	if err == nil && !made.Info().Stock {
		err = errors.Join(fmt.Errorf("the session found no worker: %+v", s.Stats()), made.Close())
	}
	return made, took, err
}

// once runs a one-shot in a session that gets a worker where one is ready.
func (s *stocked) once(ctx context.Context) (float64, error) {
	made, _, err := s.open(ctx)
	if err != nil {
		return 0, err
	}
	defer made.end()
	reply := made.Call(ctx, kernel.Call{Code: printed})
	if reply.Details.Stdout != "42\n" {
		return 0, fmt.Errorf("printed %q, not 42", reply.Details.Stdout)
	}
	return 0, nil
}

// rate is how many one-shots a second end, from when the stock is full, and how many of
// 100 found a worker. The others had one made, in the stock's way.
func (s *stocked) rate(ctx context.Context, count, atOnce int) (value, found float64, err error) {
	if err := s.fill(ctx); err != nil {
		return 0, 0, err
	}
	before := s.Stats().Given
	if value, err = rate(ctx, count, atOnce, s.once); err != nil {
		return 0, 0, err
	}
	found = 100 * float64(s.Stats().Given-before) / float64(count)
	return value, found, s.fill(ctx)
}
