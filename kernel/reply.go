package kernel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cellblock/kernel/wire"
	"cellblock/policy"
)

// cellResult is what the launcher itself knows of a cell that has ended.
type cellResult struct {
	out        *cellOutput
	path       string // of the full output; empty when nothing was cut
	background []OutputRecord
	dropped    int64
	log        string
	limit      time.Duration
	took       time.Duration
}

// result is an empty, successful one.
func (s *Session) result(w *worker) Result {
	r := Result{Details: Details{
		Status: StatusOK, Session: s.name, Generation: s.generation, Tier: s.opts.Tier, Mode: s.policy.Mode,
		AuditPolicy: auditText(s.policy.Mode, 0, 0),
		Policy:      PolicyDetail{Mode: s.policy.Mode, Enforced: s.policy.Mode == policy.Enforce, Layer: s.layer.id(), Violations: []Violation{}},
	}}
	if w != nil {
		r.Details.Usage = w.proc.Usage()
	}
	return r
}

// failed is the result of a call that did not come to run, or did not come back.
func (s *Session) failed(name, value string, death *Death) Result {
	r := s.result(nil)
	r.IsError = true
	r.Details.Status = StatusError
	r.Details.Error = &ErrorDetail{Name: name, Value: value, Death: death}
	if death != nil {
		r.Details.Error.Cause = death.String()
	}
	r.Content = []Content{{Type: "text", Text: name + ": " + value}}
	return r
}

// refused is the result of a call for which no worker can be had.
func (s *Session) refused(err error) Result {
	r := s.failed(ToolError, err.Error(), nil)
	r.Details.Error.Missing = missingOf(err)
	return r
}

// died is the result of a cell whose worker is gone. What it printed is kept, and
// what it did.
func (s *Session) died(w *worker, why string, death Death, d cellResult) Result {
	var r Result
	switch why {
	case KernelTimeout:
		r = s.failed(KernelTimeout, timeoutText(d.limit), nil)
	case KernelKilled:
		r = s.failed(KernelKilled, "python kernel killed: aborted by the host", nil)
	default:
		value := fmt.Sprintf("python kernel exited (%s)", death)
		r = s.failed(KernelExited, value, &death)
	}
	r.Details.StateLost = true
	outside := r.Details.tell(s.seen(w, nil))
	r.Details.AuditPolicy = auditText(s.policy.Mode, len(outside), 0)
	log := d.log
	if d.out != nil {
		r.Details.Stdout, r.Details.Stderr = d.out.text[stdout].String(), d.out.text[stderr].String()
		r.Details.Outputs, r.Details.TruncatedBytes = d.out.outputs(), d.out.truncated
		r.Details.DurationMs = float64(d.took.Microseconds()) / 1000
		log = r.Details.Stderr
	}
	r.Details.Outputs = append(r.Details.Outputs, d.background...)
	text := []string{}
	if r.Details.Stdout != "" {
		text = append(text, strings.TrimSuffix(r.Details.Stdout, "\n"))
	}
	text = append(text, r.Details.Error.Name+": "+r.Details.Error.Value)
	if log != "" && why == "" {
		text = append(text, "log: "+string(suffix([]byte(strings.TrimSuffix(log, "\n")), 2000)))
	}
	r.Content[0].Text = strings.Join(text, "\n")
	return r
}

// compose makes the tool's result of a cell that came back.
func (s *Session) compose(w *worker, c *wire.CellReply, d cellResult, why string) Result {
	r := s.result(w)
	t := &r.Details
	t.Status, t.DurationMs, t.Value, t.ShapeHint = c.Status, c.DurationMs, c.Value, c.ShapeHint
	t.Stdout, t.Stderr = d.out.text[stdout].String(), d.out.text[stderr].String()
	t.Outputs, t.TruncatedBytes, t.FullOutputPath = d.out.outputs(), d.out.truncated, d.path
	t.SkErrors, t.Yielded, t.Notes = c.SkErrors, c.Yielded, c.Notes
	if d.dropped > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d background writes left out", d.dropped))
	}
	t.Notes = append(t.Notes, d.out.notes()...)
	for _, data := range c.Reprs {
		t.Outputs = append(t.Outputs, OutputRecord{Stream: "display", Data: data})
		for _, mime := range []string{"image/png", "image/jpeg"} {
			if body, ok := data[mime]; ok {
				r.Content = append(r.Content, Content{Type: "image", Data: body, MimeType: mime})
			}
		}
	}
	for _, png := range c.Figures {
		t.Outputs = append(t.Outputs, OutputRecord{Stream: "display", Data: map[string]string{"image/png": png}})
		r.Content = append(r.Content, Content{Type: "image", Data: png, MimeType: "image/png"})
	}
	background := d.background
	for _, b := range c.Background {
		background = append(background, OutputRecord{Stream: b.Stream, Text: b.Text, Background: true, Origin: s.origin(b.Origin)})
	}
	t.Outputs = append(t.Outputs, background...)
	if c.Error != nil {
		r.IsError = true
		t.Error = &ErrorDetail{Name: c.Error.Name, Value: c.Error.Value, Traceback: c.Error.Traceback}
	}
	if why == KernelTimeout {
		r.IsError = true
		t.Status = StatusError
		traceback := ""
		if c.Error != nil {
			traceback = c.Error.Traceback
		}
		t.Error = &ErrorDetail{Name: KernelTimeout, Value: timeoutText(d.limit), Traceback: traceback}
	}
	report := s.audit(w, t, c)
	r.Content = append([]Content{{Type: "text", Text: cellText(t, d, c, background) + report}}, r.Content...)
	return r
}

// origin is the scope of the earlier cell that a worker names by its number.
func (s *Session) origin(cell string) string {
	s.mu.Lock()
	cells := s.cells
	s.mu.Unlock()
	if n, err := strconv.Atoi(cell); err == nil && 0 < n && n <= cells {
		return s.scope(n)
	}
	return unassigned
}

// backgroundText is what earlier cells' leftovers wrote, as a model reads it. All of
// it is in the details.
func backgroundText(records []OutputRecord) string {
	var b strings.Builder
	for i, r := range records {
		if b.Len() > backgroundShown {
			fmt.Fprintf(&b, "[background: %d further records]\n", len(records)-i)
			break
		}
		fmt.Fprintf(&b, "[background origin=%s] %s\n", r.Origin, strings.TrimSuffix(r.Text, "\n"))
	}
	return b.String()
}

// cellText is what a model reads: stdout, stderr, the traceback, the value, and what
// earlier cells left behind.
func cellText(t *Details, d cellResult, c *wire.CellReply, background []OutputRecord) string {
	var parts []string
	add := func(s string) {
		if s != "" {
			parts = append(parts, strings.TrimSuffix(s, "\n"))
		}
	}
	if d.path != "" || c.ShapeHint != "" {
		hint := c.ShapeHint
		if hint == "" {
			hint = fmt.Sprintf("stdout len=%d, stderr len=%d", d.out.text[stdout].chars, d.out.text[stderr].chars)
		}
		add("[output truncated: " + hint + "]")
	}
	add(t.Stdout)
	add(t.Stderr)
	if t.Error != nil {
		add(t.Error.Traceback)
		if t.Error.Name == KernelTimeout {
			add(KernelTimeout + ": " + t.Error.Value)
		}
	}
	if t.Yielded {
		add("[turn yielded]")
	}
	if t.Value != nil {
		add(*t.Value)
	}
	if d.path != "" {
		add("[full output: " + d.path + "]")
	}
	add(backgroundText(background))
	if len(parts) == 0 {
		return "(no output)"
	}
	return strings.Join(parts, "\n")
}

func auditText(mode policy.Mode, outside, inside int) string {
	switch {
	case mode == policy.Off:
		return "none"
	case outside > 0:
		return fmt.Sprintf("blocked %d out-of-session writes", outside)
	}
	return fmt.Sprintf("allowed %d mutations", inside)
}

// audit judges what modules declared and what was seen, fills the details
// and returns what is added to the text.
func (s *Session) audit(w *worker, t *Details, c *wire.CellReply) string {
	outside, inside := []json.RawMessage{}, 0
	judge := func(entry json.RawMessage, op, path string) {
		if s.policy.Mode == policy.Off {
			return
		}
		d := s.policy.Decide(policy.Op{Kind: policy.ParseKind(op), Path: path})
		if d.Allowed() {
			inside++
			return
		}
		outside = append(outside, entry)
		v := s.violation(policy.ParseKind(op), path, "declared", d)
		v.Op = op // the module's own word
		t.Policy.Violations = append(t.Policy.Violations, v)
	}
	for _, raw := range c.Audit {
		var entry map[string]json.RawMessage
		if json.Unmarshal(raw, &entry) != nil || entry == nil {
			entry = map[string]json.RawMessage{"entry": raw}
		}
		// Whatever a module wrote there: who saw what is the launcher's to say.
		entry["source"] = json.RawMessage(`"declared"`)
		tagged := marshal(entry)
		t.Audit = append(t.Audit, tagged)
		var op, path string
		_ = json.Unmarshal(entry["op"], &op)
		if json.Unmarshal(entry["path"], &path) == nil && path != "" {
			if !strings.HasPrefix(path, "/") {
				path = s.dir + "/" + path
			}
			judge(tagged, op, path)
		} else {
			inside++
		}
	}
	outside = append(outside, t.tell(s.seen(w, c.Observed))...)
	t.AuditPolicy = auditText(s.policy.Mode, len(outside), inside)
	if len(outside) > 0 && s.layer != nil {
		return fmt.Sprintf("\n[audit policy] %d mutation(s) outside session cwd, of which nothing reaches the host: layer %s has them:\n%s", len(outside), s.layer.id(), marshal(outside))
	}
	if len(outside) == 0 || s.policy.Mode != policy.Report {
		return ""
	}
	return fmt.Sprintf("\n[audit policy] blocked %d mutation(s) outside session cwd:\n%s", len(outside), marshal(outside))
}

// tell adds what was seen to the details, and returns the entries of changes: programs
// and connections are no mutations.
func (t *Details) tell(seen []Violation) (changes []json.RawMessage) {
	for _, v := range seen {
		entry := marshal(v.entry())
		t.Audit = append(t.Audit, entry)
		t.Policy.Violations = append(t.Policy.Violations, v)
		if changesFiles(policy.OpKind(v.Op)) {
			changes = append(changes, entry)
		}
	}
	return changes
}

// changesFiles says it of an observed operation, whose words are a closed set; that of
// a connection is no word of the file system.
func changesFiles(k policy.OpKind) bool { return k.Known() && k.Changes() }

// decided is what a denial comes to in the session's mode.
func decided(d policy.Decision) string {
	if d.Enforced {
		return "denied"
	}
	return "would be denied"
}

func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage(`{}`) // maps of plain values always encode
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
