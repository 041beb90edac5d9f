package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Version is the version of documents that Parse reads.
const Version = 1

// Document is a policy as it was written: with variables, for no session in
// particular. Marshalled to JSON it is a document again.
type Document struct {
	Version     int                   `json:"version"`
	Name        string                `json:"name"`
	Description string                `json:"description,omitempty"`
	FS          FSPart                `json:"fs"`
	Net         NetPart               `json:"net,omitzero"`
	Process     map[string]LimitEntry `json:"process,omitempty"` // tasks alone
	Tools       ToolsPart             `json:"tools,omitzero"`
	Limits      map[string]LimitEntry `json:"limits,omitempty"`
	Env         EnvPart               `json:"env,omitzero"`

	File string `json:"-"` // as named to Parse, for messages
}

// FSPart says what files may be used for.
type FSPart struct {
	Defaults FSDefaults `json:"defaults,omitzero"`
	Rules    []FSRule   `json:"rules,omitempty"`
}

// FSDefaults decide where no rule does. Left out they are: reading and executing
// allowed, changing denied.
type FSDefaults struct {
	Read  *Default `json:"read,omitempty"`
	Write *Default `json:"write,omitempty"`
	Exec  *Default `json:"exec,omitempty"`
}

// Default is one of them.
type Default struct {
	Effect Effect `json:"effect"`
	Mode   Mode   `json:"mode,omitempty"` // enforce or report; empty follows the session's
	Reason string `json:"reason"`
	Line   int    `json:"-"`
}

// FSRule is about a path and all beneath it.
type FSRule struct {
	ID     string `json:"id,omitempty"` // empty: fs.N, counted from 1
	Path   string `json:"path"`         // absolute, or begins with a variable; a trailing / names a directory
	Access Access `json:"access"`
	Effect Effect `json:"effect"`
	Mode   Mode   `json:"mode,omitempty"` // of a deny: enforce or report; empty follows the session's
	Reason string `json:"reason"`
	Line   int    `json:"-"`
}

// NetPart says what can be reached.
type NetPart struct {
	Mode    Net           `json:"mode,omitempty"` // empty: none
	Reason  string        `json:"reason,omitempty"`
	Allow   []NetRule     `json:"allow,omitempty"`
	Inbound []InboundRule `json:"inbound,omitempty"`
	Line    int           `json:"-"`
}

// NetRule allows connections by TCP to a host: a name, a name that begins with
// "*." for everything beneath it, an address, or a network in CIDR form.
type NetRule struct {
	ID     string `json:"id,omitempty"` // empty: net.N
	Host   string `json:"host"`
	Ports  Ports  `json:"port"`
	Reason string `json:"reason"`
	Line   int    `json:"-"`
}

// InboundRule names a port of the session that can be reached from the host.
type InboundRule struct {
	Name   string `json:"name"`
	Port   int    `json:"port"`
	Reason string `json:"reason"`
	Line   int    `json:"-"`
}

// Ports is a set of ports; empty for any.
type Ports []int

// Has reports whether the port belongs to the set.
func (p Ports) Has(port int) bool { return len(p) == 0 || slices.Contains(p, port) }

// MarshalJSON writes a port, a list of ports or "any".
func (p Ports) MarshalJSON() ([]byte, error) {
	switch len(p) {
	case 0:
		return []byte(`"any"`), nil
	case 1:
		return json.Marshal(p[0])
	}
	return json.Marshal([]int(p))
}

// ToolsPart says which host calls are let through.
type ToolsPart struct {
	Default Effect     `json:"default,omitempty"` // empty: deny
	Rules   []ToolRule `json:"rules,omitempty"`
	Rego    *Rego      `json:"rego,omitempty"`
	Line    int        `json:"-"`
}

// ToolRule is about a host call, or all in a namespace.
type ToolRule struct {
	ID       string          `json:"id,omitempty"` // empty: tools.N
	Tool     string          `json:"tool"`         // ns.name, or ns.* for all beneath ns
	Roles    []string        `json:"roles,omitempty"`
	Purposes []string        `json:"purposes,omitempty"`
	Schema   json.RawMessage `json:"schema,omitempty"` // JSON Schema of the arguments
	Limits   ToolLimits      `json:"limits,omitzero"`
	Effect   Effect          `json:"effect"`
	Reason   string          `json:"reason"`
	Line     int             `json:"-"`
}

// ToolLimits bound what a rule allows. Zero means no limit.
type ToolLimits struct {
	Calls         int64 `json:"calls,omitempty"`          // of the tool, in one session
	ArgumentBytes int64 `json:"argument-bytes,omitempty"` // of the arguments, as JSON
}

// Rego hands the last word on host calls to a query. Exactly one of Module and
// Files is there.
type Rego struct {
	Module string   `json:"module,omitempty"` // the text itself
	Files  []string `json:"files,omitempty"`  // beside the document
	Query  string   `json:"query"`
	Reason string   `json:"reason"`
	Line   int      `json:"-"`

	// Sources are the texts: the module's, or those of the files once somebody has
	// read them (WithSources). Without them nothing can be asked.
	Sources []RegoSource `json:"-"`
	// Digests are their SHA-256 sums, in hexadecimal and in order.
	Digests []string `json:"-"`
}

// RegoSource is the text of one module.
type RegoSource struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// MaxRego bounds the text of all modules of a document, in bytes.
const MaxRego = 1 << 20

// WithSources is r with the texts of its modules.
func (r Rego) WithSources(sources []RegoSource) *Rego {
	r.Sources, r.Digests = sources, nil
	for _, s := range sources {
		sum := sha256.Sum256([]byte(s.Text))
		r.Digests = append(r.Digests, hex.EncodeToString(sum[:]))
	}
	return &r
}

// LimitEntry is one limit, in the unit of its name.
type LimitEntry struct {
	Value  int64  `json:"value"`
	Reason string `json:"reason,omitempty"`
	Line   int    `json:"-"`
}

// EnvPart says which variables a worker has.
type EnvPart struct {
	Pass []EnvPass           `json:"pass,omitempty"`
	Set  map[string]EnvValue `json:"set,omitempty"`
}

// EnvPass lets variables of the launcher through: a name, or a beginning with a
// trailing *.
type EnvPass struct {
	Name   string `json:"name"`
	Reason string `json:"reason,omitempty"`
	Line   int    `json:"-"`
}

// EnvValue is what a variable is set to.
type EnvValue struct {
	Value  string `json:"value"`
	Reason string `json:"reason,omitempty"`
	Line   int    `json:"-"`
}
