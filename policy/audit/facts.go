package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// simple reports whether facts are of the few types that most are of: masking sees all of
// them as they are.
func simple(facts map[string]any) bool {
	for name, v := range facts {
		switch v := v.(type) {
		case nil, bool, int, int64:
		case string:
			if !utf8.ValidString(v) {
				return false
			}
		default:
			return false
		}
		if !utf8.ValidString(name) {
			return false
		}
	}
	return true
}

// generic turns facts of any Go type into what JSON knows, so that masking sees
// the names of their fields.
func generic(facts map[string]any) (any, error) {
	text, err := json.Marshal(facts)
	if err != nil {
		return nil, fmt.Errorf("facts: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	out := map[string]any{}
	return out, decoder.Decode(&out)
}

// appendFacts writes facts as one object, its keys in order: as marshal does, and for
// facts that say little in a small part of its time.
func appendFacts(b []byte, facts map[string]any) ([]byte, error) {
	var few [16]string
	names := few[:0]
	for name := range facts {
		names = append(names, name)
	}
	slices.Sort(names)
	start := len(b)
	for i, name := range names {
		b = append(b, "{,"[min(i, 1)])
		ok := verbatim(name)
		b = append(appendString(b, name), ':')
		switch v := facts[name].(type) {
		case string:
			ok = ok && verbatim(v)
			b = appendString(b, v)
		case bool:
			b = strconv.AppendBool(b, v)
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		default:
			ok = false
		}
		if !ok {
			text, err := marshal(facts)
			return append(b[:start], text...), err
		}
	}
	return append(b, '}'), nil
}

// verbatim reports whether text is its own JSON string, but for the quotes.
func verbatim(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// marshal is encoding/json without its escapes for HTML, with ours.
func marshal(v any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	text := bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == 0x7f || r >= utf8.RuneSelf && acts(r) {
			// Outside ASCII only strings have characters.
			out = append(out, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
		} else {
			out = append(out, text[i:i+size]...)
		}
		i += size
	}
	return out, nil
}
