package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"cellblock/policy"
	"cellblock/policy/audit"
)

// recorder writes a session's audit records. A nil one belongs to a session
// without a log, and does nothing.
type recorder struct {
	log     *audit.Log
	strict  bool // what cannot be recorded is not done
	session string
	policy  string // the first 16 digits of its digest

	mu    sync.Mutex
	began bool  // a worker of this session stands in the log
	lost  int64 // records that could not be written, since the last one that could
	err   error // why
	calls audit.Merger
}

// auditDirectory is the canonical directory of a log; empty for none.
func auditDirectory(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("audit log %q: %w", path, err)
	}
	dir := filepath.Dir(abs)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real, nil
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		return filepath.Join(real, filepath.Base(dir)), nil
	}
	return dir, nil
}

// openRecord opens the session's log, when it has one.
func (s *Session) openRecord() error {
	if s.opts.Audit == "" {
		return nil
	}
	masks := audit.DefaultMasks()
	for _, v := range s.environment() {
		for i := range len(v) {
			if v[i] == '=' {
				if masks.Secret(v[:i]) {
					masks.Values = append(masks.Values, v[i+1:])
				}
				break
			}
		}
	}
	log, err := audit.Open(s.opts.Audit, audit.Options{Masks: masks, Sync: s.opts.AuditSync})
	if err != nil {
		return err
	}
	s.record = &recorder{log: log, strict: s.policy.Mode == policy.Enforce, session: s.name, policy: s.digest[:16]}
	return nil
}

func (r *recorder) path() string {
	if r == nil {
		return ""
	}
	return r.log.Path()
}

// write appends records. What cannot be written is counted, and the count is
// written before the next record that can be.
func (r *recorder) write(records ...audit.Record) error {
	if r == nil || len(records) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLocked(records)
}

func (r *recorder) writeLocked(records []audit.Record) error {
	if r.lost > 0 {
		gap := audit.Record{Op: audit.OpGap, Source: audit.SourceKernel, Count: r.lost, Reason: r.err.Error()}
		records = append([]audit.Record{gap}, records...)
	}
	for i := range records {
		records[i].Session, records[i].Policy = r.session, r.policy
	}
	err := r.log.Append(records...)
	if err == nil {
		r.lost, r.err = 0, nil
		return nil
	}
	for _, record := range records {
		if record.Op != audit.OpGap {
			r.lost += record.Times()
		}
	}
	r.err = err
	return err
}

// before writes the record of something that the launcher is about to do. An
// error means that it must not be done.
func (r *recorder) before(record audit.Record) error {
	if err := r.write(record); err != nil && r.strict {
		return fmt.Errorf("%w; under enforce nothing is done that cannot be recorded", err)
	}
	return nil
}

// refusedCall records a call to the host that was not permitted. A worker may
// make any number of them: equal ones are counted.
func (r *recorder) refusedCall(record audit.Record) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if first, now := r.calls.Add(record); now {
		_ = r.writeLocked([]audit.Record{first}) // refused already; the loss is counted
	}
}

// counted are the calls that refusedCall has only counted.
func (r *recorder) counted() []audit.Record {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls.Flush()
}

// noteIn adds to a reply what it says of records that could not be written.
func (r *recorder) noteIn(result *Result) {
	if note := r.note(); note != "" {
		result.Details.Notes = append(result.Details.Notes, note)
	}
}

// note is what a reply says of records that could not be written.
func (r *recorder) note() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost == 0 {
		return ""
	}
	note := fmt.Sprintf("%d audit records could not be written: %v", r.lost, r.err)
	if r.strict {
		note += "; the next call is refused unless it can be recorded"
	}
	return note
}

// close writes the last records and ends the log. One without a record is
// removed: nothing has happened.
func (r *recorder) close(last ...audit.Record) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost == 0 && r.log.Head().Count == 0 {
		last = nil
	}
	if len(last) > 0 && r.lost > 0 {
		last = append([]audit.Record{{Op: audit.OpGap, Source: audit.SourceKernel, Count: r.lost, Reason: r.err.Error()}}, last...)
	}
	for i := range last {
		last[i].Session, last[i].Policy = r.session, r.policy
	}
	err := r.log.Close(last...)
	if r.log.Head().Count == 0 {
		os.Remove(r.log.Path())
		os.Remove(r.log.Path() + audit.HeadSuffix)
	}
	return err
}
