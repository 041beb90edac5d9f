package host

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestWhatAPersonIsShown: nothing of what a cell writes can hide another part of it.
func TestWhatAPersonIsShown(t *testing.T) {
	for data, want := range map[string]string{
		"":                                     "",
		`{"a": 1}`:                             `{"a":1}`,
		"{\"sql\":\"drop\",\r        \"x\":1}": `{"sql":"drop","x":1}`,
		"{\n\n\n\"a\"\t:\n1}":                  `{"a":1}`,
		"\"\u202eabc\u2066\"":                  `"\u202eabc\u2066"`,
		"\"\u009b2J\u007f\u00ad\u200b\"":       `"\u009b2J\u007f\u00ad\u200b"`,
		"\"\u00a0\u3000 \"":                    `"\u00a0\u3000 "`,
		"\"e\u0301\"":                          `"e\u0301"`,
		"\"\U000e0041\"":                       `"\udb40\udc41"`,
		`"é ü 漢 😀"`:                            `"é ü 漢 😀"`,
		"no\x1b[2J":                            `"no\x1b[2J"`,
	} {
		got := Shown(json.RawMessage(data))
		if got != want {
			t.Errorf("%q is shown as %q, want %q", data, got, want)
		}
		var before, after any
		if json.Unmarshal([]byte(data), &before) == nil && (json.Unmarshal([]byte(got), &after) != nil || !reflect.DeepEqual(before, after)) {
			t.Errorf("%q is shown as another value, %q", data, got)
		}
		if strings.ContainsAny(got, "\r\n\t\x1b") {
			t.Errorf("%q is shown with what moves a cursor: %q", data, got)
		}
	}
}
