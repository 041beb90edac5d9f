package schema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"

	"github.com/google/jsonschema-go/jsonschema"
)

var types = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// strict refuses a schema with something that is not checked.
func strict(s *jsonschema.Schema) error {
	if s == nil {
		return errors.New("null is no schema")
	}
	for _, t := range append(slices.Clone(s.Types), s.Type) {
		if t != "" && !slices.Contains(types, t) {
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
				if err := strict(field); err != nil {
					return err
				}
			}
		case []*jsonschema.Schema:
			for _, child := range field {
				if err := strict(child); err != nil {
					return err
				}
			}
		case map[string]*jsonschema.Schema:
			for _, child := range field {
				if err := strict(child); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
