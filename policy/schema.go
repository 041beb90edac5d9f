package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"

	"github.com/google/jsonschema-go/jsonschema"
)

// resolveSchema reads a schema that refers to nothing outside itself, and in
// which every keyword is one that is checked: a misspelt one would let through
// what its author meant to refuse.
func resolveSchema(text []byte) (*jsonschema.Resolved, error) {
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, err
	}
	if err := checkSchema(&schema); err != nil {
		return nil, err
	}
	return schema.Resolve(nil)
}

var schemaTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

func checkSchema(s *jsonschema.Schema) error {
	if s == nil {
		return errors.New("null is no schema")
	}
	for _, t := range append(slices.Clone(s.Types), s.Type) {
		if t != "" && !slices.Contains(schemaTypes, t) {
			return fmt.Errorf("there is no type %q", t)
		}
	}
	if len(s.Extra) > 0 {
		var unknown []string
		for key := range s.Extra {
			unknown = append(unknown, key)
		}
		sort.Strings(unknown)
		return fmt.Errorf("unknown keyword %q", unknown[0])
	}
	if s.Format != "" || s.ContentEncoding != "" || s.ContentMediaType != "" {
		return errors.New("format and content keywords are remarks, which nothing checks: use pattern")
	}
	// Every field of a schema that holds schemas, whatever the keyword.
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		switch field := v.Field(i).Interface().(type) {
		case *jsonschema.Schema:
			if field != nil {
				if err := checkSchema(field); err != nil {
					return err
				}
			}
		case []*jsonschema.Schema:
			for _, child := range field {
				if err := checkSchema(child); err != nil {
					return err
				}
			}
		case map[string]*jsonschema.Schema:
			for _, child := range field {
				if err := checkSchema(child); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
