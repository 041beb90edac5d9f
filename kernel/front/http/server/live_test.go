package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/kernel/front/mcp"
	"cellblock/policy"
)

// TestMain wants nothing left of a server; the one goroutine that lives as long as the
// launcher is the jail's.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("cellblock/jail/spawner.spawning"))
}

// hang is no expectation of speed: what takes longer does not end.
const hang = time.Minute

// token is the one that the servers of these tests know.
const token = "tried-tried-tried-tried-tried-tried"

// live is a server that runs in this process.
type live struct {
	t       *testing.T
	root    string // of sessions
	socket  string
	tcp     string
	log     *buffer
	drain   context.CancelFunc
	now     context.CancelFunc
	served  chan error
	clients []*http.Client
}

// buffer is written to and read by several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// serve starts a server on a socket and on loopback.
func serve(t *testing.T, change func(*api.Config)) *live {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cellblock-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := &live{t: t, root: filepath.Join(dir, "root"), socket: filepath.Join(dir, "s", "sock"), log: &buffer{}, served: make(chan error, 1)}
	for name, text := range map[string]string{"root/a/.keep": "", "tokens/file": "ci " + token + "\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := api.Config{Version: "test", Socket: l.socket, Listen: freePort(t), TokenFile: filepath.Join(dir, "tokens/file"),
		Roots: []api.Root{{Path: l.root}}, Bounds: api.DefaultBounds(),
		Session: api.Options{Python: "/usr/bin/python3", Mode: policy.Enforce, Profile: kernel.DefaultProfile, Tier: kernel.TierJail, CellTimeout: hang,
			StartTimeout: hang, MaxOutput: kernel.DefaultMaxOutput, OnTimeout: kernel.TimeoutKill}}
	config.Bounds.Drain = hang
	if change != nil {
		change(&config)
	}
	l.tcp = config.Listen
	s, err := New(config, Hooks{Log: slog.New(slog.NewJSONHandler(l.log, nil)),
		MCP: func(living context.Context, call func(context.Context, kernel.Call) kernel.Result, description string) http.Handler {
			return mcp.Handler(living, call, "test", description)
		}})
	if err != nil {
		t.Fatal(err)
	}
	var ctx, now context.Context
	ctx, l.drain = context.WithCancel(context.Background())
	now, l.now = context.WithCancel(context.Background())
	go func() { l.served <- s.Serve(ctx, now) }()
	t.Cleanup(func() {
		l.drain()
		l.now()
		for _, c := range l.clients {
			c.CloseIdleConnections()
		}
		select {
		case err := <-l.served:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(hang):
			t.Error("the server does not end")
		}
	})
	return l
}

// withTools is the policy of a server whose cells may ask for prices, and whose changes of
// orders are to be confirmed.
func withTools(t *testing.T) func(*api.Config) {
	doc, err := kernel.BuiltInPolicy("default")
	if err != nil {
		t.Fatal(err)
	}
	doc.Tools.Rules = append(doc.Tools.Rules,
		policy.ToolRule{ID: "prices", Tool: "prices.*", Effect: policy.Allow, Reason: "prices are public"},
		policy.ToolRule{ID: "orders", Tool: "orders.*", Effect: policy.Confirm, Reason: "it cannot be undone"})
	return func(c *api.Config) { c.Session.Policy = &doc }
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// unix is a client of the socket.
func (l *live) unix() *http.Client {
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", l.socket)
	}}}
	l.clients = append(l.clients, c)
	return c
}

// loopback is a client of the port.
func (l *live) loopback() *http.Client {
	c := &http.Client{Transport: &http.Transport{}}
	l.clients = append(l.clients, c)
	return c
}

// got is a whole answer.
type got struct {
	status int
	header http.Header
	body   string
}

// code is that of the problem in it.
func (g got) code() api.Code {
	var f api.Failure
	_ = json.Unmarshal([]byte(g.body), &f)
	return f.Error.Code
}

// ask sends a request to the socket; headers are "Name: value".
func (l *live) ask(method, path, body string, headers ...string) got {
	l.t.Helper()
	return l.by(l.unix(), "http://x", method, path, body, headers...)
}

// port sends a request to loopback.
func (l *live) port(method, path, body string, headers ...string) got {
	l.t.Helper()
	return l.by(l.loopback(), "http://"+l.tcp, method, path, body, headers...)
}

func (l *live) by(c *http.Client, base, method, path, body string, headers ...string) got {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	answer := l.start(ctx, c, base, method, path, body, headers...)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		l.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got{answer.StatusCode, answer.Header, string(text)}
}

// start sends a request and returns when its answer begins.
func (l *live) start(ctx context.Context, c *http.Client, base, method, path, body string, headers ...string) *http.Response {
	l.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	answer, err := c.Do(r)
	if err != nil {
		l.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// create opens a session at root/a and returns its path.
func (l *live) create(more string) string { l.t.Helper(); return l.createIn("a", more) }

func (l *live) createIn(dir, more string) string {
	l.t.Helper()
	g := l.ask("POST", "/v1/sessions", fmt.Sprintf(`{"directory": %q`, dir)+more+`}`)
	var s api.Session
	if err := json.Unmarshal([]byte(g.body), &s); err != nil || g.status != http.StatusCreated {
		l.t.Fatalf("create: %d %s", g.status, g.body)
	}
	return "/v1/sessions/" + s.ID
}

// run runs code and returns the result.
func (l *live) run(session, code string) kernel.Result {
	l.t.Helper()
	body, _ := json.Marshal(api.Run{Code: &code})
	g := l.ask("POST", session+"/run", string(body))
	var r kernel.Result
	if err := json.Unmarshal([]byte(g.body), &r); err != nil || g.status != http.StatusOK {
		l.t.Fatalf("run: %d %s", g.status, g.body)
	}
	return r
}

// begin begins a run that the test drives, and returns its id.
func (l *live) begin(session, code string) string {
	l.t.Helper()
	body, _ := json.Marshal(api.Run{Code: &code})
	g := l.ask("POST", session+"/runs", string(body))
	var begun api.Started
	if err := json.Unmarshal([]byte(g.body), &begun); err != nil || g.status != http.StatusCreated {
		l.t.Fatalf("begin: %d %s", g.status, g.body)
	}
	return begun.Run
}

// busy has a cell run in a session until the returned function ends it.
func (l *live) busy(session string) (stop func()) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	answer := l.start(ctx, l.unix(), "http://x", "POST", session+"/run", `{"code": "import time; print('up', flush=True); time.sleep(600)"}`, "Accept: text/event-stream")
	var seen []byte
	b := make([]byte, 512)
	for !bytes.Contains(seen, []byte(`"up`)) {
		n, err := answer.Body.Read(b)
		if seen = append(seen, b[:n]...); err != nil {
			l.t.Fatalf("the cell does not begin: %v\n%s", err, seen)
		}
	}
	stop = sync.OnceFunc(func() { cancel(); answer.Body.Close() })
	l.t.Cleanup(stop)
	return stop
}

// dropped has a cell run for a client that waits for the whole answer; the returned
// function hangs up.
func (l *live) dropped(session, body string) (hangUp func()) {
	l.t.Helper()
	c, err := net.Dial("unix", l.socket)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST %s/run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", session, len(body), body); err != nil {
		l.t.Fatal(err)
	}
	eventually(l.t, "the call runs", func() bool { return strings.Contains(l.ask("GET", session, "").body, `"calls":1`) })
	l.t.Cleanup(func() { c.Close() })
	return func() { c.Close() }
}

// eventually waits for what has to come about.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("does not come about: %s", what)
}
