package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestConnectIsAsHere: what run, repl and mcp do in a server's session is what they do in
// one of their own: output, errors, exit codes.
func TestConnectIsAsHere(t *testing.T) {
	d := newDaemon(t).start("--mode", "enforce", "--listen", freePort(t), "--token-file", tokenFile(t))
	for _, c := range []struct {
		name string
		args []string
	}{
		{"values", []string{"-c", "x = 6", "-c", "print('a'); x * 7"}},
		{"an exception", []string{"-c", "1/0"}},
		{"both streams", []string{"-c", "import sys; print('o', flush=True); print('e', file=sys.stderr)"}},
		{"a refused write", []string{"-c", "open('/etc/x', 'w')"}},
		{"a timeout", []string{"--timeout", "300ms", "-c", "import time; time.sleep(60)"}},
		{"a death", []string{"-c", "import os; os._exit(3)", "-c", "1 + 1"}},
		{"a limit", []string{"--limit", "memory=64MiB", "-c", "x = bytearray(1 << 30)"}},
		{"characters", []string{"-c", "print('é\\x00\\x1b[31m' * 3); '\\ud800'"}},
	} {
		there := command(t).run(append([]string{"run", "--connect", d.socket, "--session", d.root + "/a"}, c.args...)...)
		here := command(t).run(append([]string{"run", "--mode", "enforce", "--python", pythonBin(), "--start-timeout", hang.String(), "--session", d.root + "/a"}, c.args...)...)
		if there.code != here.code || there.stdout != here.stdout || there.stderr != here.stderr {
			t.Errorf("%s:\nthere %+v\nhere  %+v", c.name, there, here)
		}
	}
	o := d.run("print('x'); 6 * 7", "--json")
	var r reply
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || r.value() != "42" || r.Details.Stdout != "x\n" || !strings.HasPrefix(r.Details.Session, "s-") {
		t.Errorf("--json: %+v", o)
	}
	for flag, says := range map[string]string{"--profile=strict": "--profile", "--tier=process": "--tier", "--env=A=b": "--env", "--mode=off": "wider", "--timeout=1h": "operator's", "--session=/etc": "roots"} {
		if o := d.run("1", flag); o.code != 2 || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: %+v", flag, o)
		}
	}
	if _, list := d.ask("GET", "/v1/sessions", ""); list != `{"sessions":[]}`+"\n" {
		t.Errorf("sessions are left: %s", list)
	}
}

// tokenFile is a file of tokens.
func tokenFile(t testing.TB) string {
	path := newDirIn(t, "/var/tmp") + "/tokens"
	if err := os.WriteFile(path, []byte("# whose\nci "+daemonToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestConnectToAPort: with the token in a file, and not without.
func TestConnectToAPort(t *testing.T) {
	port := freePort(t)
	d := newDaemon(t)
	d.start("--listen", port, "--token-file", d.tokens())
	at := []string{"run", "--connect", "http://" + port, "--session", d.root + "/a", "-c", "6 * 7"}
	if o := command(t).run(append(at, "--token-file", d.tokens())...); o.code != 0 || o.stdout != "42\n" {
		t.Errorf("%+v", o)
	}
	if o := command(t).run(at...); o.code != 2 || !strings.Contains(o.stderr, "token") {
		t.Errorf("%+v", o)
	}
	wrong := newDirIn(t, "/var/tmp") + "/tokens"
	write(t, wrong, strings.Repeat("x", 40))
	if err := os.Chmod(wrong, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := command(t).run(append(at, "--token-file", wrong)...); o.code != 2 || !strings.Contains(o.stderr, "none of this server's") || strings.Contains(o.stderr, "xxx") {
		t.Errorf("%+v", o)
	}
	if o := command(t).run("run", "--connect", "http://192.0.2.1:80", "--token-file", d.tokens(), "-c", "1"); o.code != 2 || !strings.Contains(o.stderr, "loopback") {
		t.Errorf("%+v", o)
	}
}

// TestConnectInterrupt: Ctrl-C stops the cell that runs there and keeps its session.
func TestConnectInterrupt(t *testing.T) {
	d := newDaemon(t).start()
	cmd := exec.Command(binary(t), "run", "--connect", d.socket, "--session", d.root+"/a", "-c", "import time; open('up', 'w').close(); time.sleep(600)")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cell runs", hang, func() bool { _, err := os.Stat(d.root + "/a/up"); return err == nil })
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "KeyboardInterrupt") {
		t.Errorf("%v: %s", err, stderr.String())
	}
}

// TestConnectRepl: lines go to one session there.
func TestConnectRepl(t *testing.T) {
	d := newDaemon(t).start()
	cmd := exec.Command(binary(t), "repl", "--connect", d.socket, "--session", d.root+"/a")
	cmd.Stdin = strings.NewReader("x = 6\nx * 7\n:reset\n'x' in globals()\n")
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "42\n") || !strings.Contains(string(out), "False\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestConnectMCP: the standard streams lead to a session there, and a cancelled call ends
// its cell.
func TestConnectMCP(t *testing.T) {
	d := newDaemon(t).start("--mode", "enforce")
	client := mcp.NewClient(&mcp.Implementation{Name: "integration", Version: "1"}, nil)
	c, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: exec.Command(binary(t), "mcp", "--connect", d.socket, "--session", d.root+"/a")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	mcpSession(t, c)
}

// TestConnectMCPApproves: what a session at a server wants approved, the user of the MCP
// client in front is asked, and the answer counts.
func TestConnectMCPApproves(t *testing.T) {
	d := newDaemon(t)
	files := filepath.Dir(d.root)
	write(t, files+"/extensions/ask.py", "import cellblock\ndef it(n: int): return n * 6\ncellblock.register(cellblock.Extension(name='ask', tools=[it]))\n")
	write(t, files+"/policy.yaml", "version: 1\nname: asks\nfs:\n  rules:\n    - {path: \"${session}\", access: [write], effect: allow, reason: r}\ntools:\n  rules:\n    - {tool: ask.it, effect: confirm, reason: a person looks}\n")
	d.start("--extensions", files+"/extensions", "--policy", files+"/policy.yaml")
	var asked []string
	client := mcp.NewClient(&mcp.Implementation{Name: "integration", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked = append(asked, r.Params.Message)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": !strings.Contains(r.Params.Message, "13")}}, nil
		}})
	c, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: exec.Command(binary(t), "mcp", "--connect", d.socket, "--session", d.root+"/a")},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for code, want := range map[string]string{"ask.it(n=7)": "42", "ask.it(n=13)": "denied"} {
		r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "python", Arguments: map[string]any{"code": code}})
		if err != nil {
			t.Fatal(err)
		}
		if text := r.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, want) {
			t.Errorf("%s: want %s, got %s", code, want, text)
		}
	}
	if len(asked) != 2 || !strings.Contains(asked[0], "session s-") || !strings.Contains(asked[0]+asked[1], "a person looks") {
		t.Errorf("asked %q", asked)
	}
}

// screen is what a program wrote on its terminal.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// await waits until the screen shows text, and forgets all up to there.
func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		_, rest, found := strings.Cut(s.text.String(), text)
		if found {
			s.text.Reset()
			s.text.WriteString(rest)
		}
		s.mu.Unlock()
		if found {
			return
		}
	}
	t.Fatalf("the screen never showed %q; it shows %q", text, s.text.String())
}

// TestConnectAsksTheTerminal: input() of a cell at a server is answered by who sits before
// the client, and Ctrl-C gets out of it.
func TestConnectAsksTheTerminal(t *testing.T) {
	d := newDaemon(t).start()
	// The program gets a terminal of its own (pty(3)): Python's module copies to and fro.
	cmd := exec.Command("/usr/bin/python3", "-c", fmt.Sprintf("import pty, sys; sys.exit(pty.spawn([%q, 'repl', '--connect', %q, '--session', %q]) >> 8)", binary(t), d.socket, d.root+"/a"))
	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var shown screen
	cmd.Stdout, cmd.Stderr = &shown, &shown
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keys.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line := func(text string) {
		t.Helper()
		if _, err := io.WriteString(keys, text); err != nil {
			t.Fatal(err)
		}
	}
	shown.await(t, ">>> ")
	line("name = input('na' + 'me? ')\r")
	shown.await(t, "name? ")
	line("Ada\r")
	shown.await(t, ">>> ")
	line("input('a' + 'gain? ')\r")
	shown.await(t, "again? ")
	line("\x03")
	shown.await(t, "KeyboardInterrupt")
	shown.await(t, ">>> ")
	line("name * 2\r")
	shown.await(t, "'AdaAda'")
	shown.await(t, ">>> ")
	line("\x04")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %q", err, shown.text.String())
	}
}
