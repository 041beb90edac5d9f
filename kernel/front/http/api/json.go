package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Decode reads one JSON value into v and nothing after it. A field that v does not
// have is an error that names it.
func Decode(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		var kind *json.UnmarshalTypeError
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the body is empty; give a JSON object")
		case errors.As(err, &kind) && kind.Field != "":
			return fmt.Errorf("field %q: a JSON %s is none of %s", kind.Field, kind.Value, kind.Type)
		}
		if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
			return fmt.Errorf("field %s: there is none of this name", name)
		}
		return fmt.Errorf("the body is not what it should be: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		if err == nil || errors.As(err, new(*json.SyntaxError)) {
			return errors.New("the body has something after its JSON object")
		}
		return err
	}
	return nil
}
