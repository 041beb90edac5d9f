package integration

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpClient starts "cellblock mcp" and connects the SDK's own client to it.
func mcpClient(t *testing.T, dir string, progress func(string), args ...string) *mcp.ClientSession {
	t.Helper()
	options := &mcp.ClientOptions{}
	if progress != nil {
		options.ProgressNotificationHandler = func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress(r.Params.Message) }
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "integration", Version: "1"}, options)
	cmd := exec.Command(binary(t), append([]string{"mcp", "--session", dir, "--mode", "enforce", "--python", pythonBin()}, args...)...)
	session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// callPython calls the tool and reads its structured content, which is the
// details of the tool's result.
func callPython(t *testing.T, ctx context.Context, c *mcp.ClientSession, arguments map[string]any) (*mcp.CallToolResult, reply) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*hang)
	defer cancel()
	result, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "python", Arguments: arguments})
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	data, err := json.Marshal(result.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	r := reply{IsError: result.IsError, raw: data}
	if err := json.Unmarshal(data, &r.Details); err != nil {
		t.Fatalf("the structured content is not the reply's details: %v\n%s", err, data)
	}
	return result, r
}

// TestMCP: a client that is not ours lists and calls the tool.
func TestMCP(t *testing.T) {
	dir := newDir(t)
	c := mcpClient(t, dir, nil)
	ctx := context.Background()

	t.Run("lists the tool", func(t *testing.T) {
		tools, err := c.ListTools(ctx, nil)
		if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "python" {
			t.Fatalf("tools %+v, %v", tools, err)
		}
		schema, err := json.Marshal(tools.Tools[0].InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{`"code"`, `"reset"`, `"reload_skills"`} {
			contains(t, "the input schema", string(schema), p)
		}
	})
	t.Run("calls it and state is kept", func(t *testing.T) {
		callPython(t, ctx, c, map[string]any{"code": "x = 20"})
		result, r := callPython(t, ctx, c, map[string]any{"code": "print('out')\nx + 1"})
		if result.IsError || r.value() != "21" || r.Details.Stdout != "out\n" {
			t.Errorf("%s", r)
		}
		text, ok := result.Content[0].(*mcp.TextContent)
		if !ok || !strings.Contains(text.Text, "out") || !strings.Contains(text.Text, "21") {
			t.Errorf("content %+v", result.Content[0])
		}
	})
	t.Run("an exception is a tool error", func(t *testing.T) {
		result, r := callPython(t, ctx, c, map[string]any{"code": "1/0"})
		if !result.IsError || r.ename() != "ZeroDivisionError" {
			t.Errorf("%s", r)
		}
	})
	t.Run("reset without code", func(t *testing.T) {
		callPython(t, ctx, c, map[string]any{"reset": true})
		if _, r := callPython(t, ctx, c, map[string]any{"code": "'x' in globals()"}); r.value() != "False" {
			t.Errorf("%s", r)
		}
	})
	t.Run("images are image content", func(t *testing.T) {
		result, _ := callPython(t, ctx, c, map[string]any{"code": "class P:\n    def _repr_png_(self): return bytes.fromhex('89504e470d0a1a0a')\nP()"})
		for _, part := range result.Content {
			if image, ok := part.(*mcp.ImageContent); ok && image.MIMEType == "image/png" {
				return
			}
		}
		t.Errorf("no image among %d contents", len(result.Content))
	})
	t.Run("wrong arguments are refused and the session lives", func(t *testing.T) {
		for _, arguments := range []map[string]any{{"code": 5}, {"cod": "1"}, {}} {
			result, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "python", Arguments: arguments})
			if err == nil && !result.IsError {
				t.Errorf("%v was accepted", arguments)
			}
		}
		if _, r := callPython(t, ctx, c, map[string]any{"code": "1 + 1"}); r.value() != "2" {
			t.Errorf("%s", r)
		}
	})
	t.Run("H3 stdio under noise", func(t *testing.T) {
		_, r := callPython(t, ctx, c, map[string]any{"code": `
forged = '{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}\n'
print(forged); os.write(1, forged.encode()); os.write(2, forged.encode())
subprocess.run(["echo", forged])
sys.__stdout__.write(forged); sys.__stdout__.flush()
"end"`})
		if r.value() != "'end'" || strings.Count(r.Details.Stdout, "jsonrpc") != 4 {
			t.Errorf("%s", r)
		}
		_, r = callPython(t, ctx, c, map[string]any{"code": `
for fd in range(3, 20):
    try: os.write(fd, b'{"jsonrpc": "2.0", "id": 1, "result": {}}\n')
    except OSError: pass
"end"`})
		if r.value() != "'end'" && r.ename() != "KernelExited" {
			t.Errorf("neither the value nor a stated loss: %s", r)
		}
		if _, r := callPython(t, ctx, c, map[string]any{"code": "1 + 1"}); r.value() != "2" {
			t.Errorf("%s", r)
		}
	})
}

// TestMCPCancel: a cancelled call stops its cell, and the session goes on.
func TestMCPCancel(t *testing.T) {
	dir := newDir(t)
	c := mcpClient(t, dir, nil)
	callPython(t, context.Background(), c, map[string]any{"code": "x = 1"})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "python", Arguments: map[string]any{
			"code": "import time\nwhile True:\n    open('beat', 'a').write('.')\n    time.sleep(0.1)"}})
		ended <- err
	}()
	size := func() int {
		data, _ := exec.Command("cat", dir+"/beat").Output()
		return len(data)
	}
	eventually(t, "the cell runs", hang, func() bool { return size() > 3 })
	cancel()
	select {
	case <-ended:
	case <-time.After(hang):
		t.Fatal("the cancelled call does not return")
	}
	time.Sleep(5 * time.Second) // the grace that the case states
	before := size()
	time.Sleep(time.Second)
	if after := size(); after != before {
		t.Errorf("the cell runs on: %d beats, then %d", before, after)
	}
	if _, r := callPython(t, context.Background(), c, map[string]any{"code": "x + 1"}); r.value() != "2" && !r.Details.StateLost {
		t.Errorf("%s", r)
	}
}

// TestMCPProgress: a call with a progress token is told what the cell writes.
func TestMCPProgress(t *testing.T) {
	var seen atomic.Value
	seen.Store("")
	c := mcpClient(t, newDir(t), func(message string) { seen.Store(seen.Load().(string) + message) })
	params := &mcp.CallToolParams{Name: "python", Arguments: map[string]any{"code": "import time\nprint('first light', flush=True); time.sleep(3)"}}
	params.SetProgressToken("token-1")
	if _, err := c.CallTool(context.Background(), params); err != nil {
		t.Fatal(err)
	}
	eventually(t, "progress says what was printed", 10*time.Second, func() bool { return strings.Contains(seen.Load().(string), "first light") })
}
