package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"cellblock/policy"
	"cellblock/policy/audit"
)

// This file says what stands in each record of a session's life.

// event is a record about a worker, which may be nil.
func (s *Session) event(w *worker, op string) audit.Record {
	r := audit.Record{Time: time.Now(), Op: op, Source: audit.SourceKernel}
	if w != nil {
		r.Generation, r.Program = w.generation, w.python
		if w.proc != nil {
			r.PID = w.proc.Pid()
		}
	}
	return r
}

// recordStart is the first record of a generation. The worker's jail stands and
// has been witnessed; no cell and no skill has run.
func (s *Session) recordStart(w *worker) error {
	if s.record == nil {
		return nil
	}
	record := s.event(w, audit.OpWorkerStart)
	if !s.record.began {
		record.Op = audit.OpSessionStart
	}
	i := s.infoOf(w)
	record.Facts = map[string]any{
		"directory": i.Directory, "home": s.home, "state": s.opts.State, "tier": i.Tier, "mode": i.Mode, "profile": s.opts.Profile, "digests": i.Digests,
		"limits": i.Limits, "degraded": i.Degraded, "witness": i.Witness, "network": s.policy.Network.Mode,
	}
	if i.Stock {
		record.Facts["stock"] = true
	}
	if len(i.Inbound) > 0 {
		record.Facts["inbound"] = i.Inbound
	}
	err := s.record.before(record)
	if err == nil {
		s.record.mu.Lock()
		s.record.began = true
		s.record.mu.Unlock()
	}
	return err
}

// recordFailure tells that no worker could be started.
func (s *Session) recordFailure(generation int, cause error) {
	record := s.event(nil, audit.OpWorkerFail)
	record.Generation, record.Decision, record.Reason = generation, audit.Incomplete, cause.Error()
	_ = s.record.write(record) // nothing was done; the loss is counted
}

// recordEnd tells why a worker is gone, after what was still to be told of it.
func (s *Session) recordEnd(w *worker, why string, before ...audit.Record) {
	record := s.event(w, audit.OpWorkerEnd)
	record.Reason = why
	_ = s.record.write(append(before, record)...) // done already; the loss is counted and said
}

// step records a reset or a reload, runs it and records what came of it.
func (s *Session) step(w *worker, op string, run func() Result) Result {
	if err := s.record.before(s.event(w, op)); err != nil {
		return s.failed(ToolError, err.Error(), nil)
	}
	r := run()
	end := s.event(w, op+".end")
	end.Facts = outcomeOf(r)
	_ = s.record.write(end)
	return r
}

// outcomeOf says how a call ended, without any text that a cell chose.
func outcomeOf(r Result) map[string]any {
	facts := map[string]any{"status": r.Details.Status}
	if e := r.Details.Error; e != nil {
		facts["error"] = e.Name
		if e.Cause != "" {
			facts["cause"] = e.Cause
		}
	}
	return facts
}

// cellEvent is a record about a cell.
func (s *Session) cellEvent(w *worker, number int, op string) audit.Record {
	r := s.event(w, op)
	r.Cell, r.Scope = number, s.scope(number)
	return r
}

func (s *Session) scope(number int) string { return fmt.Sprintf("%s/%d", s.name, number) }

// recordCell is the record before a cell. Its code is named by its digest: it
// may hold what nobody wants in a log.
func (s *Session) recordCell(w *worker, number int, c Call, limit time.Duration) error {
	if s.record == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(c.Code))
	record := s.cellEvent(w, number, audit.OpCellStart)
	record.Facts = map[string]any{"codeSha256": hex.EncodeToString(sum[:]), "codeBytes": len(c.Code), "timeoutMs": limit.Milliseconds()}
	if c.Purpose != "" {
		record.Facts["purpose"] = c.Purpose
	}
	if c.restoring {
		record.Facts["restores"] = true
	}
	return s.record.before(record)
}

// recordResult closes a cell: what the policy does not allow, and how it ended.
func (s *Session) recordResult(w *worker, number int, r Result) {
	if s.record == nil {
		return
	}
	out := append(s.deniedEvents(w, number, r.Details.Policy.Violations), s.record.counted()...)
	end := s.cellEvent(w, number, audit.OpCellEnd)
	end.Facts = outcomeOf(r)
	end.Facts["durationMs"] = r.Details.DurationMs
	if e := r.Details.Error; e != nil {
		end.Reason = e.Cause
	}
	_ = s.record.write(append(out, end)...) // the cell has run; the loss is counted and said
}

// deniedEvents are the records of what the policy does not allow, of a cell unless
// one is known better.
func (s *Session) deniedEvents(w *worker, number int, denied []Violation) []audit.Record {
	var flood audit.Merger
	var out []audit.Record
	for _, v := range denied {
		op := v.Op
		if v.Source == string(audit.SourceDeclared) {
			// A module's own word could be that of another record.
			op = string(policy.ParseKind(op))
		}
		record := s.event(w, op)
		record.Cell = number
		if v.Cell > 0 {
			record.Cell = v.Cell
		}
		record.Scope = s.scope(record.Cell)
		record.Target, record.Decision, record.Rule, record.Reason, record.Source = v.Path, v.Decision, v.Rule, v.Reason, audit.Source(v.Source)
		if v.Program != "" {
			record.Program, record.PID = v.Program, v.PID
		}
		if v.Count > 1 {
			record.Count = int64(v.Count)
		}
		record.Facts = map[string]any{}
		if op != v.Op {
			record.Facts["word"] = v.Op
		}
		if v.Line > 0 {
			record.Facts["line"] = v.Line
		}
		if len(v.Nearest) > 0 {
			record.Facts["nearest"] = v.Nearest
		}
		if v.creates {
			record.Facts[audit.FactCreates] = true
		}
		if v.replaces {
			record.Facts[audit.FactReplaces] = true
		}
		if v.addr != "" {
			record.Facts[audit.FactAddr] = v.addr
		}
		if v.proto != "" {
			record.Facts[audit.FactProto] = v.proto
		}
		if first, now := flood.Add(record); now {
			out = append(out, first)
		}
	}
	return append(out, flood.Flush()...)
}

// unreported are the records of what was seen of a worker after its last reply.
func (s *Session) unreported(w *worker) []audit.Record {
	if s.record == nil {
		return nil
	}
	s.mu.Lock()
	number := s.cells
	s.mu.Unlock()
	return s.deniedEvents(w, number, s.seen(w, nil))
}

// recordControl tells that somebody stops what runs.
func (s *Session) recordControl(w *worker, op, why string) {
	if s.record == nil {
		return
	}
	record := s.event(w, op)
	s.mu.Lock()
	record.Cell = s.cells
	s.mu.Unlock()
	record.Reason = why
	_ = s.record.write(record) // stopping is never refused
}

// hostEvent is a record about a worker's call to the host.
func (s *Session) hostEvent(w *worker, op, name, decision string) audit.Record {
	s.mu.Lock()
	number := s.cells
	s.mu.Unlock()
	r := s.cellEvent(w, number, op)
	r.Source, r.Target, r.Decision = audit.SourceHost, name, decision
	return r
}
