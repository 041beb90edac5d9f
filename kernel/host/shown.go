package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// Shown is what a person is shown of JSON data that untrusted code wrote: one line, without
// white space between its parts, each character that cannot be seen, or that moves what
// stands beside it, spelt by its number (\u202e). It is the same value in JSON. What is no
// JSON is quoted.
func Shown(data json.RawMessage) string {
	if len(data) == 0 {
		return ""
	}
	var one bytes.Buffer
	if err := json.Compact(&one, data); err != nil {
		return fmt.Sprintf("%+q", data)
	}
	text := one.String()
	if strings.IndexFunc(text, unseen) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !unseen(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// unseen reports whether a character is none that a reader sees in its place. Outside of
// strings compact JSON has none.
func unseen(r rune) bool {
	return r != ' ' && (!unicode.IsGraphic(r) || unicode.IsSpace(r)) || unicode.Is(unicode.Mn, r)
}
