package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Rule is a rule of a compiled policy: about Path and all beneath it. Rules are
// plain values so that a list of them prints as a table.
type Rule struct {
	ID     string `json:"id"`             // stable name, shown in decisions
	Path   string `json:"path"`           // canonical
	Access Access `json:"access"`         // what it allows or denies
	Reason string `json:"reason"`         // for the reader of a denial
	Line   int    `json:"line,omitempty"` // of the document; 0 for a rule of the jail's own

	// Enforced, on a deny, has Linux refuse what the rule denies.
	Enforced bool `json:"enforced,omitempty"`
	// Promoted says that the document wants it enforced in every mode. It is not
	// Enforced where nothing is there that could refuse.
	Promoted bool `json:"promoted,omitempty"`
	// Absent says that nothing was there when the policy was compiled.
	Absent bool `json:"absent,omitempty"`
	// Stub, on an enforced deny of something absent, says what is to be put there
	// for the session's life, so that there is something to cover.
	Stub Stub `json:"stub,omitempty"`
	// Inside, on an enforced deny, says that the path lies where a session may make
	// names: what is to refuse must be there, and is there by no link.
	Inside bool `json:"inside,omitempty"`
	// Pins, on a deny, are the directories above Path up to the place that may be
	// changed: they can be neither renamed nor removed, since the path would then
	// be free for another file of the same name.
	Pins []string `json:"pins,omitempty"`
}

// Stub is an empty thing that stands where a rule denies what is not there.
type Stub string

// The stubs.
const (
	StubFile      Stub = "file"
	StubDirectory Stub = "directory"
)

// Standard is a compiled default.
type Standard struct {
	Effect   Effect `json:"effect"`
	Reason   string `json:"reason"`
	Enforced bool   `json:"enforced,omitempty"` // of a deny: Linux refuses
	Promoted bool   `json:"promoted,omitempty"` // of a deny: in every mode
}

// Net says which network a session has.
type Net string

// The networks.
const (
	NetNone  Net = "none"  // loopback of its own only
	NetHost  Net = "host"  // the host's
	NetAllow Net = "allow" // loopback of its own, and one way out to what is listed
)

// Network is the compiled part net. What Mode denies is denied in every mode of
// the session alike; Enforced says whether Linux keeps the session from it, which
// then has a network of its own, or whether it has the host's and it is reported.
type Network struct {
	Mode     Net  `json:"mode"`
	Enforced bool `json:"enforced,omitempty"`

	Reason  string        `json:"reason,omitempty"`
	Allow   []NetRule     `json:"allow,omitempty"`
	Inbound []InboundRule `json:"inbound,omitempty"`
}

// Policy is the one value from which reports, audit entries and the plan of a
// jail are made: a document for one session in one mode. Copy it, print it; it
// is not changed after Compile made it.
type Policy struct {
	Name string `json:"name"`
	Mode Mode   `json:"mode"`
	// Unjailed says that nothing enforces: every denial is a report.
	Unjailed bool `json:"unjailed,omitempty"`

	ReadDefault  Standard `json:"readDefault"`
	WriteDefault Standard `json:"writeDefault"`
	ExecDefault  Standard `json:"execDefault"`

	Allow   []Rule     `json:"allow"`           // by the document
	Deny    []Rule     `json:"deny"`            // wins over the others
	Private []Rule     `json:"private"`         // the session's own places: changes allowed, gone at its end
	Devices []Rule     `json:"devices"`         // device files that may be written; never beneath them
	Sealed  []Rule     `json:"sealed"`          // the jail's own: read-only in every mode
	Needs   []Rule     `json:"needs,omitempty"` // what the interpreter reads and executes
	Links   []HostLink `json:"links,omitempty"` // symbolic links on the way to what is allowed

	Network Network   `json:"net"`
	Tools   ToolsPart `json:"tools"`
	Rego    []string  `json:"rego,omitempty"` // SHA-256 sums of the modules that host calls are delegated to
	Limits  Limits    `json:"limits"`
	Env     Env       `json:"env"`
}

// TellsReads says whether some reads are denied by rules that the mode decides about, so
// that they have to be seen: to be reported, and to be told of in the same way where they
// are refused. A rule that is enforced in every mode asks for none: there is no mode in
// which somebody learns of it what enforce would refuse.
func (p Policy) TellsReads() bool {
	if p.ReadDefault.Effect == Deny && !p.ReadDefault.Promoted {
		return true
	}
	return slices.ContainsFunc(p.Deny, func(r Rule) bool {
		return r.Access.Has(AccessRead) && !r.Promoted
	})
}

// Hidden says whether a path is kept from being seen at all, so that nobody inside
// can tell what is there from what is not.
func (p Policy) Hidden(path string) bool {
	for i := range p.Deny {
		if r := &p.Deny[i]; r.Enforced && r.Access.Has(AccessRead) && Within(r.Path, path) {
			return true
		}
	}
	return false
}

// JSON is the policy as text: of equal ones it is the same.
func (p Policy) JSON() []byte {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // plain values always marshal
	}
	return text
}

// Digest is the SHA-256 of the policy's JSON, in hexadecimal.
func (p Policy) Digest() string { return DigestOf(p.JSON()) }

// DigestOf is a policy's Digest, by its JSON.
func DigestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// HostLink is a symbolic link of the host.
type HostLink struct {
	Path   string `json:"path"`
	Target string `json:"target"` // as it is written
}

// TopLink is a symbolic link in the root directory.
type TopLink struct {
	HostLink
	Leads string // canonical: where it ends
}

// Found is what the host has at a path that a document names.
type Found struct {
	Exists bool
	Dir    bool
	// Path is the canonical form: no symbolic link is left in what exists of it.
	Path string
	// Links are the symbolic links on the way, in order.
	Links []HostLink
	// Err says why the path could not be looked at, where that is so.
	Err string
}

// Facts are what a policy must know about one session.
type Facts struct {
	Mode       Mode
	SessionDir string   // canonical absolute path
	Home       string   // the operator's home directory; may be empty
	State      []string // the launcher's own directories, never shown to a session
	Extensions []string // where the launcher looks for extensions: never shown, and never made by a session
	Net        Net      // what is set replaces the document's; none then holds in every mode
	Limits     Limits   // what is set replaces the document's
	Env        Env      // what is set is added to the document's
	// Needs are the paths that the interpreter itself must read and execute.
	Needs []Rule
	// Sealed are places that the jail shows read-only in every mode.
	Sealed []Rule
	// Links are symbolic links on the way to what is needed.
	Links []HostLink
	// Top are the symbolic links in the root directory, as a usr-merged system has them:
	// each is shown where something is listed of what it leads to.
	Top []TopLink
	// Unjailed says that there is no jail: nothing is enforced.
	Unjailed bool
	// Paths has what the host has at each of Document.Paths. One that is missing
	// counts as a directory that exists, at its own path.
	Paths map[string]Found
}

// Note is what Compile finds worth telling about a rule that it took.
type Note struct {
	Line int    `json:"line"`
	Rule string `json:"rule"`
	Text string `json:"text"`
}

// Refusals are the rules of the document that keep something from being changed by
// Linux, whatever the mode, and those that would if there were something to refuse
// with: what a layer holds at their paths must not reach the host.
func (p Policy) Refusals() []Rule {
	var out []Rule
	for _, r := range p.Deny {
		if (r.Enforced || r.Promoted) && r.Access&(AccessWrite|AccessRead) != 0 && r.ID != "ground.place" {
			out = append(out, r)
		}
	}
	return out
}
