package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean returns a guest's text as it may be written. For a terminal every
// control character but tab, line feed and carriage return is spelt out, so
// that a cell can neither set the clipboard (OSC 52) or the title, nor ask the
// terminal for input it would seem to type, nor hide what was printed before.
// So are the characters that turn the direction of writing. Anything else than
// a terminal gets the text as it is.
func clean(text string, terminal bool) string {
	if !terminal || strings.IndexFunc(text, unsafeRune) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 16)
	for _, r := range text {
		switch {
		case !unsafeRune(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteByte('^')
			b.WriteByte(byte(r) + '@')
		case r == 0x7f:
			b.WriteString("^?")
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// named is a text that a guest may have chosen (a path, a program, the name of an
// exception) as it stands on a line of our own, whoever reads it: one that would end
// the line and begin another of its own making, or would not be seen as it is, is
// quoted.
func named(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return strconv.Quote(text)
		}
	}
	return text
}

// unsafeRune reports whether a terminal would act on r, or show it as
// something else than it is. A carriage return stays: progress bars live on it.
func unsafeRune(r rune) bool {
	switch {
	case r == '\n', r == '\t', r == '\r':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f,
		r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// cleanJSON spells out the control characters that encoding/json leaves as they
// are: DEL and the C1 set, where 0x9b opens an escape sequence on its own. They
// can only stand inside strings, so that replacing them keeps the value.
func cleanJSON(line []byte) []byte {
	for i := 0; i < len(line); i++ {
		if line[i] == 0x7f || line[i] == 0xc2 {
			return cleanJSONFrom(line, i)
		}
	}
	return line
}

func cleanJSONFrom(line []byte, i int) []byte {
	out := append(make([]byte, 0, len(line)+32), line[:i]...)
	for ; i < len(line); i++ {
		switch {
		case line[i] == 0x7f:
			out = append(out, `\u007f`...)
		case line[i] == 0xc2 && i+1 < len(line) && line[i+1] < 0xa0:
			out = fmt.Appendf(out, `\u%04x`, line[i+1])
			i++
		default:
			out = append(out, line[i])
		}
	}
	return out
}
