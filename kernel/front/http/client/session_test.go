package client

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzEvents: whatever a server sends, reading it ends, each event that is told has a
// name, and neither a name nor data has a line end in it.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"", "event: output\ndata: {\"text\":\"a\"}\n\n", "event: reply\ndata: {}\n\nevent: reply\ndata: {}\n\n",
		"data: without a name\n\n", "event: \ndata: x\n\n", "event: cut off\ndata: ", ": a comment\n\n", "event: a\r\ndata: b\r\n\r\n",
		"event: " + strings.Repeat("x", 100<<10) + "\ndata: y\n\n", "\n\n\n", "event: a\x00b\ndata: \xff\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		told := 0
		err := events(bytes.NewReader(stream), func(name string, data []byte) error {
			told++
			if name == "" || strings.Contains(name, "\n") || bytes.Contains(data, []byte("\n")) {
				t.Errorf("an event %q with %q", name, data)
			}
			return nil
		})
		if err != nil {
			t.Errorf("a stream of %d bytes: %v", len(stream), err)
		}
		if most := bytes.Count(stream, []byte("event: ")); told > most {
			t.Errorf("%d events of %d", told, most)
		}
	})
}
