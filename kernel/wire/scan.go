package wire

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads one JSON text from the front, without building a tree: what a
// message may not hold is refused before anything is allocated for it. It is
// stricter than encoding/json: duplicate and differently cased keys, invalid
// UTF-8 and half surrogate pairs are errors.
type scanner struct {
	b     []byte
	i     int
	depth int
	wide  bool // objects may have any number of fields: the text is the host's own
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the next byte that is not space, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) syntax(want string) error {
	rest := s.b[min(s.i, len(s.b)):]
	return broken(RuleNotJSON, "want %s at byte %d, have %s", want, s.i, excerpt(rest))
}

func (s *scanner) end() error {
	if s.peek() != 0 || s.i < len(s.b) {
		return s.syntax("end of line")
	}
	return nil
}

func (s *scanner) enter() error {
	s.depth++
	if s.depth > MaxDepth {
		return broken(RuleTooDeep, "more than %d levels", MaxDepth)
	}
	return nil
}

// object calls field for each key; field must consume the value.
func (s *scanner) object(what string, limit int, field func(key []byte) error) error {
	if s.peek() != '{' {
		return s.wrong(what, "an object")
	}
	s.i++
	if err := s.enter(); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.i++
		s.depth--
		return nil
	}
	var fields names
	for n := 0; ; n++ {
		if s.peek() != '"' {
			return s.syntax("a key")
		}
		key, err := s.text(what+" key", MaxName)
		if err != nil {
			return err
		}
		if n >= limit {
			return broken(RuleTooMany, "%s: more than %d fields", what, limit)
		}
		if !fields.add(key) {
			return broken(RuleDuplicateField, "%s: %s", what, excerpt(key))
		}
		if s.peek() != ':' {
			return s.syntax("a colon")
		}
		s.i++
		if err := field(key); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.i++
			s.depth--
			return nil
		default:
			return s.syntax("a comma or }")
		}
	}
}

// maxFields bounds objects of fixed shape.
const maxFields = 64

// names tells whether a key came before in the same object. The first ones are
// compared one by one, so that an ordinary message needs no memory for it.
type names struct {
	first [16][]byte
	n     int
	more  map[string]struct{}
}

func (k *names) add(key []byte) bool {
	for _, have := range k.first[:k.n] {
		if bytes.Equal(have, key) {
			return false
		}
	}
	if k.n < len(k.first) {
		k.first[k.n] = key
		k.n++
		return true
	}
	if _, twice := k.more[string(key)]; twice {
		return false
	}
	if k.more == nil {
		k.more = map[string]struct{}{}
	}
	k.more[string(key)] = struct{}{}
	return true
}

// array calls item for each element; item must consume it.
func (s *scanner) array(what string, limit int, item func(n int) error) error {
	if s.peek() != '[' {
		return s.wrong(what, "an array")
	}
	s.i++
	if err := s.enter(); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.i++
		s.depth--
		return nil
	}
	for n := 0; ; n++ {
		if n >= limit {
			return broken(RuleTooMany, "%s: more than %d", what, limit)
		}
		if err := item(n); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.i++
			s.depth--
			return nil
		default:
			return s.syntax("a comma or ]")
		}
	}
}

func (s *scanner) wrong(what, want string) error {
	if c := s.peek(); c == 0 || bytes.IndexByte([]byte(`{["tfn-0123456789`), c) < 0 {
		return s.syntax(want)
	}
	return broken(RuleWrongType, "%s: want %s, have %s", what, want, excerpt(s.b[s.i:]))
}

// str reads a string of at most limit bytes.
func (s *scanner) str(what string, limit int) (string, error) {
	if s.peek() != '"' {
		return "", s.wrong(what, "a string")
	}
	b, err := s.text(what, limit)
	return string(b), err
}

// strOrNull reads a string or null.
func (s *scanner) strOrNull(what string, limit int) (*string, error) {
	if s.null() {
		return nil, nil
	}
	v, err := s.str(what, limit)
	return &v, err
}

// text reads a string's content. Without escapes it is a part of the line.
func (s *scanner) text(what string, limit int) ([]byte, error) {
	s.i++ // the quote
	start := s.i
	plain := true
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			raw := s.b[start:s.i]
			s.i++
			if !utf8.Valid(raw) {
				return nil, broken(RuleNotText, "%s: not UTF-8", what)
			}
			if !plain {
				var err error
				if raw, err = unescape(what, raw); err != nil {
					return nil, err
				}
			}
			if len(raw) > limit {
				return nil, broken(RuleTooLong, "%s: more than %d bytes", what, limit)
			}
			return raw, nil
		case c == '\\':
			plain = false
			s.i += 2
		case c < 0x20:
			return nil, broken(RuleNotJSON, "%s: control character in a string", what)
		default:
			s.i++
		}
	}
	return nil, s.syntax("a closing quote")
}

func unescape(what string, raw []byte) ([]byte, error) {
	out := make([]byte, 0, len(raw)) // an escape is never shorter than what it stands for
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			continue
		}
		i++
		switch raw[i] {
		case '"', '\\', '/':
			out = append(out, raw[i])
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := hex4(raw, i+1)
			if !ok {
				return nil, broken(RuleNotJSON, "%s: bad \\u escape", what)
			}
			i += 4
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if i+2 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
					low, ok = hex4(raw, i+3)
				}
				r = utf16.DecodeRune(r, low)
				if !ok || r == utf8.RuneError {
					return nil, broken(RuleNotText, "%s: half a surrogate pair", what)
				}
				i += 6
			}
			out = utf8.AppendRune(out, r)
		default:
			return nil, broken(RuleNotJSON, "%s: bad escape", what)
		}
	}
	return out, nil
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// word consumes the literal w.
func (s *scanner) word(w string) bool {
	s.space()
	if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
		s.i += len(w)
		return true
	}
	return false
}

func (s *scanner) null() bool { return s.word("null") }

func (s *scanner) boolean(what string) (bool, error) {
	switch {
	case s.word("true"):
		return true, nil
	case s.word("false"):
		return false, nil
	}
	return false, s.wrong(what, "true or false")
}

// number consumes a number and returns its text.
func (s *scanner) number(what string) ([]byte, error) {
	c := s.peek()
	if c != '-' && (c < '0' || c > '9') {
		return nil, s.wrong(what, "a number")
	}
	start := s.i
	digits := func() bool {
		from := s.i
		for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
			s.i++
		}
		return s.i > from
	}
	at := func(set string) bool {
		return s.i < len(s.b) && bytes.IndexByte([]byte(set), s.b[s.i]) >= 0
	}
	if at("-") {
		s.i++
	}
	if at("0") {
		s.i++
	} else if !digits() {
		return nil, s.syntax("a digit")
	}
	if at(".") {
		s.i++
		if !digits() {
			return nil, s.syntax("a digit")
		}
	}
	if at("eE") {
		s.i++
		if at("+-") {
			s.i++
		}
		if !digits() {
			return nil, s.syntax("a digit")
		}
	}
	if s.i-start > MaxNumber {
		return nil, broken(RuleTooLong, "%s: a number of %d bytes, at most %d are taken", what, s.i-start, MaxNumber)
	}
	return s.b[start:s.i], nil
}

// integer reads a whole number that is not negative.
func (s *scanner) integer(what string) (int64, error) {
	t, err := s.number(what)
	if err != nil {
		return 0, err
	}
	n, perr := strconv.ParseInt(string(t), 10, 64)
	if perr != nil || n < 0 {
		return 0, broken(RuleWrongType, "%s: want a whole number, have %s", what, excerpt(t))
	}
	return n, nil
}

// real reads a finite number.
func (s *scanner) real(what string) (float64, error) {
	t, err := s.number(what)
	if err != nil {
		return 0, err
	}
	f, perr := strconv.ParseFloat(string(t), 64)
	if perr != nil || math.IsInf(f, 0) {
		return 0, broken(RuleWrongType, "%s: want a number, have %s", what, excerpt(t))
	}
	return f, nil
}

// skip consumes any value and checks it as strictly as the rest.
func (s *scanner) skip(what string) error {
	switch s.peek() {
	case '{':
		limit := MaxNames
		if s.wide {
			limit = math.MaxInt
		}
		return s.object(what, limit, func([]byte) error { return s.skip(what) })
	case '[':
		return s.array(what, math.MaxInt, func(int) error { return s.skip(what) })
	case '"':
		_, err := s.text(what, math.MaxInt)
		return err
	case 't', 'f':
		_, err := s.boolean(what)
		return err
	case 'n':
		if s.null() {
			return nil
		}
		return s.syntax("null")
	case 0:
		return s.syntax("a value")
	default:
		_, err := s.number(what)
		return err
	}
}

// raw consumes any value and returns its text, a part of the line.
func (s *scanner) raw(what string) ([]byte, error) {
	s.space()
	start := s.i
	if err := s.skip(what); err != nil {
		return nil, err
	}
	return s.b[start:s.i], nil
}
