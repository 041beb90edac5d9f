package kernel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"cellblock/kernel/host"
)

// MismatchError says that a run did not ask what its checkpoint has answers for.
// The run was ended before it could do anything with another call's answer.
type MismatchError struct {
	Call      int    // number of the host call or question, from 1
	Want, Got string // what the checkpoint has, and what was asked
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("run: the checkpoint does not fit: call %d was %s, and is %s now", e.Call, e.Want, e.Got)
}

// The states of a decision.
const (
	stateAsked = "asked" // nothing has been done
	stateBegun = "begun" // a tool has the call, or had it
	stateDone  = "done"  // the outcome is known
)

// decision is what became of one host call or question of a run.
type decision struct {
	Tool   string          `json:"tool"`
	Digest string          `json:"digest"` // of tool and arguments
	State  string          `json:"state"`
	Hidden bool            `json:"hidden,omitempty"` // getpass(): its answer is not kept
	Value  json.RawMessage `json:"value,omitempty"`
	Error  *host.Error     `json:"error,omitempty"`
	// Approvals are answers to the question whether it may be carried out.
	Approvals []approval `json:"approvals,omitempty"`
}

type approval struct {
	Digest   string    `json:"digest"` // of tool, arguments and action
	Approved bool      `json:"approved"`
	Expires  time.Time `json:"expires"`
}

// checkpoint is the form in which decisions are kept.
type checkpoint struct {
	Version   int         `json:"version"`
	Code      string      `json:"codeSha256"` // of the call's code and purpose
	Decisions []*decision `json:"decisions"`
}

const checkpointVersion = 1

// maxCheckpoint bounds what is read of a checkpoint, in bytes.
const maxCheckpoint = 256 << 20

// Bounds of what a run keeps for its checkpoint, beside what it began with, in bytes: a
// cell makes as many calls as it likes. decisionBytes is what a decision needs that says
// nothing yet, about.
const (
	maxJournal    = 64 << 20
	decisionBytes = 512
)

// journal is what was decided in a run, in the order of its calls.
type journal struct {
	mu    sync.Mutex
	point checkpoint
	next  int    // number of calls that this run has made
	kept  int    // decisions that came from a checkpoint
	bytes int    // of the others
	none  string // why there is no checkpoint; empty while there is one
}

// grow counts what is kept, and gives all of it up when it is too much: a checkpoint
// with a gap would have calls done again. The caller holds mu.
func (j *journal) grow(n int) {
	if j.none != "" {
		return
	}
	if j.bytes += n; j.bytes > maxJournal {
		j.forgo(fmt.Sprintf("its decisions have more than %d bytes", maxJournal))
	}
}

// forgo gives the checkpoint up. What the run began with answers its calls as before.
func (j *journal) forgo(why string) {
	j.none, j.bytes = why, 0
	j.point.Decisions = slices.Clone(j.point.Decisions[:j.kept])
}

// bytesOf is what an outcome adds to a decision.
func bytesOf(value json.RawMessage, failed *host.Error) int {
	if failed == nil {
		return len(value)
	}
	return len(value) + len(failed.Message) + len(failed.Fields)
}

func codeOf(c Call) string {
	sum := sha256.Sum256([]byte(c.Purpose + "\x00" + c.Code))
	return hex.EncodeToString(sum[:])
}

func (j *journal) begin(c Call) {
	j.point = checkpoint{Version: checkpointVersion, Code: codeOf(c), Decisions: []*decision{}}
	j.refrain(c)
}

// refrain keeps nothing of a call of which nobody wants a checkpoint.
func (j *journal) refrain(c Call) {
	if c.NoCheckpoint {
		j.forgo("its call wants none (NoCheckpoint)")
	}
}

// Checkpoint returns what was decided so far, as JSON: the answers to input() and
// to host calls, approvals, and the outcomes of calls of tools. It holds what those
// say, passwords excepted, and is the host's to keep; RunFrom takes it. There is none,
// and an error, of a run that was decided more of than 64 MiB, and of a call with
// NoCheckpoint.
func (r *Run) Checkpoint() ([]byte, error) {
	if !r.driven {
		return nil, errors.New("run: only one that takes steps has decisions")
	}
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	if r.journal.none != "" {
		return nil, fmt.Errorf("run: there is no checkpoint: %s", r.journal.none)
	}
	return json.Marshal(r.journal.point)
}

// RunFrom begins a call again from its beginning, in a session whose state is that
// from which it began first. What the checkpoint has an outcome of is not done and
// not asked again: in the same order, the same calls get the same answers. A call
// that was begun when the checkpoint was made, and whose outcome it has not, is
// asked about (AskIndeterminate). The policy decides on every call as it does on a
// new one. The error is that of a checkpoint that cannot be read, or is another
// call's; a call that differs ends the run with a *MismatchError.
func (s *Session) RunFrom(ctx context.Context, c Call, saved []byte) (*Run, error) {
	point, err := readCheckpoint(c, saved)
	if err != nil {
		return nil, err
	}
	r := newRun(ctx, s, c, true)
	r.journal.point, r.journal.kept = point, len(point.Decisions)
	r.journal.refrain(c)
	go r.play()
	return r, nil
}

// readCheckpoint reads one that is c's.
func readCheckpoint(c Call, saved []byte) (point checkpoint, err error) {
	if len(saved) > maxCheckpoint {
		return point, fmt.Errorf("run: a checkpoint of %d bytes; %d are the most", len(saved), maxCheckpoint)
	}
	if err := json.Unmarshal(saved, &point); err != nil {
		return point, fmt.Errorf("run: checkpoint: %w", err)
	}
	switch {
	case point.Version != checkpointVersion:
		return point, fmt.Errorf("run: checkpoint: version %d, want %d", point.Version, checkpointVersion)
	case point.Code != codeOf(c):
		return point, errors.New("run: checkpoint: it is that of another code or purpose")
	}
	for i, d := range point.Decisions {
		if d == nil || d.State != stateAsked && d.State != stateBegun && d.State != stateDone {
			return point, fmt.Errorf("run: checkpoint: call %d has no state", i+1)
		}
	}
	return point, nil
}

// decide gives the next call its decision: a new one, or that of the checkpoint.
func (r *Run) decide(tool string, arguments json.RawMessage, hidden bool) (*decision, error) {
	if !r.drives() {
		return nil, nil
	}
	r.mu.Lock()
	failed := r.failed
	r.mu.Unlock()
	if failed != nil { // it is being ended, and makes no further call
		return nil, failed
	}
	j := &r.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	digest := host.Digest(tool, arguments, nil)
	if j.next++; j.next > j.kept {
		d := &decision{Tool: tool, Digest: digest, State: stateAsked, Hidden: hidden}
		if j.none == "" {
			j.point.Decisions = append(j.point.Decisions, d)
			j.grow(decisionBytes + len(tool))
		}
		return d, nil
	}
	d := j.point.Decisions[j.next-1]
	if d.Tool != tool || d.Digest != digest {
		got := tool
		if d.Tool == tool {
			got += " with other arguments"
		}
		return nil, &MismatchError{Call: j.next, Want: d.Tool, Got: got}
	}
	return d, nil
}

// rest says in the result what the checkpoint had answers for, and nobody asked.
func (j *journal) rest(result *Result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if left := j.kept - j.next; left > 0 {
		result.Details.Notes = append(result.Details.Notes, fmt.Sprintf("the checkpoint has %d more decisions, which nobody has asked for", left))
	}
}

// look returns a decision as it stands.
func (j *journal) look(d *decision) (state string, value json.RawMessage, failed *host.Error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return d.State, d.Value, d.Error
}

// line is a question's known answer.
func (j *journal) line(d *decision) (text string, known bool, err error) {
	state, value, failed := j.look(d)
	switch {
	case state != stateDone:
		return "", false, nil
	case failed != nil:
		return "", true, failed
	}
	err = json.Unmarshal(value, &text)
	return text, true, err
}

func (j *journal) set(d *decision, state string, value json.RawMessage, failed *host.Error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if d.Hidden {
		return
	}
	was := bytesOf(d.Value, d.Error)
	d.State, d.Value, d.Error = state, value, failed
	j.grow(bytesOf(value, failed) - was)
}

func (j *journal) start(d *decision) { j.set(d, stateBegun, nil, nil) }
func (j *journal) wait(d *decision)  { j.set(d, stateAsked, nil, nil) }

// outcome keeps what became of a call. One that was cancelled in the middle stays
// one that was begun.
func (j *journal) outcome(ctx context.Context, d *decision, value json.RawMessage, err error) (json.RawMessage, error) {
	var failed *host.Error
	switch {
	case err == nil:
		if len(value) == 0 {
			value = json.RawMessage("null")
		}
	case ctx.Err() != nil:
		return value, err
	case !errors.As(err, &failed):
		failed = &host.Error{Type: "HostError", Code: host.CodeFailed, Message: err.Error()}
	}
	j.set(d, stateDone, value, failed)
	return value, err
}

// approve keeps an answer for exactly what was asked about.
func (j *journal) approve(d *decision, a host.Approval, approved bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	d.Approvals = append(d.Approvals, approval{a.Digest, approved, a.Expires})
	j.grow(decisionBytes)
}

// approved is the answer that a checkpoint has. A permission holds for what was
// carried out with it, or until it expires.
func (j *journal) approved(d *decision, a host.Approval) (approved, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := len(d.Approvals) - 1; i >= 0; i-- {
		if p := d.Approvals[i]; p.Digest == a.Digest {
			return p.Approved, !p.Approved || d.State != stateAsked || time.Now().Before(p.Expires)
		}
	}
	return false, false
}
