package schema

import (
	"errors"
	"strings"
	"testing"
)

func TestWholeNumbersAreComparedExactly(t *testing.T) {
	for _, c := range []struct {
		schema, value string
		fits, unknown bool
	}{
		{`{"enum": [9007199254740992]}`, `9007199254740992`, true, false},
		{`{"enum": [9007199254740992]}`, `9007199254740993`, false, false},
		{`{"const": {"default": 9007199254740992}}`, `{"default": 9007199254740993}`, false, false},
		{`{"maximum": 9007199254740992}`, `9007199254740992`, true, false},
		{`{"maximum": 9007199254740992}`, `9007199254740993`, false, false},
		{`{"minimum": -9007199254740992}`, `-9007199254740993`, false, false},
		{`{"exclusiveMaximum": 9223372036854775808}`, `9223372036854775807`, true, false},
		{`{"exclusiveMaximum": 9223372036854775808}`, `9223372036854775808`, false, false},
		{`{"uniqueItems": true}`, `[9007199254740992, 9007199254740993]`, true, false},
		{`{"uniqueItems": true}`, `[9007199254740993, 9007199254740993]`, false, false},
		{`{"type": "integer"}`, `18446744073709551615`, true, false},
		{`{"type": "integer"}`, `18446744073709551616`, false, true},
		{`{"not": {"minimum": 5}}`, `1` + strings.Repeat("0", 400), false, true},
		{`{"multipleOf": 2}`, `4503599627370497`, false, false},
		{`{"multipleOf": 2}`, `9007199254740993`, false, true},
		{`{"type": "number", "maximum": 0.5}`, `0.25`, true, false},
		{`{"enum": [1]}`, `1.0`, true, false},
		{`{"type": "string"}`, `"12345678901234567890"`, true, false},
		{`{"properties": {"n": {"type": "integer"}}, "required": ["n"]}`, `{"n": 12345678901234567}`, true, false},
	} {
		s, err := Strict([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		v, err := Read([]byte(c.value))
		if err != nil {
			t.Errorf("%s: %v", c.value, err)
			continue
		}
		err = s.Check(v)
		if (err == nil) != c.fits || errors.Is(err, ErrInexact) != c.unknown {
			t.Errorf("%s of %s: %v", c.value, c.schema, err)
		}
	}
}

func TestASchemaWhoseNumbersWouldBeRoundedIsRefused(t *testing.T) {
	for text, refused := range map[string]bool{
		`{"enum": [9007199254740993]}`:                                                  true,
		`{"const": {"examples": 9007199254740993}}`:                                     true,
		`{"properties": {"default": {"maximum": 9007199254740993}}}`:                    true,
		`{"allOf": [{"items": {"minimum": -9007199254740993}}]}`:                        true,
		`{"$defs": {"enum": {"multipleOf": 9007199254740993}}}`:                         true,
		`{"properties": {"n": {"default": 9007199254740993}}}`:                          false,
		`{"examples": [9007199254740993], "maximum": 9007199254740992, "minimum": 0.1}`: false,
	} {
		if _, err := Compile([]byte(text)); (err != nil) != refused || refused && !strings.Contains(err.Error(), "9007199254740993") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestReadTakesOneFiniteValue(t *testing.T) {
	for _, text := range []string{``, `{`, `1 2`, `12345678901234567890 x`, `nul`, `[1e400]`} {
		if v, err := Read([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, v)
		}
	}
}
