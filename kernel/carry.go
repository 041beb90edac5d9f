package kernel

import (
	"fmt"

	"cellblock/kernel/shadow"
	"cellblock/policy/audit"
)

// CommitLayer carries a layer over to the host, and records it: what was asked for,
// each change before it is made, what was not carried over and why, and the end. What
// cannot be recorded is not made. Without a log, and for a dry run, nothing is recorded.
// The error is [shadow.Layer.Commit]'s, or that of the log.
func CommitLayer(l *shadow.Layer, o shadow.CommitOptions, log *audit.Log) (shadow.Commit, error) {
	if log == nil || o.DryRun {
		return l.Commit(o)
	}
	r := carrier{l, log}
	facts := map[string]any{"layer": l.ID, "directory": l.Directory, "skip_conflicts": o.SkipConflicts, "executable": o.Executable, "set_id": o.SetID}
	if len(o.Paths) > 0 {
		facts["paths"] = o.Paths
	}
	if err := r.write(audit.Record{Op: audit.OpShadowCommit, Facts: facts}); err != nil {
		return shadow.Commit{Layer: l.ID, Session: l.Session, Done: []shadow.Change{}, Refused: []shadow.Refused{}}, err
	}
	begun := map[string]bool{}
	o.Before = func(c shadow.Change) error {
		begun[c.Path] = true
		return r.write(changeRecord(audit.OpShadowCarry, c))
	}
	res, err := l.Commit(o)
	var refused []audit.Record
	for _, no := range res.Refused {
		decision := audit.Denied
		if begun[no.Path] {
			decision = audit.Incomplete
		}
		refused = append(refused, audit.Record{Op: audit.OpShadowCarry, Target: no.Path, Decision: decision, Reason: no.Why, Facts: map[string]any{"kind": no.Kind}})
	}
	end := audit.Record{Op: audit.OpShadowEnd, Facts: map[string]any{"done": len(res.Done), "refused": len(res.Refused), "left": res.Left, "removed": res.Removed}}
	return res, r.end(append(refused, end), err)
}

// DiscardLayer drops a layer, and records what was in it before it goes: what cannot be
// recorded stays. Without a log nothing is recorded. The error is
// [shadow.Layer.Discard]'s, or that of the log.
func DiscardLayer(l *shadow.Layer, log *audit.Log) error {
	if log == nil {
		return l.Discard(nil)
	}
	r := carrier{l, log}
	err := l.Discard(func(d shadow.Diff) error {
		records := []audit.Record{{Op: audit.OpShadowDiscard, Facts: map[string]any{"layer": l.ID, "directory": l.Directory, "changes": len(d.Changes)}}}
		for _, c := range d.Changes {
			records = append(records, changeRecord(audit.OpShadowDrop, c))
		}
		for _, u := range d.Unread {
			records = append(records, audit.Record{Op: audit.OpShadowDrop, Target: u.Path, Decision: audit.Allowed, Reason: "not looked at: " + u.Why})
		}
		return r.write(records...)
	})
	return r.end([]audit.Record{{Op: audit.OpShadowEnd, Facts: map[string]any{"removed": err == nil}}}, err)
}

// carrier writes the records of a command about one layer.
type carrier struct {
	layer *shadow.Layer
	log   *audit.Log
}

func (r carrier) write(records ...audit.Record) error {
	for i := range records {
		records[i].Session, records[i].Source = r.layer.Session, audit.SourceHost
	}
	if err := r.log.Append(records...); err != nil {
		return fmt.Errorf("%w; nothing is done to a layer that cannot be recorded", err)
	}
	return nil
}

// end writes the last records, of which the last says how it ended, and returns that.
func (r carrier) end(records []audit.Record, err error) error {
	if err != nil {
		records[len(records)-1].Reason = err.Error()
	}
	if failed := r.write(records...); err == nil {
		return failed
	}
	return err
}

func changeRecord(op string, c shadow.Change) audit.Record {
	facts := map[string]any{"kind": c.Kind}
	if c.From != "" {
		facts["from"] = c.From
	}
	if c.Flag != "" {
		facts["flag"] = c.Flag
	}
	return audit.Record{Op: op, Target: c.Path, Decision: audit.Allowed, Facts: facts}
}
