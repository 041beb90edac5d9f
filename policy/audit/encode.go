package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// appendRecord writes r as one line without its line feed: keys in the order of
// the struct, what is empty left out. A writer of its own costs a fifth of
// encoding/json's time, and escapes what would act on a terminal.
func appendRecord(b []byte, r *Record) ([]byte, error) {
	b = append(b, `{"seq":`...)
	b = strconv.AppendInt(b, r.Seq, 10)
	b = append(b, `,"time":"`...)
	b = r.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	b = appendText(b, "session", r.Session)
	b = appendNumber(b, "generation", int64(r.Generation))
	b = appendNumber(b, "cell", int64(r.Cell))
	b = appendText(b, "scope", r.Scope)
	b = appendNumber(b, "pid", int64(r.PID))
	b = appendPath(b, "program", r.Program)
	b = append(b, `,"op":`...)
	b = appendString(b, r.Op)
	b = appendPath(b, "target", r.Target)
	b = appendText(b, "decision", r.Decision)
	b = appendText(b, "rule", r.Rule)
	b = appendText(b, "reason", r.Reason)
	b = append(b, `,"source":`...)
	b = appendString(b, string(r.Source))
	b = appendNumber(b, "count", r.Count)
	b = appendText(b, "policy", r.Policy)
	if len(r.Facts) > 0 {
		var err error
		if b, err = appendFacts(append(b, `,"facts":`...), r.Facts); err != nil {
			return nil, fmt.Errorf("record %s: facts: %w", r.Op, err)
		}
	}
	b = append(b, `,"prev":"`...)
	b = append(b, r.Prev...)
	return append(b, `"}`...), nil
}

func appendNumber(b []byte, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, key...)
	b = append(b, '"', ':')
	return strconv.AppendInt(b, n, 10)
}

func appendText(b []byte, key, text string) []byte {
	if text == "" {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, key...)
	b = append(b, '"', ':')
	return appendString(b, text)
}

// appendPath is appendText for bytes that a session has chosen: see [Unescape].
func appendPath(b []byte, key, text string) []byte {
	if strings.Contains(text, `\x`) {
		var plain strings.Builder
		for i := range len(text) {
			if plain.WriteByte(text[i]); escaped(text[i:]) {
				plain.WriteString("x5c")
			}
		}
		text = plain.String()
	}
	return appendText(b, key, text)
}

// escaped reports whether text begins with what stands for a byte that is not UTF-8.
func escaped(text string) bool {
	return len(text) >= 4 && text[:2] == `\x` && strings.IndexByte(hexDigits, text[2]) >= 0 && strings.IndexByte(hexDigits, text[3]) >= 0
}

// Unescape returns the bytes that a record's target or program stands for. There a byte
// that is not UTF-8 is \xNN, and a backslash that could be taken for the beginning of
// one is \x5c: each name has a text of its own.
func Unescape(text string) string {
	if !strings.Contains(text, `\x`) {
		return text
	}
	var out []byte
	for i := 0; i < len(text); i++ {
		if !escaped(text[i:]) {
			out = append(out, text[i])
			continue
		}
		out = append(out, byte(strings.IndexByte(hexDigits, text[i+2])<<4|strings.IndexByte(hexDigits, text[i+3])))
		i += 3
	}
	return string(out)
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string of printable characters alone: control
// characters, those that turn the direction of writing and U+2028 are escaped.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c >= 0x20 && c < 0x7f:
			b = append(b, c)
			i++
		case c < utf8.RuneSelf:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			i++
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				b = append(b, '\\', '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			case acts(r):
				b = append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
			default:
				b = append(b, s[i:i+size]...)
			}
			i += size
		}
	}
	return append(b, '"')
}

// acts reports whether a terminal or an editor would act on r, above ASCII.
func acts(r rune) bool {
	return r < 0xa0 || r == 0x061c || r == 0x200e || r == 0x200f || r >= 0x2028 && r <= 0x202e ||
		r >= 0x2066 && r <= 0x2069 || r == 0xfeff
}

// decodeRecord reads one line strictly.
func decodeRecord(line []byte) (Record, error) {
	var r Record
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	decoder.UseNumber()
	if err := decoder.Decode(&r); err != nil {
		return Record{}, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Record{}, errors.New("something stands after the record")
	}
	switch {
	case r.Seq < 1:
		return Record{}, fmt.Errorf("seq %d", r.Seq)
	case r.Op == "":
		return Record{}, errors.New("op: missing")
	case len(r.Prev) != len(Genesis):
		return Record{}, errors.New("prev: not a hash")
	}
	return r, nil
}

// cut shortens text to at most n bytes of whole characters and says so.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	end := n - 32
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + fmt.Sprintf("… %d bytes more", len(text)-end)
}
