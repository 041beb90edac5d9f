package kernel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"cellblock/kernel/definition"
	"cellblock/kernel/wire"
)

// keeping is what a session knows of its definitions: the text is what the host
// has sent, and a worker only says which parts of it still count. Who has the
// session's turn uses it. A nil one keeps nothing.
type keeping struct {
	store *definition.Store // nil: kept for the session's life only
	every bool              // every cell's are kept, not only those of chosen ones
	kept  definition.Kept
	// failed could not be restored in this generation, and are tried in the next.
	failed []definition.Statement
	deadly map[string]string // source that has ended a worker, and how
	codes  map[int64]string  // of the kept cells of this generation, by number
	chosen int64             // cells up to this one were forgotten
	ready  int               // the generation in which all was restored
	replay bool              // restoring: nothing is saved
	report *Restored         // for the next reply
	note   string            // why they could not be saved; for the next reply
}

// Restored says what a new worker has again of what was kept, and what not.
type Restored struct {
	Names   []string      `json:"names"`
	Missing []NotRestored `json:"missing,omitempty"`

	violations []Violation // of the statements that were run for it
}

// NotRestored is a name that an earlier worker had.
type NotRestored struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// reasonValue is why a name has no source.
const reasonValue = "its value came from code that ran; run that again"

// maxDeaths is how many workers one restoring may cost.
const maxDeaths = 3

// openDefinitions takes the session's name in the store, when it has one.
func (s *Session) openDefinitions() error {
	if s.opts.Definitions == "" {
		if s.opts.KeepDefinitions {
			s.keep = &keeping{every: true}
		}
		return nil
	}
	if err := definition.CheckName(s.opts.Name); err != nil {
		return &OptionError{"keep definitions", err.Error()}
	}
	store, err := definition.Open(s.opts.Definitions, s.opts.Name)
	if err != nil {
		return err
	}
	kept, err := store.Load()
	if err != nil {
		store.Close()
		return err
	}
	s.keep = &keeping{store: store, every: s.opts.KeepDefinitions, kept: kept}
	return nil
}

// wanted says before a call whether its cell's definitions are kept.
func (s *Session) wanted(c Call) {
	if s.keep == nil && c.KeepDefinitions {
		s.keep = &keeping{ready: s.generation}
	}
	if s.keep != nil && c.ForgetDefinitions {
		s.mu.Lock()
		s.keep.chosen = int64(s.cells)
		s.mu.Unlock()
		s.keep.clear()
	}
}

// begin prepares a cell's request.
func (k *keeping) begin(r *wire.Request, c Call) {
	if k == nil {
		return
	}
	r.Keep = true
	if k.every || c.KeepDefinitions || c.restoring {
		if k.codes == nil {
			k.codes = map[int64]string{}
		}
		k.codes[int64(r.Cell)] = *r.Code
	}
}

// took reads a worker's report. What it says of a cell that is not kept, or was
// never sent, is passed over; a place that is none is against the protocol.
func (k *keeping) took(d *wire.Definitions) error {
	if k == nil || d == nil {
		return nil
	}
	used := map[int64]string{}
	var now []definition.Statement
	for _, one := range d.Kept {
		code, known := k.codes[one.Cell]
		if !known || one.Cell <= k.chosen {
			continue
		}
		if one.End > int64(len(code)) || !utf8.ValidString(code[one.Start:one.End]) {
			return &wire.ProtocolError{Rule: wire.RuleWrongType, Detail: fmt.Sprintf("definition: bytes %d to %d of cell %d", one.Start, one.End, one.Cell)}
		}
		used[one.Cell] = code
		// One that later ones only needed when they ran defines no name any more.
		now = append(now, definition.Statement{Kind: one.Kind, Names: one.Names, Source: code[one.Start:one.End]})
	}
	k.codes = used
	k.settle(now, d.Others)
	return nil
}

// settle keeps what a worker has now, and what it could not have yet.
func (k *keeping) settle(now []definition.Statement, others []string) {
	bound := map[string]bool{}
	for _, s := range now {
		for _, n := range s.Names {
			bound[n] = true
		}
	}
	for _, n := range others {
		bound[n] = true
	}
	if !k.replay {
		// A name that got a new meaning meanwhile is not to get the old one again.
		k.failed = slices.DeleteFunc(k.failed, func(s definition.Statement) bool {
			return slices.ContainsFunc(s.Names, func(n string) bool { return n != "*" && bound[n] })
		})
	}
	next := k.kept
	next.Statements = append(slices.Clone(k.failed), now...)
	next.Others = others
	if dropped := next.Bound(); dropped > 0 {
		k.note = fmt.Sprintf("definitions: the oldest %d are not kept: %d statements or %d bytes are the most", dropped, definition.MaxStatements, definition.MaxSource)
	}
	if !k.replay {
		k.save(next)
	}
}

// save writes what has changed.
func (k *keeping) save(next definition.Kept) {
	same := slices.EqualFunc(k.kept.Statements, next.Statements, func(a, b definition.Statement) bool {
		return a.Source == b.Source && a.Kind == b.Kind && a.Failed == b.Failed && slices.Equal(a.Names, b.Names)
	}) && slices.Equal(k.kept.Others, next.Others)
	k.kept = next
	if same || k.store == nil {
		return
	}
	k.kept.Saved = time.Now().UTC()
	if err := k.store.Save(k.kept); err != nil {
		k.note = "not kept: " + err.Error()
	}
}

// clear drops all that is kept: the namespace is empty, or somebody has asked.
func (k *keeping) clear() {
	if k == nil {
		return
	}
	k.failed, k.codes, k.report = nil, nil, nil
	next := k.kept
	next.Statements, next.Others = nil, nil
	k.save(next)
}

// restore runs in a new worker, statement by statement, what the one before it had
// defined. A statement that ends a worker is left out of the next attempt.
func (s *Session) restore(ctx context.Context, w *worker, stop chan struct{}) (*worker, error) {
	k := s.keep
	if k == nil || k.ready == w.generation {
		return w, nil
	}
	todo, others := k.kept.Statements, k.kept.Others
	k.kept.Directory = s.dir
	k.replay = true
	defer func() { k.replay = false }()
	for deaths := 0; ; {
		k.codes, k.failed = nil, nil
		report := &Restored{Names: []string{}}
		dead, err := s.replayIn(ctx, w, stop, todo, report)
		if err != nil {
			return nil, err
		}
		if !dead {
			k.ready = w.generation
			s.finishRestore(report, others)
			return w, nil
		}
		if deaths++; deaths == maxDeaths {
			for _, st := range todo {
				if k.deadly[st.Source] == "" {
					k.dead(st.Source, fmt.Sprintf("not tried: %d statements before it have ended a worker each", deaths))
				}
			}
		}
		if w, err = s.live(ctx); err != nil {
			return nil, err
		}
	}
}

// replayIn runs the statements in one worker, and says whether one has ended it.
func (s *Session) replayIn(ctx context.Context, w *worker, stop chan struct{}, todo []definition.Statement, report *Restored) (dead bool, err error) {
	k := s.keep
	for _, st := range todo {
		st.Failed = k.deadly[st.Source]
		if st.Failed == "" {
			r := s.cell(ctx, w, Call{Code: st.Source, restoring: true}, stop)
			report.violations = append(report.violations, r.Details.Policy.Violations...)
			e := r.Details.Error
			switch {
			case e == nil:
			case e.Name == KernelKilled:
				return false, errStopped{errAborted}
			case r.Details.StateLost:
				k.dead(st.Source, "it ended the worker: "+e.Name+": "+e.Value)
				return true, nil
			default:
				st.Failed = e.Name + ": " + beginning(e.Value)
			}
			if ctx.Err() != nil {
				return false, errStopped{ctx.Err()}
			}
		}
		if st.Failed != "" {
			if len(st.Names) > 0 {
				k.failed = append(k.failed, st)
			}
			for _, n := range st.Names {
				report.Missing = append(report.Missing, NotRestored{n, st.Failed})
			}
		} else {
			report.Names = append(report.Names, st.Names...)
		}
	}
	return false, nil
}

func (k *keeping) dead(source, why string) {
	if k.deadly == nil {
		k.deadly = map[string]string{}
	}
	k.deadly[source] = why
}

// finishRestore keeps what there is again, and has the next reply tell of it.
func (s *Session) finishRestore(report *Restored, others []string) {
	k := s.keep
	k.replay = false
	next := k.kept
	next.Statements = slices.Clone(next.Statements)
	for i := range next.Statements {
		next.Statements[i].Failed = ""
		if at := slices.IndexFunc(k.failed, func(f definition.Statement) bool { return f.Source == next.Statements[i].Source }); at >= 0 {
			next.Statements[i].Failed = k.failed[at].Failed
		}
	}
	k.save(next)
	for _, n := range others {
		if !slices.Contains(report.Names, n) {
			report.Missing = append(report.Missing, NotRestored{n, reasonValue})
		}
	}
	slices.Sort(report.Names)
	report.Names = slices.Compact(report.Names)
	if len(report.Names)+len(report.Missing) > 0 {
		k.report = report
	}
}

// tell adds to a reply what was restored before its cell ran, and what could not
// be kept after it.
func (k *keeping) tell(r *Result) {
	if k == nil {
		return
	}
	if report := k.report; report != nil {
		k.report = nil
		r.Details.Restored = report
		r.Details.Policy.Violations = append(report.violations, r.Details.Policy.Violations...)
		r.Content[0].Text = report.String() + "\n" + r.Content[0].Text
	}
	if k.note != "" {
		r.Details.Notes = append(r.Details.Notes, k.note)
		k.note = ""
	}
}

// String is one line for who reads the reply.
func (r *Restored) String() string {
	const most = 20
	text := "[definitions restored: "
	switch {
	case len(r.Names) == 0:
		text += "none"
	case len(r.Names) > most:
		text += fmt.Sprintf("%s and %d more", strings.Join(r.Names[:most], ", "), len(r.Names)-most)
	default:
		text += strings.Join(r.Names, ", ")
	}
	for i, m := range r.Missing {
		if i == 0 {
			text += "; not restored: "
		} else if i == most {
			text += fmt.Sprintf(" and %d more", len(r.Missing)-most)
			break
		} else {
			text += ", "
		}
		text += fmt.Sprintf("%s (%s)", m.Name, m.Reason)
	}
	return text + "]"
}

// beginning is the first line of an error, or what a report has room for of it.
func beginning(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return string(prefix([]byte(line), 200))
}

// restores reports whether kept statements are being run.
func (k *keeping) restores() bool { return k != nil && k.replay }

// close gives the session's name back.
func (k *keeping) close() {
	if k != nil {
		k.store.Close()
	}
}
