package extension

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"cellblock/kernel/host"
)

// order lets one call at a time into each extension, in the order in which they
// came, and refuses a call that would wait for itself.
type order struct {
	mu      sync.Mutex
	held    map[string]bool
	waiting map[string][]*waiter // by the extension that they wait for
}

// waiter is a call that waits; holds are the extensions whose handlers wait for it.
type waiter struct {
	holds []string
	turn  chan struct{} // closed when it is its turn
}

func newOrder() *order {
	return &order{held: map[string]bool{}, waiting: map[string][]*waiter{}}
}

// extensionOf is the extension that a tool's name belongs to.
func extensionOf(tool string) string {
	name, _, _ := strings.Cut(tool, ".")
	return name
}

// enter waits for the extension's turn. The error is an *host.Error, or ctx's. Who
// gets none leaves.
func (o *order) enter(ctx context.Context, extension string, chain []string) error {
	o.mu.Lock()
	holds := make([]string, 0, len(chain))
	for _, tool := range chain {
		holds = append(holds, extensionOf(tool))
	}
	if o.waitsFor(extension, holds) {
		o.mu.Unlock()
		return &host.Error{Type: "HostError", Code: host.CodeReentrant,
			Message: fmt.Sprintf("extension %s: a handler of it waits for this call (%s)", extension, strings.Join(chain, " → "))}
	}
	if !o.held[extension] {
		o.held[extension] = true
		o.mu.Unlock()
		return nil
	}
	w := &waiter{holds: holds, turn: make(chan struct{})}
	o.waiting[extension] = append(o.waiting[extension], w)
	o.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, other := range o.waiting[extension] {
		if other == w {
			o.waiting[extension] = append(o.waiting[extension][:i:i], o.waiting[extension][i+1:]...)
			return ctx.Err()
		}
	}
	return nil // its turn came at the same moment
}

// leave lets the next one in.
func (o *order) leave(extension string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := o.waiting[extension]
	if len(next) == 0 {
		delete(o.held, extension)
		delete(o.waiting, extension)
		return
	}
	o.waiting[extension] = next[1:]
	close(next[0].turn)
}

// waitsFor reports whether the handler that runs in an extension waits, directly or
// through others, for one of those that hold. The caller has the lock.
func (o *order) waitsFor(extension string, holds []string) bool {
	if len(holds) == 0 {
		return false
	}
	seen := map[string]bool{}
	var reaches func(string) bool
	reaches = func(name string) bool {
		for _, h := range holds {
			if h == name {
				return true
			}
		}
		if seen[name] {
			return false
		}
		seen[name] = true
		for target, waiters := range o.waiting {
			for _, w := range waiters {
				for _, h := range w.holds {
					if h == name && reaches(target) {
						return true
					}
				}
			}
		}
		return false
	}
	return reaches(extension)
}
