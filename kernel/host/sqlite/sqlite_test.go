package sqlite

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cellblock/kernel/host"
)

func opened(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestWhatIsToldOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?#%", "host.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	s := opened(t, path)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store that nobody asks makes a file: %v", err)
	}
	ctx := t.Context()
	w := host.WorkItem{ID: host.NewWorkItemID(), Workspace: "/w", Session: "s", Scope: "s/1", Purpose: "p", Reason: "r'; DROP TABLE work_item; --",
		Evidence: []string{"a", "b"}, Impact: json.RawMessage(`{"n": 1}`), Created: time.UnixMilli(1000)}
	if err := errors.Join(s.Put(ctx, host.Evidence{Ref: "a", Kind: "x"}), s.Put(ctx, host.Evidence{Ref: "a", Kind: "log", Body: json.RawMessage(`{"z":1,"a":2}`)}), s.Originate(ctx, w)); err != nil {
		t.Fatal(err)
	}
	a := host.Assessment{WorkItem: w.ID, Workspace: "/w", Session: "s", Scope: "s/1", Outcome: "deferred", Body: json.RawMessage(`{"reason":"r"}`), Made: time.UnixMilli(2000)}
	if err := s.Assess(ctx, a); err != nil {
		t.Fatal(err)
	}
	for _, other := range []host.Assessment{{WorkItem: "w-0", Workspace: "/w"}, {WorkItem: w.ID, Workspace: "/other"}} {
		if err := s.Assess(ctx, other); !errors.Is(err, host.ErrNoWorkItem) {
			t.Errorf("%+v: %v", other, err)
		}
	}
	s.Close()
	if _, err := s.Evidence(ctx, []string{"a"}); err == nil {
		t.Error("a closed store answers")
	}
	for _, name := range []string{path, path + "-wal"} {
		if info, err := os.Stat(name); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v", name, info.Mode())
		}
	}
	s = opened(t, path)
	found, err := s.Evidence(ctx, []string{"none", "a"})
	if err != nil || len(found) != 1 || found[0].Kind != "log" || string(found[0].Body) != `{"z":1,"a":2}` {
		t.Errorf("%+v, %v", found, err)
	}
	items, err := s.WorkItems(ctx)
	if err != nil || len(items) != 1 || items[0].Reason != w.Reason || len(items[0].Evidence) != 2 || string(items[0].Impact) != `{"n": 1}` || !items[0].Created.Equal(w.Created) {
		t.Errorf("%+v, %v", items, err)
	}
	said, err := s.Assessments(ctx, w.ID)
	if err != nil || len(said) != 1 || said[0].Outcome != "deferred" || said[0].Workspace != "/w" {
		t.Errorf("%+v, %v", said, err)
	}
}

func TestSeveralMayUseOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.db")
	var all sync.WaitGroup
	for range 4 {
		s := opened(t, path)
		all.Go(func() {
			for range 25 {
				if err := s.Originate(t.Context(), host.WorkItem{ID: host.NewWorkItemID(), Workspace: "/w", Created: time.Now()}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if items, err := opened(t, path).WorkItems(t.Context()); err != nil || len(items) != 100 {
		t.Errorf("%d items, %v", len(items), err)
	}
}

func TestFilesThatCannotServe(t *testing.T) {
	if _, err := Open("host.db"); err == nil {
		t.Error("a relative path was taken")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"text": strings.Repeat("no database ", 1000)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := opened(t, path).Evidence(t.Context(), []string{"a"}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := opened(t, filepath.Join(dir, "none", "host.db")).Evidence(t.Context(), nil); err == nil {
		t.Error("a directory that is not there")
	}
	newer := filepath.Join(dir, "newer")
	s := opened(t, newer)
	db, err := s.live(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA user_version = 9"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := opened(t, newer).Evidence(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("newer tables: %v", err)
	}
}
