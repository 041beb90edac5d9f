package kernel

import (
	"context"
	"fmt"

	"cellblock/jail"
	"cellblock/pyruntime"
)

// StockWay is how a stock's workers are made.
type StockWay string

const (
	// WayExec executes an interpreter for each: it has an address layout of its own.
	WayExec StockWay = "exec"
	// WayFork forks them from a warm interpreter, one for each kind of session, which
	// spares them its start and shares its memory. A session that finds none ready gets
	// one forked, too. The warm interpreter runs outside of any jail, without capabilities, and
	// imports the interpreter's standard library alone; what it forks is confined, and
	// witnessed, before site directories are looked at.
	WayFork StockWay = "fork"
)

// warm is a kind's parent, which is started with the first worker.
type warm struct {
	*jail.Parent
	temp  *tempDir // where its source is, when none is kept
	bytes int64
}

// withParent is the model by which a kind's next worker is made: itself, or with the
// kind's parent. The stock's makers may ask for it at the same time.
func (st *Stock) withParent(ctx context.Context, k *kind) (*Session, error) {
	profile, _, err := k.model.profileOf()
	if err != nil || st.options.Way != WayFork || profile.Fork == "" {
		return k.model, err
	}
	k.starting.Lock()
	defer k.starting.Unlock()
	if why := st.mayWarm(k.model); why != nil {
		st.executed(k, why)
		return k.model, nil
	}
	st.mu.Lock()
	now := k.parent
	st.mu.Unlock()
	if now.Parent != nil && now.Ended() {
		st.mu.Lock()
		k.releaseParent()
		st.mu.Unlock()
		now = warm{}
	}
	if now.Parent == nil {
		if now, err = startWarm(ctx, k.model); err != nil {
			return nil, err
		}
		st.mu.Lock()
		k.parent = now
		if st.closed || st.kinds[k.key] != k {
			k.releaseParent()
		}
		st.mu.Unlock()
	}
	model, err := k.model.forkedBy(now.Parent)
	return model, err
}

// executed tells once of a kind why its workers are executed although the way is fork.
func (st *Stock) executed(k *kind, why error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	k.releaseParent()
	st.stats.Why = "way fork: workers are executed: " + why.Error()
	if st.options.Log != nil && !k.told {
		fmt.Fprintln(st.options.Log, "stock:", st.stats.Why)
	}
	k.told = true
}

// forkedBy is a model whose workers a parent forks.
func (s *Session) forkedBy(p *jail.Parent) (*Session, error) {
	model := &Session{opts: s.opts, name: s.name, dir: s.dir, home: s.home, policy: s.policy, digest: s.digest, shape: s.shape, stocked: s.stocked, parent: p}
	var err error
	model.start, err = model.jailTier()
	return model, err
}

// makeForked has a parent fork the worker of a session that found none ready; nil where
// there is no parent, or it cannot: the session starts one of its own then.
func (s *Session) makeForked(ctx context.Context, parent *jail.Parent) (*worker, error) {
	if parent == nil {
		return nil, nil
	}
	s.parent = parent
	defer func() { s.parent = nil }()
	w, err := makeWorker(ctx, s)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("stock: fork a worker for %s: %w", s.name, err)
		s.opts.Stock.failed(nil, err)
		return nil, err
	}
	return w, err
}

// startWarm starts a parent for sessions like a model.
func startWarm(ctx context.Context, s *Session) (warm, error) {
	python, err := interpreter(s.opts.PythonBin, s.places())
	if err != nil {
		return warm{}, err
	}
	temp, err := newTempDir()
	if err != nil {
		return warm{}, err
	}
	source, err := runtimeDir(s.opts.Runtime, python, s.places(), temp.path)
	if err != nil {
		temp.remove()
		return warm{}, err
	}
	const shown = "/proc/self/fd/4" // by number, so that no worker learns its name
	p, err := jail.StartParent(ctx, jail.ParentOptions{Argv: pyruntime.ParentCommand(python, shown, 3, 5), Env: s.environment(), Source: source})
	if err != nil {
		temp.remove()
		return warm{}, fmt.Errorf("way fork: %w", err)
	}
	w := warm{Parent: p, temp: temp}
	for _, pid := range p.Pids() {
		size, err := pssOf(pid)
		if err != nil {
			size = expectedBytes
		}
		w.bytes += size
	}
	return w, nil
}

// releaseParent lets a kind's parent go when its workers have; the caller holds the
// stock's lock.
func (k *kind) releaseParent() {
	if k.parent.Parent != nil {
		k.parent.Release()
		k.parent.temp.remove()
	}
	k.parent = warm{}
}
