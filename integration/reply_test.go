package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"cellblock/kernel"
	"cellblock/kernel/artefact"
)

// reply is the tool's result as a host reads it: decoded from JSON, so that the
// names on the wire are what the tests rely on, not the names of Go's fields.
type reply struct {
	Content []content `json:"content"`
	Details details   `json:"details"`
	IsError bool      `json:"isError"`

	raw []byte
}

type content struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MimeType string `json:"mimeType"`
}

type details struct {
	Status         string                       `json:"status"`
	Stdout         string                       `json:"stdout"`
	Stderr         string                       `json:"stderr"`
	DurationMs     *float64                     `json:"durationMs"`
	Error          *cellError                   `json:"error"`
	Audit          []map[string]json.RawMessage `json:"audit"`
	AuditPolicy    string                       `json:"auditPolicy"`
	Value          *string                      `json:"value"`
	Outputs        []record                     `json:"outputs"`
	TruncatedBytes int64                        `json:"truncatedBytes"`
	ShapeHint      string                       `json:"shapeHint"`
	FullOutputPath string                       `json:"fullOutputPath"`
	Artefacts      []artefact.File              `json:"artefacts"`
	SkErrors       map[string]string            `json:"skErrors"`
	Session        string                       `json:"session"`
	Generation     int                          `json:"generation"`
	Tier           string                       `json:"tier"`
	Mode           string                       `json:"mode"`
	Policy         *policyDetails               `json:"policy"`
	Usage          map[string]json.RawMessage   `json:"usage"`
	StateLost      bool                         `json:"stateLost"`
	Notes          []string                     `json:"notes"`
	Reload         map[string]string            `json:"reload_skills"`
}

type policyDetails struct {
	Mode       string          `json:"mode"`
	Enforced   bool            `json:"enforced"`
	Violations json.RawMessage `json:"violations"`
}

type cellError struct {
	Name      string          `json:"ename"`
	Value     string          `json:"evalue"`
	Traceback json.RawMessage `json:"traceback"`
}

type record struct {
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// decodeReply reads a result object strictly enough that a broken one fails here.
func decodeReply(t testing.TB, data []byte) reply {
	t.Helper()
	var r reply
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("the reply is not the documented object: %v\n%s", err, data)
	}
	if len(r.Content) == 0 {
		t.Errorf("the reply has no content: %s", data)
	}
	r.raw = data
	return r
}

// text joins the reply's text contents.
func (r reply) text() string {
	var parts []string
	for _, c := range r.Content {
		if c.Type == "text" {
			parts = append(parts, c.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// value is the text of the trailing value, "" when none was shown.
func (r reply) value() string {
	if r.Details.Value == nil {
		return ""
	}
	return *r.Details.Value
}

func (r reply) ename() string {
	if r.Details.Error == nil {
		return ""
	}
	return r.Details.Error.Name
}

// traceback is the error's traceback as one text.
func (r reply) traceback() string {
	if r.Details.Error == nil {
		return ""
	}
	var text string
	if json.Unmarshal(r.Details.Error.Traceback, &text) == nil {
		return text
	}
	var lines []string
	if json.Unmarshal(r.Details.Error.Traceback, &lines) == nil {
		return strings.Join(lines, "")
	}
	return string(r.Details.Error.Traceback)
}

// images are the reply's pictures, base64.
func (r reply) images() []content {
	var found []content
	for _, c := range r.Content {
		if c.Type == "image" {
			found = append(found, c)
		}
	}
	return found
}

// auditWith lists the audit entries whose field has this text value.
func (r reply) auditWith(field, value string) []map[string]json.RawMessage {
	var found []map[string]json.RawMessage
	for _, entry := range r.Details.Audit {
		var text string
		if json.Unmarshal(entry[field], &text) == nil && text == value {
			found = append(found, entry)
		}
	}
	return found
}

// String is what a failing test prints: the reply, cut to a readable length.
func (r reply) String() string {
	s := string(r.raw)
	if len(s) > 3000 {
		s = fmt.Sprintf("%s … (%d bytes in all)", s[:3000], len(s))
	}
	return s
}

// violations are those of the reply, decoded.
func (r reply) violations() []kernel.Violation {
	var found []kernel.Violation
	if err := json.Unmarshal(r.Details.Policy.Violations, &found); err != nil {
		panic(err)
	}
	return found
}
