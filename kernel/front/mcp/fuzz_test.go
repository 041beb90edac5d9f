package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"cellblock/kernel"
)

// written keeps what a server writes.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *written) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// FuzzServe: whatever a client sends, the server ends with the client, writes nothing but
// JSON-RPC, and a call that comes through is one of the tool's.
func FuzzServe(f *testing.F) {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`
	for _, rest := range []string{
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"python","arguments":{"code":"1"},"_meta":{"progressToken":7}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"python","arguments":{"reset":true}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"python","arguments":[1]}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"python","arguments":{"code":null,"more":1}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`[{"jsonrpc":"2.0","id":"x","method":"ping"}]`, `{"jsonrpc":"1.0"}`, `{`, "\xff\xfe", `{"id":{}}`,
	} {
		f.Add(hello + rest + "\n")
		f.Add(rest + "\n")
	}
	f.Fuzz(func(t *testing.T, sent string) {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		server := newServer(ctx, func(_ context.Context, c kernel.Call) kernel.Result {
			if !utf8.ValidString(c.Code) || c.Code == "" && !strings.Contains(sent, `"code"`) && !strings.Contains(sent, `\u`) && !c.Reset && !c.ReloadSkills {
				t.Errorf("call %+v", c)
			}
			if c.Output != nil {
				c.Output("stdout", "some")
			}
			return kernel.Result{Content: []kernel.Content{{Type: "text", Text: "done"}}}
		}, "test", "a description")
		out := &written{}
		_ = server.Run(ctx, Lines(strings.NewReader(sent), out)) // what a client sends may end it
		if ctx.Err() != nil {
			t.Fatalf("%q: the server goes on after its client", sent)
		}
		time.Sleep(time.Millisecond) // answers under way
		out.mu.Lock()
		defer out.mu.Unlock()
		for _, line := range bytes.Split(bytes.TrimSpace(out.b.Bytes()), []byte("\n")) {
			var m struct {
				JSONRPC string `json:"jsonrpc"`
			}
			if len(line) > 0 && line[0] != '[' && (json.Unmarshal(line, &m) != nil || m.JSONRPC != "2.0") {
				t.Errorf("%q: written: %q", sent, line)
			}
		}
	})
}
