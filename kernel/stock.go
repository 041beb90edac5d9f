package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"cellblock/jail"
	"cellblock/policy"
)

// Stock keeps workers that are ready before their sessions come: jails, witnessed, with
// an interpreter that waits. A session whose Options name the stock gets one when it
// starts, with its directory attached, or starts afresh when there is none for it.
//
// A worker serves one session and ends with it; nothing is cleaned and used again. Each
// has a jail of its own. One that was executed (WayExec) has its own address layout, too,
// and shares nothing with others but the files of the host: as a worker that was started
// afresh. One that was forked (WayFork) shares with all of its kind the memory of their
// parent until either writes to it, its address layout, the seed of hashes and the
// interpreter's cookies: who finds out one session's addresses knows the others'. It is for sessions that
// differ from the one that it was made for in nothing but directory and name: policy,
// profile, mode, limits, interpreter, environment and ids are those of its own jail. A
// policy that says something of a place within the session directory, a tree of which
// only listed paths are shown, and mode shadow have no stock; Stats tells.
//
// # Limitations
//
// Until a session's directory is attached, Landlock already allows changes in the
// whole of StockOptions.Sessions, so that what lies there beside the session's own
// directory is kept by read-only mounts alone. File systems that the host mounts after
// a worker was made are not seen by it. The methods may be called from any goroutine.
type Stock struct {
	options StockOptions
	stop    context.CancelFunc
	work    chan struct{} // something may have to be made
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	kinds  map[string]*kind
	giving int // workers on their way to a session, for which making waits
	stats  StockStats
	change chan struct{} // closed and made anew when a worker was made or could not be
}

// StockOptions say how much is kept ready. The zero value of each field but Sessions
// stands for its default.
type StockOptions struct {
	// Sessions is the directory below which the directories of all sessions lie that
	// get a worker from stock.
	Sessions string
	// Min and Max are the workers kept ready for one kind of session; default 1 and 8.
	// Between them the number follows demand.
	Min, Max int
	// Budget bounds the memory of all idle workers, in bytes; default 512 MiB.
	Budget int64
	// Way is how workers are made; default WayExec. Sessions whose profile does not
	// allow WayFork get executed ones.
	Way StockWay
	// Log gets a line when a worker could not be made or given out; nil for none.
	Log io.Writer
}

// StockStats count from the opening of a stock, but for Ready and Bytes, which are now.
type StockStats struct {
	Ready  int   `json:"ready"`
	Bytes  int64 `json:"bytes"`  // memory of those that are ready
	Made   int64 `json:"made"`   // workers
	Given  int64 `json:"given"`  // to sessions
	Missed int64 `json:"missed"` // sessions that found none
	Unfit  int64 `json:"unfit"`  // sessions that no stock can be kept for
	Failed int64 `json:"failed"` // workers that could not be made or given out
	// Why is the newest reason of Unfit or Failed.
	Why string `json:"why,omitempty"`
}

const (
	// stockTick is how often what nobody asks for is let go.
	stockTick = 30 * time.Second
	// stockForgets is after how many ticks without demand a kind is let go as a whole.
	stockForgets = 20
	// stockRetry is how long a kind rests of which a worker could not be made.
	stockRetry = 10 * time.Second
)

// OpenStock starts to keep workers. The error is an *OptionError.
func OpenStock(o StockOptions) (*Stock, error) {
	if o.Way == "" {
		o.Way = WayExec
	}
	if o.Min == 0 {
		o.Min = 1
	}
	if o.Max == 0 {
		o.Max = max(8, o.Min)
	}
	if o.Budget == 0 {
		o.Budget = 512 << 20
	}
	wrong := func(why string, args ...any) (*Stock, error) {
		return nil, &OptionError{"stock", fmt.Sprintf(why, args...)}
	}
	if o.Min < 0 || o.Max < o.Min || o.Budget < 0 {
		return wrong("min %d, max %d and budget %d: give numbers of which none is below zero, and a max that is not below min", o.Min, o.Max, o.Budget)
	}
	if o.Way != WayExec && o.Way != WayFork {
		return wrong("way %q: want %q or %q", o.Way, WayExec, WayFork)
	}
	real, err := filepath.EvalSymlinks(o.Sessions)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return wrong("the directory of all sessions, %q: %v", o.Sessions, err)
	}
	for _, own := range []string{"/tmp", "/run", "/dev", "/proc", "/sys"} {
		if policy.Within(own, real) || real == "/" {
			return wrong("the directory of all sessions, %q, lies in a place that each jail has of its own: use another, such as one in /var/lib", real)
		}
	}
	o.Sessions = real
	ctx, stop := context.WithCancel(context.Background())
	st := &Stock{options: o, stop: stop, work: make(chan struct{}, 1), kinds: map[string]*kind{}, change: make(chan struct{})}
	// Making is processor time; more at once make none sooner.
	for range max(1, runtime.NumCPU()/2) {
		st.running.Add(1)
		go st.make(ctx)
	}
	st.running.Add(1)
	go st.tick(ctx)
	return st, nil
}

// Close ends all workers that are ready and waits for their end. Those that sessions
// have are theirs. A nil Stock has nothing to close.
func (st *Stock) Close() error {
	if st == nil {
		return nil
	}
	st.mu.Lock()
	st.closed = true
	var all []*worker
	for _, k := range st.kinds {
		all = append(all, k.ready...)
		k.ready = nil
		k.releaseParent()
	}
	st.mu.Unlock()
	st.stop()
	for _, w := range all {
		w.discard()
	}
	st.running.Wait()
	return nil
}

// Sessions is the directory of StockOptions, without symbolic links.
func (st *Stock) Sessions() string { return st.options.Sessions }

// Stats tells how the stock has served.
func (st *Stock) Stats() StockStats {
	st.mu.Lock()
	defer st.mu.Unlock()
	stats := st.stats
	for _, k := range st.kinds {
		stats.Ready += len(k.ready)
		stats.Bytes += k.bytes()
	}
	return stats
}

// Prepare makes workers for sessions with these options, whose directory stands for
// theirs, and waits until the minimum is ready. The error says why none can be kept, or
// made, or is the context's.
func (st *Stock) Prepare(ctx context.Context, opts Options) error {
	makeState(opts)
	opts.Stock = st
	s, err := newSession(opts)
	if err != nil {
		return err
	}
	model, key, _, err := st.model(s)
	if err != nil {
		return err
	}
	st.mu.Lock()
	k := st.kind(key, model)
	failed := k.failures
	st.mu.Unlock()
	for {
		st.poke()
		st.mu.Lock()
		change, ready, failures, err, closed := st.change, len(k.ready), k.failures, k.err, st.closed
		st.mu.Unlock()
		switch {
		case closed:
			return errStockClosed
		case ready >= st.options.Min:
			return nil
		case failures > failed:
			return err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errStockClosed = errors.New("stock: closed")

// kind are the workers for sessions that differ in directory and name alone.
type kind struct {
	key      string
	model    *Session
	ready    []*worker // the oldest first
	sizes    map[*worker]int64
	making   int
	want     int
	quiet    int // ticks without demand
	failures int
	err      error      // of the last failure
	rests    time.Time  // until when nothing is tried
	parent   warm       // of workers that are forked
	starting sync.Mutex // held while the parent is started
	told     bool       // why its workers are executed
}

func (k *kind) bytes() (sum int64) {
	for _, n := range k.sizes {
		sum += n
	}
	return sum + k.parent.bytes
}

// remove takes a worker off the list; the caller holds the lock.
func (k *kind) remove(w *worker) {
	k.ready = slices.DeleteFunc(k.ready, func(o *worker) bool { return o == w })
	delete(k.sizes, w)
}

// kind returns the one with this key, made when there is none; the caller holds the
// lock.
func (st *Stock) kind(key string, model *Session) *kind {
	k := st.kinds[key]
	if k == nil {
		k = &kind{key: key, model: model, want: st.options.Min, sizes: map[*worker]int64{}}
		st.kinds[key] = k
	}
	return k
}

func (st *Stock) poke() {
	select {
	case st.work <- struct{}{}:
	default:
	}
}

// take returns a worker for a session with its directory attached, or nil when the
// session has to start one, and the parent that can fork it, if there is one. Who gets a
// worker calls given when it is ready, or has failed.
func (st *Stock) take(s *Session) (*worker, *jail.Parent) {
	if st == nil {
		return nil, nil
	}
	model, key, bind, err := st.model(s)
	if err != nil {
		st.mu.Lock()
		st.stats.Unfit++
		st.stats.Why = err.Error()
		st.mu.Unlock()
		return nil, nil
	}
	for {
		w, parent := st.pop(key, model)
		if w == nil {
			return nil, parent
		}
		err := w.leave(s, bind)
		if err == nil {
			st.mu.Lock()
			st.stats.Given++
			st.mu.Unlock()
			return w, nil
		}
		if !errors.Is(err, errStale) {
			st.failed(nil, fmt.Errorf("stock: worker for %s: %w", s.name, err))
		}
		st.drop(w)
		st.given()
	}
}

// given ends the wait of making for a worker that take has returned. Filling up while a
// session waits for its worker would take that session's processor: on two of them handing
// out took a quarter longer so.
func (st *Stock) given() {
	st.mu.Lock()
	st.giving--
	st.mu.Unlock()
	st.poke()
}

// pop takes the oldest worker of a kind that still runs; where there is none, the kind's
// parent is what it has.
func (st *Stock) pop(key string, model *Session) (*worker, *jail.Parent) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil, nil
	}
	k := st.kind(key, model)
	k.quiet = 0
	for len(k.ready) > 0 {
		w := k.ready[0]
		k.remove(w)
		select {
		case <-w.proc.Done():
			st.dropLocked(w)
		default:
			if len(k.ready) == 0 {
				k.want = min(k.want+1, st.options.Max)
			}
			st.giving++
			return w, nil
		}
	}
	k.want = min(k.want+1, st.options.Max)
	st.stats.Missed++
	st.poke()
	return nil, k.parent.Parent
}

// failed counts and tells of an error; of a kind's own it remembers it.
func (st *Stock) failed(k *kind, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.stats.Failed++
	st.stats.Why = err.Error()
	if k != nil {
		k.failures++
		k.err, k.rests = err, time.Now().Add(stockRetry)
	}
	if st.options.Log != nil {
		fmt.Fprintln(st.options.Log, err)
	}
}

// drop ends a worker that no session gets.
func (st *Stock) drop(w *worker) {
	st.mu.Lock()
	if !st.closed {
		defer st.mu.Unlock()
		st.dropLocked(w)
		return
	}
	st.mu.Unlock()
	w.discard() // Close may have waited already
}

// dropLocked does not wait for the end. The caller holds the lock, and the stock is open.
func (st *Stock) dropLocked(w *worker) {
	st.running.Add(1)
	go func() {
		defer st.running.Done()
		w.discard()
	}()
}

// make makes workers until the stock is closed.
func (st *Stock) make(ctx context.Context) {
	defer st.running.Done()
	for {
		for st.makeOne(ctx) {
		}
		select {
		case <-ctx.Done():
			return
		case <-st.work:
		}
	}
}

// tick lets go of what nobody asks for, until the stock is closed.
func (st *Stock) tick(ctx context.Context) {
	defer st.running.Done()
	every := time.NewTicker(stockTick)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			st.letGo()
		}
	}
}

// makeOne makes the worker that is missed most, and says whether it has tried.
func (st *Stock) makeOne(ctx context.Context) bool {
	st.mu.Lock()
	k := st.missing()
	if k == nil || ctx.Err() != nil {
		st.mu.Unlock()
		return false
	}
	k.making++
	st.mu.Unlock()
	// Others may make another one meanwhile.
	st.poke()

	w, size, err := st.makeOf(ctx, k)
	if errors.Is(err, errStale) {
		st.mu.Lock()
		delete(st.kinds, k.key) // sessions have another one from now on
		k.releaseParent()
		for _, w := range k.ready {
			if !st.closed {
				st.dropLocked(w)
			}
		}
		if !st.closed {
			k.ready = nil
		}
		st.mu.Unlock()
	}
	st.mu.Lock()
	forgotten := st.kinds[k.key] != k // and its parent with it, which others were still using
	st.mu.Unlock()
	if err != nil && ctx.Err() == nil && (!forgotten || errors.Is(err, errStale)) {
		st.failed(k, fmt.Errorf("stock: make a worker: %w", err))
	}
	st.mu.Lock()
	k.making--
	kept := err == nil && !st.closed && st.kinds[k.key] == k
	if kept {
		st.stats.Made++
		k.ready = append(k.ready, w)
		k.sizes[w] = size
	}
	close(st.change)
	st.change = make(chan struct{})
	st.mu.Unlock()
	if err == nil && !kept {
		w.discard()
	}
	return true
}

// makeOf makes a worker of a kind and returns its memory. It is errStale when the host
// has changed so that a jail made now is of another kind.
func (st *Stock) makeOf(ctx context.Context, k *kind) (*worker, int64, error) {
	if key, err := st.keyOf(k.model); err != nil || key != k.key {
		return nil, 0, errors.Join(errStale, err)
	}
	limited, cancel := context.WithTimeout(ctx, k.model.opts.StartTimeout)
	defer cancel()
	w, err := st.makeWith(limited, k)
	if err != nil {
		return nil, 0, err
	}
	w.stock = true
	size, err := w.settle(k.model, k.model.opts.StartTimeout)
	if err == nil {
		if key, e := st.keyOf(k.model); e != nil || key != k.key {
			err = errors.Join(errStale, e)
		}
	}
	if err != nil {
		w.discard()
		return nil, 0, err
	}
	return w, size, nil
}

// makeWith makes a worker of a kind, with the kind's parent if it is to be forked. A parent
// that has ended is no reason to have none: the next one is started at once.
func (st *Stock) makeWith(ctx context.Context, k *kind) (*worker, error) {
	for again := true; ; again = false {
		model, err := st.withParent(ctx, k)
		if err != nil {
			return nil, err
		}
		w, err := makeWorker(ctx, model)
		if err == nil || !again || model.parent == nil || !model.parent.Ended() {
			return w, err
		}
	}
}

// missing is the kind that lacks most workers of those that memory allows, and none while
// a session waits for its own; the caller holds the lock.
func (st *Stock) missing() *kind {
	if st.giving > 0 {
		return nil
	}
	var found *kind
	most := 0
	var bytes, count int64
	for _, k := range st.kinds {
		bytes += k.bytes()
		count += int64(len(k.ready))
		for range k.making {
			bytes += expectedBytes
		}
	}
	if count > 0 && bytes+bytes/count > st.options.Budget || count == 0 && bytes+expectedBytes > st.options.Budget {
		return nil
	}
	for _, k := range st.kinds {
		if lacks := k.want - len(k.ready) - k.making; lacks > most && time.Now().After(k.rests) {
			found, most = k, lacks
		}
	}
	return found
}

// expectedBytes is what a worker is taken to need before it is measured.
const expectedBytes = 8 << 20

// letGo ends workers that nobody has asked for, and those that have ended themselves.
func (st *Stock) letGo() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return
	}
	for key, k := range st.kinds {
		for _, w := range slices.Clone(k.ready) {
			select {
			case <-w.proc.Done():
				k.remove(w)
				st.dropLocked(w)
			default:
			}
		}
		if k.quiet++; k.quiet > 1 {
			k.want = max(k.want-1, st.options.Min)
		}
		gone := k.quiet > stockForgets && k.making == 0
		for len(k.ready) > 0 && (gone || len(k.ready) > k.want) {
			w := k.ready[0]
			k.remove(w)
			st.dropLocked(w)
		}
		if gone {
			k.releaseParent()
			delete(st.kinds, key)
		}
	}
	st.poke()
}
