package audit

import (
	"log/slog"
	"time"
)

// Source says who saw what a record tells.
type Source string

// The sources.
const (
	SourceOS       Source = "os"       // Linux: a system call that was observed or refused
	SourceHook     Source = "hook"     // the interpreter's audit hook
	SourceDeclared Source = "declared" // a module, by its own word
	SourceHost     Source = "host"     // a call of the worker to the launcher, or a command on the host
	SourceKernel   Source = "kernel"   // the launcher itself: the session's life
)

// The decisions of a record; empty for an event that nobody decided.
const (
	Allowed    = "allowed"
	Denied     = "denied"
	WouldDeny  = "would be denied"
	Incomplete = "failed" // allowed, and did not come about
)

// Operations of the session's own life. Those of the file system have the names
// of policy.OpKind.
const (
	OpSessionStart = "session.start" // facts: digests, tier, mode, limits, degraded, witness
	OpSessionEnd   = "session.end"
	OpWorkerStart  = "worker.start" // a later generation; facts as for session.start
	OpWorkerFail   = "worker.fail"
	OpWorkerEnd    = "worker.end" // reason: the cause of death
	OpCellStart    = "cell.start"
	OpCellEnd      = "cell.end"
	OpReset        = "reset"
	OpResetEnd     = "reset.end"
	OpReload       = "reload"
	OpReloadEnd    = "reload.end"
	OpInterrupt    = "interrupt"
	OpAbort        = "abort"
	OpHostCall     = "host.call"
	OpHostReturn   = "host.return"
	OpRepair       = "audit.repair" // what Open found and cut off
	OpGap          = "audit.gap"    // records that could not be written; count says how many
	OpOther        = "other"        // of a flood: operations that are only counted

	// Of the commands about layers.
	OpShadowCommit  = "shadow.commit"  // begins; facts: layer, directory, paths and options
	OpShadowCarry   = "shadow.carry"   // one change, about to be made on the host, or not carried over
	OpShadowDiscard = "shadow.discard" // begins; facts: layer, directory, changes
	OpShadowDrop    = "shadow.drop"    // one change, about to be dropped
	OpShadowEnd     = "shadow.end"     // reason: the error; facts: done, refused, left, removed
)

// Record is one decision or one event.
type Record struct {
	// Seq numbers the records of a file from 1. Append sets it.
	Seq int64 `json:"seq"`
	// Time is when it happened; Append sets it when it is zero.
	Time       time.Time `json:"time"`
	Session    string    `json:"session,omitempty"`
	Generation int       `json:"generation,omitempty"`
	Cell       int       `json:"cell,omitempty"`
	Scope      string    `json:"scope,omitempty"`
	// PID is the process's number on the host, Program its executable.
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	// Op is what was done or attempted.
	Op string `json:"op"`
	// Target is the canonical path or address. In a log, bytes that are not UTF-8 stand as
	// \xNN: [Unescape] says which.
	Target   string `json:"target,omitempty"`
	Decision string `json:"decision,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Source   Source `json:"source"`
	// Count is how many times, where the record stands for several; else 0.
	Count int64 `json:"count,omitempty"`
	// Policy are the first 16 digits of the policy's digest.
	Policy string `json:"policy,omitempty"`
	// Facts are what else is known: values that encoding/json can write.
	Facts map[string]any `json:"facts,omitempty"`
	// Prev is the SHA-256 of the line before, without its line feed; [Genesis]
	// in the first record. Append sets it.
	Prev string `json:"prev"`
}

// Genesis is the hash before the first record.
const Genesis = "0000000000000000000000000000000000000000000000000000000000000000"

// Bounds of a record, in bytes. Longer texts are cut, and end in what says so.
const (
	MaxLine   = 1 << 20 // a whole line; Append refuses a longer one
	maxTarget = 8192    // two paths of PATH_MAX
	maxText   = 4096
)

// Times is how often it happened.
func (r Record) Times() int64 { return max(r.Count, 1) }

// Denial reports whether the policy does not allow what r tells.
func (r Record) Denial() bool { return r.Decision == Denied || r.Decision == WouldDeny }

// LogValue groups what is set, for log/slog.
func (r Record) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 12)
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	number := func(key string, value int64) {
		if value != 0 {
			attrs = append(attrs, slog.Int64(key, value))
		}
	}
	number("seq", r.Seq)
	text("session", r.Session)
	number("generation", int64(r.Generation))
	number("cell", int64(r.Cell))
	text("scope", r.Scope)
	number("pid", int64(r.PID))
	text("program", r.Program)
	text("op", r.Op)
	text("target", r.Target)
	text("decision", r.Decision)
	text("rule", r.Rule)
	text("reason", r.Reason)
	text("source", string(r.Source))
	number("count", r.Count)
	text("policy", r.Policy)
	if len(r.Facts) > 0 {
		attrs = append(attrs, slog.Any("facts", r.Facts))
	}
	return slog.GroupValue(attrs...)
}
