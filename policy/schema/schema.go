// Package schema holds JSON texts against JSON schemas, whole numbers as exactly as they
// are written. What it cannot hold exactly it says instead of rounding: whoever decides
// by a schema then refuses.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// ErrInexact is of a value with a number that the schema cannot be held against: neither
// that it fits nor that it does not is known.
var ErrInexact = errors.New("a number cannot be compared exactly")

// Schema is a JSON Schema of draft 2020-12 that refers to nothing outside itself. It may
// be used by many goroutines at once.
type Schema struct {
	resolved *jsonschema.Resolved
	divides  bool // has multipleOf, which is worked out in float64
}

// Compile reads a schema. Its own numbers have to be such that a float64 holds them.
func Compile(text []byte) (*Schema, error) {
	return compile(text, func(*jsonschema.Schema) error { return nil })
}

// Strict is Compile for schemas that decide: every keyword is one that is checked, since
// a misspelt one would let through what its author meant to refuse.
func Strict(text []byte) (*Schema, error) { return compile(text, strict) }

func compile(text []byte, check func(*jsonschema.Schema) error) (*Schema, error) {
	var read jsonschema.Schema
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	if err := check(&read); err != nil {
		return nil, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	var raw any
	if err := in.Decode(&raw); err != nil {
		return nil, err
	}
	s := &Schema{}
	if rounded := s.look(raw, aSchema); rounded != "" {
		return nil, fmt.Errorf("%s cannot be compared exactly: whole numbers are, up to 2^53 either way", cut(rounded))
	}
	var err error
	s.resolved, err = read.Resolve(nil) // nothing is loaded from elsewhere
	return s, err
}

// Type is the one type that the schema wants; empty for none, or for several.
func (s *Schema) Type() string { return s.resolved.Schema().Type }

// Check says what keeps v from being what the schema describes; ErrInexact where that
// cannot be said.
func (s *Schema) Check(v Value) error {
	switch {
	case v.vague != "":
		return fmt.Errorf("%w: %s is beyond 64 bits", ErrInexact, cut(v.vague))
	case v.wide != "" && s.divides:
		return fmt.Errorf("%w: multipleOf is known of whole numbers up to 2^53, and there is %s", ErrInexact, v.wide)
	}
	return s.resolved.Validate(v.value)
}

// place says what a part of a schema's text is.
type place int

const (
	aSchema place = iota
	itsNames
	aConstant
)

// named are the keywords whose members have names of their author's choice.
var named = []string{"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}

// remarks are the keywords that nothing is compared with.
var remarks = []string{"default", "examples"}

// look finds a whole number that a float64 would round, which is what the schema's own
// are read as, and notes whether something is divided.
func (s *Schema) look(part any, as place) (rounded string) {
	switch part := part.(type) {
	case json.Number:
		if whole(string(part)) && !kept(string(part)) {
			return string(part)
		}
	case []any:
		for _, item := range part {
			if rounded = s.look(item, as); rounded != "" {
				return rounded
			}
		}
	case map[string]any:
		for key, item := range part {
			inner := as
			switch {
			case as == itsNames:
				inner = aSchema
			case as == aConstant:
			case slices.Contains(remarks, key):
				continue
			case key == "enum" || key == "const":
				inner = aConstant
			case slices.Contains(named, key):
				inner = itsNames
			case key == "multipleOf":
				s.divides = true
			}
			if rounded = s.look(item, inner); rounded != "" {
				return rounded
			}
		}
	}
	return ""
}
