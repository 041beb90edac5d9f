package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\r\n":      "plain\ttext\r\n",
		"é 文 🙂":                "é 文 🙂",
		"\x1b[2J":              "^[[2J",
		"\x1b]52;c;eA==\x07":   "^[]52;c;eA==^G",
		"\x00\x7f":             "^@^?",
		"\u009b31m":            `\x9b31m`,
		"a\u202etxt.exe":       `a\u202etxt.exe`,
		"bad \xff byte":        "bad \ufffd byte",
		"half \xe2\x82 a rune": "half \ufffd\ufffd a rune",
	} {
		if got := clean(text, true); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
		if got := clean(text, false); got != text {
			t.Errorf("%q becomes %q where no terminal reads", text, got)
		}
	}
}

// FuzzClean: nothing that a terminal acts on comes through, and nothing else is
// lost; JSON keeps its value.
func FuzzClean(f *testing.F) {
	for _, seed := range []string{"", "plain", "\x1b[2J\x9b\u009b", "\u2066\ufeff", "\xff\xfe", "\x7f\u0080"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := clean(text, true)
		if !utf8.ValidString(got) || strings.IndexFunc(got, unsafeRune) >= 0 {
			t.Errorf("%q becomes %q", text, got)
		}
		if utf8.ValidString(text) && strings.IndexFunc(text, unsafeRune) < 0 && got != text {
			t.Errorf("harmless %q becomes %q", text, got)
		}
		line, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var want, after string
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		out := cleanJSON(line)
		if err := json.Unmarshal(out, &after); err != nil || after != want {
			t.Errorf("%q becomes %q, %v", line, out, err)
		}
		for _, r := range string(out) {
			if r < 0x20 || r >= 0x7f && r < 0xa0 {
				t.Errorf("%q has a control character", out)
			}
		}
	})
}

// TestNamed: what a guest has named stays on the line that tells of it.
func TestNamed(t *testing.T) {
	for text, want := range map[string]string{
		"/etc/x y": "/etc/x y", "/srv/\u00e9t\u00e9": "/srv/\u00e9t\u00e9", "": "",
		"/a\nb": `"/a\nb"`, "/a\rb": `"/a\rb"`, "\x1b]0;x\a": `"\x1b]0;x\a"`, "/\u202egpj": `"/\u202egpj"`, "/\xff": `"/\xff"`,
	} {
		if got := named(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
