package mcp

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"cellblock/kernel"
)

// TestMain wants nothing left of a connection; the one goroutine that lives as
// long as the launcher is the jail's.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("cellblock/jail/spawner.spawning"))
}

// hang is no expectation of speed: what takes longer does not end.
const hang = time.Minute

// connection is a client of a served session, over pipes in memory.
type connection struct {
	t      *testing.T
	client *sdk.ClientSession
	hangUp func()             // the client's process is gone
	leave  context.CancelFunc // ends Serve's context
	served chan error
}

func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cellblock-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func connect(t *testing.T, progress func(string)) *connection {
	t.Helper()
	session, err := kernel.Open(kernel.Options{SessionDir: newDir(t), PythonBin: "/usr/bin/python3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	requests, ask := io.Pipe()
	answers, answer := io.Pipe()
	ours, theirs := &sdk.IOTransport{Reader: requests, Writer: answer}, &sdk.IOTransport{Reader: answers, Writer: ask}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c := &connection{t: t, leave: cancel, served: make(chan error, 1)}
	c.hangUp = func() { ask.Close(); answers.Close() }
	go func() { c.served <- Serve(ctx, session, "test", "a description", ours) }()
	options := &sdk.ClientOptions{}
	if progress != nil {
		options.ProgressNotificationHandler = func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { progress(r.Params.Message) }
	}
	c.client, err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(context.Background(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.hangUp(); _ = c.client.Close() })
	return c
}

// call runs code and returns the text of the answer.
func (c *connection) call(ctx context.Context, code string, token any) (string, error) {
	params := &sdk.CallToolParams{Name: "python", Arguments: map[string]any{"code": code}}
	if token != nil {
		params.SetProgressToken(token)
	}
	result, err := c.client.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	return result.Content[0].(*sdk.TextContent).Text, nil
}

// ends waits for the end of Serve.
func (c *connection) ends() {
	c.t.Helper()
	select {
	case <-c.served:
	case <-time.After(hang):
		c.t.Fatal("Serve goes on")
	}
}

// TestServeEndsWithItsClient: a client that leaves, also in the middle of a cell,
// ends Serve, and so does the end of its context.
func TestServeEndsWithItsClient(t *testing.T) {
	for _, how := range []struct {
		name  string
		leave func(*connection)
	}{
		{"the client is gone", func(c *connection) { c.hangUp() }},
		{"the context ends", func(c *connection) { c.leave() }},
	} {
		for _, busy := range []bool{false, true} {
			name := how.name + ", idle"
			if busy {
				name = how.name + ", in a cell"
			}
			t.Run(name, func(t *testing.T) {
				running := make(chan string, 64)
				c := connect(t, func(m string) { running <- m })
				if text, err := c.call(context.Background(), "6 * 7", nil); err != nil || text != "42" {
					t.Fatalf("%q, %v", text, err)
				}
				if busy {
					go func() {
						_, _ = c.call(context.Background(), "import time; print('up', flush=True); time.sleep(600)", "token")
					}()
					select {
					case <-running:
					case <-time.After(hang):
						t.Fatal("the cell does not begin")
					}
				}
				how.leave(c)
				c.ends()
			})
		}
	}
}

// TestProgressIsWhole: what a client is told of the output is bounded, and no
// character of it is cut in two.
func TestProgressIsWhole(t *testing.T) {
	told := make(chan string, 1024)
	c := connect(t, func(m string) { told <- m })
	if _, err := c.call(context.Background(), "import time\nfor _ in range(20): print('x' + 'é' * 5000, flush=True); time.sleep(0.02)", 7); err != nil {
		t.Fatal(err)
	}
	if err := c.client.Close(); err != nil {
		t.Fatal(err)
	}
	c.ends()
	close(told)
	some := false
	for m := range told {
		some = true
		if len(m) > 400 || !utf8.ValidString(m) || strings.ContainsRune(m, utf8.RuneError) {
			t.Errorf("%d bytes: %q", len(m), m)
		}
	}
	if !some {
		t.Error("control: the client was told nothing")
	}
}
