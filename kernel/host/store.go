package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

// Evidence is something that can be referred to. Body is a JSON object of what else
// is known of it, or empty.
type Evidence struct {
	Ref  string
	Kind string
	Body json.RawMessage
}

// WorkItem is a piece of maintenance that a cell has asked for.
type WorkItem struct {
	ID        string
	Workspace string // items are seen from the workspace in which they began, alone
	Session   string
	Scope     string // of the cell
	Purpose   string // what it is for, in the cell's words
	Reason    string
	Evidence  []string        // references
	Impact    json.RawMessage // any JSON, or empty
	Created   time.Time
}

// Assessment is what a cell says became of a work item.
type Assessment struct {
	WorkItem  string
	Workspace string
	Session   string
	Scope     string
	Outcome   string
	Body      json.RawMessage // the whole of the arguments, an object
	Made      time.Time
}

// ErrNoWorkItem says that there is no work item of this id in this workspace.
var ErrNoWorkItem = errors.New("there is no work item of this id")

// Store is what the built-in methods answer from, and where they keep what cells
// tell. Its methods may be called from several goroutines.
type Store interface {
	// Evidence returns what is known of the references; those of which nothing is
	// known are left out.
	Evidence(ctx context.Context, refs []string) ([]Evidence, error)
	// Originate keeps a new work item.
	Originate(ctx context.Context, w WorkItem) error
	// Assess keeps an assessment. The error is ErrNoWorkItem where its workspace has
	// no such item.
	Assess(ctx context.Context, a Assessment) error
}

// NewWorkItemID makes an id that nobody can guess.
func NewWorkItemID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails
	return "w-" + hex.EncodeToString(b[:])
}

// ErrStoreFull says that what cells have told takes all the place there is for it.
var ErrStoreFull = errors.New("the store is full")

// maxMemory bounds what a MemoryStore keeps of cells' words, in bytes.
const maxMemory = 64 << 20

// MemoryStore is a Store that ends with the process. Its zero value is of no use.
type MemoryStore struct {
	mu          sync.Mutex
	evidence    map[string]Evidence
	items       []WorkItem
	assessments []Assessment
	bytes       int // of items and assessments
}

// NewMemoryStore makes an empty one.
func NewMemoryStore() *MemoryStore { return &MemoryStore{evidence: map[string]Evidence{}} }

// Put lets cells refer to something, in place of what its reference stood for.
func (m *MemoryStore) Put(e Evidence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evidence[e.Ref] = e
}

// Evidence implements Store.
func (m *MemoryStore) Evidence(_ context.Context, refs []string) ([]Evidence, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Evidence
	for _, ref := range refs {
		if e, ok := m.evidence[ref]; ok {
			found = append(found, e)
		}
	}
	return found, nil
}

// Originate implements Store.
func (m *MemoryStore) Originate(_ context.Context, w WorkItem) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := len(w.ID) + len(w.Purpose) + len(w.Reason) + len(w.Impact)
	for _, ref := range w.Evidence {
		size += len(ref)
	}
	if !m.room(size) {
		return ErrStoreFull
	}
	m.items = append(m.items, w)
	return nil
}

// Assess implements Store.
func (m *MemoryStore) Assess(_ context.Context, a Assessment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.ContainsFunc(m.items, func(w WorkItem) bool { return w.ID == a.WorkItem && w.Workspace == a.Workspace }) {
		return ErrNoWorkItem
	}
	if !m.room(len(a.WorkItem) + len(a.Body)) {
		return ErrStoreFull
	}
	m.assessments = append(m.assessments, a)
	return nil
}

// room takes place for something new of this size. The caller holds the lock.
func (m *MemoryStore) room(size int) bool {
	const around = 256 // what a record takes beside its texts
	if m.bytes+size+around > maxMemory {
		return false
	}
	m.bytes += size + around
	return true
}

// WorkItems lists the items, the oldest first.
func (m *MemoryStore) WorkItems() []WorkItem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.items)
}

// Assessments lists what was said of an item, the oldest first.
func (m *MemoryStore) Assessments(item string) []Assessment {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Assessment
	for _, a := range m.assessments {
		if a.WorkItem == item {
			found = append(found, a)
		}
	}
	return found
}
