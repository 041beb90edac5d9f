package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
)

// exactDigits are as many as a float64 keeps of any whole number.
const exactDigits = 15

// Value is a JSON text, read once and held against any number of schemas.
type Value struct {
	value any
	wide  string // a whole number in it that a float64 does not hold; empty for none
	vague string // a number in it that nothing here holds; empty for none
	bad   error  // a number in it that is infinite to Python, too
}

// Read reads a JSON text. Whole numbers stay what they are: the Python that they are for
// has them of any size, and as float64, which is what encoding/json makes of them,
// 9007199254740993 would pass for its neighbour.
func Read(text []byte) (Value, error) {
	var v Value
	if !long(text) {
		if err := json.Unmarshal(text, &v.value); err == nil {
			return v, nil
		}
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	if err := in.Decode(&v.value); err != nil {
		return Value{}, err
	}
	if _, err := in.Token(); err != io.EOF {
		return Value{}, fmt.Errorf("there is more after the value")
	}
	v.value = v.exact(v.value)
	return v, v.bad
}

// IsObject reports whether the text is an object.
func (v Value) IsObject() bool {
	_, ok := v.value.(map[string]any)
	return ok
}

// long reports whether text may hold a whole number that a float64 does not keep.
func long(text []byte) bool {
	run := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			run = 0
		} else if run++; run > exactDigits {
			return true
		}
	}
	return false
}

// exact puts numbers in the place of their texts, and notes what is not exact.
func (v *Value) exact(in any) any {
	switch in := in.(type) {
	case map[string]any:
		for key, item := range in {
			in[key] = v.exact(item)
		}
	case []any:
		for i, item := range in {
			in[i] = v.exact(item)
		}
	case json.Number:
		return v.number(string(in))
	}
	return in
}

func (v *Value) number(text string) any {
	if !whole(text) { // a float to Python, too
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			v.bad = fmt.Errorf("the number %s is beyond all that a float64 holds", cut(text))
		}
		return f
	}
	if !kept(text) {
		v.wide = text
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i
	}
	u, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		v.vague = text
	}
	return u
}

// whole reports whether a JSON number is written as a whole one.
func whole(text string) bool { return !strings.ContainsAny(text, ".eE") }

// kept reports whether a float64 is exactly the whole number that text writes.
func kept(text string) bool {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return false
	}
	_, accuracy := n.Float64()
	return accuracy == big.Exact
}

// cut shortens a number for a message.
func cut(text string) string {
	if len(text) > 40 {
		return fmt.Sprintf("%s… (%d digits)", text[:20], len(strings.TrimPrefix(text, "-")))
	}
	return text
}
