// Package sqlite keeps evidence and work items in a file that outlives the process.
//
//	store, err := sqlite.Open(filepath.Join(state, "host.db"))
//	defer store.Close()
//	session, err := kernel.Open(kernel.Options{SessionDir: dir, Store: store})
//
// # Limitations
//
// It is a package of its own, so that who needs no file does not link SQLite. The
// file is to lie in a directory that is the caller's alone and that no session sees.
package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-sqlite3"

	"cellblock/kernel/host"
)

// maxPages bounds the file: SQLite's pages have 4096 bytes, and this is 1 GiB.
const maxPages = 1 << 18

// version of the tables, in SQLite's user_version.
const version = 1

const tables = `
CREATE TABLE evidence (ref TEXT PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE work_item (
	number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, workspace TEXT NOT NULL, session TEXT NOT NULL, scope TEXT NOT NULL,
	purpose TEXT NOT NULL, reason TEXT NOT NULL, evidence TEXT NOT NULL, impact TEXT NOT NULL, created_ms INTEGER NOT NULL);
CREATE TABLE assessment (
	number INTEGER PRIMARY KEY, work_item TEXT NOT NULL REFERENCES work_item (id), session TEXT NOT NULL, scope TEXT NOT NULL,
	outcome TEXT NOT NULL, body TEXT NOT NULL, made_ms INTEGER NOT NULL);
CREATE INDEX assessment_of ON assessment (work_item);
`

// Store is a host.Store in a file. Several processes may use one file.
type Store struct {
	path string

	mu     sync.Mutex
	db     *sql.DB // nil until something is asked
	closed bool
}

// Open names the file. It is opened, and made, when a cell first asks for something,
// so that a process that never does pays nothing; it is readable by its owner alone.
// The error says that the path is not absolute.
func Open(path string) (*Store, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("store %q: name an absolute path", path)
	}
	return &Store{path: path}, nil
}

// Close ends the use of the file.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.db == nil {
		return nil
	}
	db := s.db
	s.db = nil
	return db.Close()
}

// live opens the file on first use.
func (s *Store) live(ctx context.Context) (*sql.DB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("store %q: closed", s.path)
	}
	if s.db != nil {
		return s.db, nil
	}
	db, err := open(ctx, s.path)
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", s.path, err)
	}
	s.db = db
	return db, nil
}

func open(ctx context.Context, path string) (*sql.DB, error) {
	// Made first, since SQLite would make it with the mode that the umask leaves.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	file.Close()
	name := url.URL{Scheme: "file", Path: path, RawQuery: "_busy_timeout=5000&_foreign_keys=on&_journal_mode=WAL&_synchronous=NORMAL&_txlock=immediate"}
	db, err := sql.Open("sqlite3", name.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // one writer; calls are short
	if err := prepare(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func prepare(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", maxPages)); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it is over after Commit
	var has int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has); err != nil {
		return err
	}
	switch has {
	case version:
		return nil
	case 0:
	default:
		return fmt.Errorf("it has tables of version %d, this program knows %d: use the newer program", has, version)
	}
	if _, err := tx.ExecContext(ctx, tables+fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return err
	}
	return tx.Commit()
}

// Put lets cells refer to something, in place of what its reference stood for.
func (s *Store) Put(ctx context.Context, e host.Evidence) error {
	db, err := s.live(ctx)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "INSERT INTO evidence (ref, kind, body) VALUES (?, ?, ?) ON CONFLICT (ref) DO UPDATE SET kind = excluded.kind, body = excluded.body",
		e.Ref, e.Kind, string(e.Body))
	return told(err)
}

// Evidence implements host.Store.
func (s *Store) Evidence(ctx context.Context, refs []string) ([]host.Evidence, error) {
	db, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	var found []host.Evidence
	for _, ref := range refs {
		e := host.Evidence{Ref: ref}
		var body string
		err := db.QueryRowContext(ctx, "SELECT kind, body FROM evidence WHERE ref = ?", ref).Scan(&e.Kind, &body)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return nil, err
		}
		e.Body = json.RawMessage(body)
		found = append(found, e)
	}
	return found, nil
}

// Originate implements host.Store.
func (s *Store) Originate(ctx context.Context, w host.WorkItem) error {
	db, err := s.live(ctx)
	if err != nil {
		return err
	}
	refs, err := json.Marshal(w.Evidence)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `INSERT INTO work_item (id, workspace, session, scope, purpose, reason, evidence, impact, created_ms)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, w.ID, w.Workspace, w.Session, w.Scope, w.Purpose, w.Reason, string(refs), string(w.Impact), w.Created.UnixMilli())
	return told(err)
}

// Assess implements host.Store.
func (s *Store) Assess(ctx context.Context, a host.Assessment) error {
	db, err := s.live(ctx)
	if err != nil {
		return err
	}
	done, err := db.ExecContext(ctx, `INSERT INTO assessment (work_item, session, scope, outcome, body, made_ms)
		SELECT id, ?, ?, ?, ?, ? FROM work_item WHERE id = ? AND workspace = ?`,
		a.Session, a.Scope, a.Outcome, string(a.Body), a.Made.UnixMilli(), a.WorkItem, a.Workspace)
	if err != nil {
		return told(err)
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, host.ErrNoWorkItem)
	}
	return nil
}

// WorkItems lists the items, the oldest first.
func (s *Store) WorkItems(ctx context.Context) ([]host.WorkItem, error) {
	db, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT id, workspace, session, scope, purpose, reason, evidence, impact, created_ms FROM work_item ORDER BY number")
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong
	var found []host.WorkItem
	for rows.Next() {
		var w host.WorkItem
		var refs, impact string
		var created int64
		if err := rows.Scan(&w.ID, &w.Workspace, &w.Session, &w.Scope, &w.Purpose, &w.Reason, &refs, &impact, &created); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(refs), &w.Evidence); err != nil {
			return nil, fmt.Errorf("work item %s: its evidence: %w", w.ID, err)
		}
		w.Impact, w.Created = json.RawMessage(impact), time.UnixMilli(created)
		found = append(found, w)
	}
	return found, rows.Err()
}

// Assessments lists what was said of an item, the oldest first.
func (s *Store) Assessments(ctx context.Context, item string) ([]host.Assessment, error) {
	db, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, `SELECT a.work_item, w.workspace, a.session, a.scope, a.outcome, a.body, a.made_ms
		FROM assessment a JOIN work_item w ON w.id = a.work_item WHERE a.work_item = ? ORDER BY a.number`, item)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong
	var found []host.Assessment
	for rows.Next() {
		var a host.Assessment
		var body string
		var made int64
		if err := rows.Scan(&a.WorkItem, &a.Workspace, &a.Session, &a.Scope, &a.Outcome, &body, &made); err != nil {
			return nil, err
		}
		a.Body, a.Made = json.RawMessage(body), time.UnixMilli(made)
		found = append(found, a)
	}
	return found, rows.Err()
}

// told names the one error that a caller may want to know.
func told(err error) error {
	var e sqlite3.Error
	if errors.As(err, &e) && e.Code == sqlite3.ErrFull {
		return host.ErrStoreFull
	}
	return err
}
