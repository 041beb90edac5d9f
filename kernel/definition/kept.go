package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what is kept under one name.
const (
	MaxStatements = 4096
	MaxSource     = 4 << 20 // bytes of all sources together
	MaxName       = 128     // bytes of the name itself
	maxFile       = 64 << 20
)

// Statement is one definition.
type Statement struct {
	Kind   string   `json:"kind"`  // function, class, import or constant
	Names  []string `json:"names"` // that it defines; "*" for an import of all; none when others needed it
	Source string   `json:"source"`
	// Failed says why it could not be restored the last time; empty when it could.
	Failed string `json:"failed,omitempty"`
}

// Kept is all that is kept under one name.
type Kept struct {
	Name       string      `json:"name"`
	Directory  string      `json:"directory"` // of the session that kept it last
	Saved      time.Time   `json:"saved"`
	Statements []Statement `json:"statements"` // in the order in which they are to run
	// Others are names whose values came from code that ran, and which no source
	// gives back.
	Others []string `json:"others,omitempty"`
}

// Names are all names that are defined, sorted.
func (k Kept) Names() []string {
	var names []string
	for _, s := range k.Statements {
		names = append(names, s.Names...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Bound leaves out the oldest statements that are more than may be kept, and
// returns how many those are.
func (k *Kept) Bound() int {
	size, first := 0, len(k.Statements)
	for first > 0 && len(k.Statements)-first < MaxStatements {
		if size += len(k.Statements[first-1].Source); size > MaxSource {
			break
		}
		first--
	}
	k.Statements = k.Statements[first:]
	return first
}

// CheckName says what is wrong with a name to keep definitions under.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("definitions: the name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("definitions: the name has %d bytes; %d are the most", len(name), MaxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 }):
		return fmt.Errorf("definitions: the name %q has a control character", name)
	}
	return nil
}

func decode(data []byte) (Kept, error) {
	var k Kept
	if err := json.Unmarshal(data, &k); err != nil {
		return Kept{}, err
	}
	if err := CheckName(k.Name); err != nil {
		return Kept{}, err
	}
	for i, s := range k.Statements {
		if s.Source == "" || !utf8.ValidString(s.Source) {
			return Kept{}, fmt.Errorf("statement %d has no source", i+1)
		}
	}
	return k, nil
}
