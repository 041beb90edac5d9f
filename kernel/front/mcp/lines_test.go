package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"cellblock/kernel"
)

// TestStrayLines: a line that is no message is answered with its error, and what was
// there before goes on.
func TestStrayLines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	session, err := kernel.Open(kernel.Options{SessionDir: newDir(t), PythonBin: "/usr/bin/python3"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	defer out.Close()
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, session, "test", "a description", Lines(in, out)) }()
	read := bufio.NewReaderSize(answers, 1<<20)
	send := func(line string) (id string, code int64, whole string) {
		t.Helper()
		if _, err := io.WriteString(ask, line+"\n"); err != nil {
			t.Fatal(err)
		}
		whole, err := read.ReadString('\n')
		var m struct {
			ID    json.RawMessage
			Error struct{ Code int64 }
		}
		if err == nil {
			err = json.Unmarshal([]byte(whole), &m)
		}
		if err != nil {
			t.Fatalf("%.80q: %v: %q", line, err, whole)
		}
		return string(m.ID), m.Error.Code, whole
	}
	cell := func(id int, code string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"python","arguments":{"code":%q}}}`, id, code)
	}
	send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if _, err := io.WriteString(ask, "\n \r\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if _, _, whole := send(cell(2, "a = 6")); strings.Contains(whole, `"isError":true`) {
		t.Fatal(whole)
	}
	for line, want := range map[string]int64{
		"Starting up ...": -32700, "{": -32700, `{"jsonrpc":"2.0","id":3,"method":"ping"} {}`: -32700, "\x00\xff": -32700,
		`{"foo":1}`: -32600, "3": -32600, `"text"`: -32600, "null": -32600, "[]": -32600, `[{"jsonrpc":"2.0","id":3,"method":"ping"}]`: -32600,
		strings.Repeat(" ", sdk.DefaultMaxLineLength) + "{}": -32600,
	} {
		if id, code, whole := send(line); id != "null" || code != want {
			t.Errorf("%.80q: want %d: %s", line, want, whole)
		}
	}
	if id, _, whole := send(cell(4, "a * 7")); id != "4" || !strings.Contains(whole, "42") {
		t.Errorf("%s", whole)
	}
	ask.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestLastLine: it may lack its end.
func TestLastLine(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":5,"method":"ping"}`
	var refused strings.Builder
	read, err := io.ReadAll(&stream{in: bufio.NewReader(strings.NewReader("stray\n" + ping)), out: &refused})
	if err != nil || string(read) != ping+"\n" || !strings.Contains(refused.String(), "-32700") {
		t.Errorf("%v: %q, refused %q", err, read, refused.String())
	}
}

// TestBatchesOfOldClients: the versions of the protocol that have batches get them.
func TestBatchesOfOldClients(t *testing.T) {
	s := &stream{in: bufio.NewReader(strings.NewReader("")), out: io.Discard}
	batch := `[{"jsonrpc":"2.0","id":3,"method":"ping"},{"jsonrpc":"2.0","id":4,"method":"ping"}]`
	for version, want := range map[string]int64{"": -32600, "1": -32600, "2024-11-05": 0, "2025-06-18": -32600, "9999-01-01": -32600, "2025-03-26": 0} {
		if code, why := s.wrong([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `"}}`)); code != 0 {
			t.Fatal(why)
		}
		if code, why := s.wrong([]byte(batch)); code != want {
			t.Errorf("%s: %d %s", version, code, why)
		}
	}
	s.many = true
	if code, why := s.wrong([]byte(strings.ReplaceAll(batch, "4", "3"))); code != -32600 || !strings.Contains(why, "one id") {
		t.Errorf("two of one id: %d %s", code, why)
	}
}
