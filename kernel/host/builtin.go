package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcomes of an assessment.
var Outcomes = []string{"no-change", "needs-evidence", "deferred", "candidate-failed", "activated"}

// Schemas of the built-in methods. The bounds keep what is stored small; the rules
// about outcomes stand in assessed.check.
const (
	schemaNone    = `{"type":"object","additionalProperties":false}`
	schemaRefs    = `{"type":"array","maxItems":256,"items":{"type":"string","minLength":1,"maxLength":1024}}`
	schemaText    = `{"type":"string","minLength":1,"maxLength":16384}`
	schemaTime    = `{"type":"integer","minimum":0,"maximum":9007199254740991}`
	schemaResolve = `{"type":"object","properties":{"refs":` + schemaRefs + `},"required":["refs"],"additionalProperties":false}`

	schemaOriginate = `{"type":"object","properties":{"purpose":` + schemaText + `,"reason":` + schemaText + `,"evidence_refs":` + schemaRefs +
		`,"impact":{}},"required":["purpose","reason","evidence_refs"],"additionalProperties":false}`

	schemaAssess = `{"type":"object","properties":{"work_item_id":` + schemaText + `,"outcome":{"type":"string"},"reason":{"type":"string","maxLength":16384},` +
		`"missing_refs":` + schemaRefs + `,"revisit_condition":{"type":"string","maxLength":16384},"revisit_deadline_ms":` + schemaTime +
		`,"trigger_ms":` + schemaTime + `,"candidate_revision":{"type":"string","maxLength":1024},"check_receipts":{"type":"array","maxItems":256}},` +
		`"required":["work_item_id","outcome"],"additionalProperties":false}`
)

// Methods are the calls that every session has, answered from a store.
func Methods(store Store) []Tool {
	sandbox := []Role{RoleSandbox, RoleExtension}
	maintenance := []Purpose{Maintenance}
	return []Tool{
		{Name: "workspace.info", Doc: "The session's directory and name.", Schema: json.RawMessage(schemaNone), Roles: sandbox,
			Reason: "a cell knows both already", Do: workspaceInfo},
		{Name: "evidence.resolve", Doc: "What is known of references.", Schema: json.RawMessage(schemaResolve), Roles: sandbox,
			Reason: "looks up what the host put into the store for cells", Do: resolve(store)},
		{Name: "maintenance.originate", Doc: "Open a work item.", Schema: json.RawMessage(schemaOriginate), Roles: sandbox, Purposes: maintenance,
			Reason: "adds to the store, from cells that are run for maintenance", Do: originate(store)},
		{Name: "maintenance.assess", Doc: "Say what became of a work item.", Schema: json.RawMessage(schemaAssess), Roles: sandbox, Purposes: maintenance,
			Reason: "adds to the store, from cells that are run for maintenance", Do: assess(store)},
	}
}

func workspaceInfo(_ context.Context, c Call) (json.RawMessage, error) {
	return json.Marshal(struct {
		Path    string `json:"path"`
		Session string `json:"session_id"`
	}{c.Identity.Workspace, c.Identity.Session})
}

func resolve(store Store) func(context.Context, Call) (json.RawMessage, error) {
	type missing struct {
		Ref    string `json:"ref"`
		Reason string `json:"reason"`
	}
	return func(ctx context.Context, c Call) (json.RawMessage, error) {
		var asked struct{ Refs []string }
		if err := json.Unmarshal(c.Arguments, &asked); err != nil {
			return nil, badArguments(err.Error())
		}
		found, err := store.Evidence(ctx, asked.Refs)
		if err != nil {
			return nil, fmt.Errorf("evidence: %w", err)
		}
		out := struct {
			Resolved    []json.RawMessage `json:"resolved"`
			Unavailable []missing         `json:"unavailable"`
		}{[]json.RawMessage{}, []missing{}}
		for i, ref := range asked.Refs {
			if slices.Contains(asked.Refs[:i], ref) {
				continue
			}
			at := slices.IndexFunc(found, func(e Evidence) bool { return e.Ref == ref })
			if at < 0 {
				out.Unavailable = append(out.Unavailable, missing{ref, "nothing is known of it"})
				continue
			}
			shown, err := found[at].shown()
			if err != nil {
				out.Unavailable = append(out.Unavailable, missing{ref, err.Error()})
				continue
			}
			out.Resolved = append(out.Resolved, shown)
		}
		return json.Marshal(out)
	}
}

// shown is the evidence as one object: ref and kind first, then the body's fields.
func (e Evidence) shown() (json.RawMessage, error) {
	head, err := json.Marshal(struct {
		Ref  string `json:"ref"`
		Kind string `json:"kind"`
	}{e.Ref, e.Kind})
	body := bytes.TrimSpace(e.Body)
	if err != nil || len(body) == 0 {
		return head, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return nil, errors.New("what the store has of it is no object")
	}
	if fields["ref"] != nil || fields["kind"] != nil {
		return nil, errors.New("what the store has of it names another reference or kind")
	}
	if len(fields) == 0 {
		return head, nil
	}
	return append(append(head[:len(head)-1], ','), body[1:]...), nil
}

func originate(store Store) func(context.Context, Call) (json.RawMessage, error) {
	return func(ctx context.Context, c Call) (json.RawMessage, error) {
		var asked struct {
			Purpose, Reason string
			Refs            []string `json:"evidence_refs"`
			Impact          json.RawMessage
		}
		if err := json.Unmarshal(c.Arguments, &asked); err != nil {
			return nil, badArguments(err.Error())
		}
		if strings.TrimSpace(asked.Purpose) == "" || strings.TrimSpace(asked.Reason) == "" {
			return nil, badArguments("purpose and reason are texts that say something")
		}
		w := WorkItem{ID: NewWorkItemID(), Workspace: c.Identity.Workspace, Session: c.Identity.Session, Scope: c.Identity.Scope,
			Purpose: asked.Purpose, Reason: asked.Reason, Evidence: asked.Refs, Impact: asked.Impact, Created: time.Now()}
		if err := store.Originate(ctx, w); err != nil {
			return nil, fmt.Errorf("work item: %w", err)
		}
		return json.Marshal(map[string]string{"work_item_id": w.ID})
	}
}

func assess(store Store) func(context.Context, Call) (json.RawMessage, error) {
	return func(ctx context.Context, c Call) (json.RawMessage, error) {
		var asked assessed
		if err := json.Unmarshal(c.Arguments, &asked); err != nil {
			return nil, badArguments(err.Error())
		}
		if why := asked.check(); why != "" {
			return nil, badArguments(why)
		}
		err := store.Assess(ctx, Assessment{WorkItem: asked.WorkItem, Workspace: c.Identity.Workspace, Session: c.Identity.Session,
			Scope: c.Identity.Scope, Outcome: asked.Outcome, Body: c.Arguments, Made: time.Now()})
		switch {
		case errors.Is(err, ErrNoWorkItem):
			return nil, &Error{Code: CodeUnknown, Message: fmt.Sprintf("work item %.80q: %v", asked.WorkItem, err)}
		case err != nil:
			return nil, fmt.Errorf("assessment: %w", err)
		}
		return json.Marshal(struct {
			WorkItem string `json:"work_item_id"`
			Outcome  string `json:"outcome"`
		}{asked.WorkItem, asked.Outcome})
	}
}

// assessed are the arguments of an assessment that its outcome depends on.
type assessed struct {
	WorkItem  string `json:"work_item_id"`
	Outcome   string
	Reason    string
	Missing   []string `json:"missing_refs"`
	Deadline  *int64   `json:"revisit_deadline_ms"`
	Candidate string   `json:"candidate_revision"`
}

// check holds an assessment against the rules, which the sandbox has checked too: no
// worker is trusted.
func (a assessed) check() string {
	said := strings.TrimSpace(a.Reason) != ""
	switch {
	case !slices.Contains(Outcomes, a.Outcome):
		return fmt.Sprintf("outcome %.80q is none of %s", a.Outcome, strings.Join(Outcomes, ", "))
	case !said && slices.Contains([]string{"no-change", "deferred", "candidate-failed"}, a.Outcome):
		return fmt.Sprintf("outcome %s needs a reason", a.Outcome)
	case a.Outcome == "needs-evidence" && len(a.Missing) == 0 && a.Deadline == nil:
		return "outcome needs-evidence needs missing_refs or revisit_deadline_ms"
	case a.Outcome == "activated" && strings.TrimSpace(a.Candidate) == "":
		return "outcome activated needs candidate_revision"
	}
	return ""
}

func badArguments(why string) *Error { return &Error{Code: CodeArguments, Message: why} }
