package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// builtServe builds the serving program beside the command. Where CELLBLOCK_BIN names a
// built command, it lies there.
var builtServe = sync.OnceValue(func() error {
	bin, err := builtBinary()
	if err != nil || os.Getenv("CELLBLOCK_BIN") != "" {
		return err
	}
	if out, err := exec.Command("go", "build", "-tags", "seccomp", "-o", filepath.Join(filepath.Dir(bin), "cellblock-serve"), "../cmd/cellblock-serve").CombinedOutput(); err != nil {
		return errors.New("build cmd/cellblock-serve: " + err.Error() + "\n" + string(out))
	}
	return nil
})

func serveProgram(t testing.TB) {
	t.Helper()
	if err := builtServe(); err != nil {
		t.Fatal(err)
	}
}

// daemon is a "cellblock serve" that runs.
type daemon struct {
	t      testing.TB
	cmd    *exec.Cmd
	log    string // path
	socket string
	root   string // of sessions
	exited chan struct{}
}

// daemonToken is what the tokens of these tests' servers are.
const daemonToken = "integration-integration-integration"

// newDaemon has the places of a server, which is not started yet.
func newDaemon(t testing.TB) *daemon {
	t.Helper()
	serveProgram(t)
	dir := newDirIn(t, "/var/tmp")
	d := &daemon{t: t, log: dir + "/log", socket: dir + "/s/sock", root: dir + "/root"}
	for _, made := range []string{dir + "/root/a", dir + "/tokens"} {
		if err := os.MkdirAll(made, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.tokens(), []byte("ci "+daemonToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *daemon) tokens() string { return filepath.Dir(d.root) + "/tokens/file" }

// args are those of its command line.
func (d *daemon) args(more ...string) []string {
	return append([]string{"serve", "--socket", d.socket, "--root", d.root, "--python", pythonBin(), "--start-timeout", hang.String()}, more...)
}

// start starts it and waits until it is ready.
func (d *daemon) start(more ...string) *daemon {
	d.t.Helper()
	return d.launch(exec.Command(binary(d.t), d.args(more...)...))
}

func (d *daemon) launch(cmd *exec.Cmd) *daemon {
	d.t.Helper()
	log, err := os.Create(d.log)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	exited := make(chan struct{})
	d.cmd, d.exited = cmd, exited
	go func() { cmd.Wait(); close(exited) }()
	d.t.Cleanup(func() { d.signal(syscall.SIGTERM); d.signal(syscall.SIGTERM); d.ends() })
	eventually(d.t, "the server is ready", hang, func() bool {
		select {
		case <-exited:
			d.t.Fatalf("the server has ended: %s", readFile(d.t, d.log))
		default:
		}
		return strings.Contains(readFile(d.t, d.log), `"msg":"ready"`)
	})
	return d
}

func (d *daemon) signal(s syscall.Signal) { d.cmd.Process.Signal(s) }

// ends waits for its end and returns its exit code.
func (d *daemon) ends() int {
	d.t.Helper()
	select {
	case <-d.exited:
	case <-time.After(hang):
		d.t.Fatalf("the server does not end: %s", readFile(d.t, d.log))
	}
	return d.cmd.ProcessState.ExitCode()
}

// run runs a cell by the command, in a session at root/a.
func (d *daemon) run(code string, more ...string) outcome {
	d.t.Helper()
	return command(d.t).run(append([]string{"run", "--connect", d.socket, "--session", d.root + "/a", "-c", code}, more...)...)
}

// client speaks to its socket.
func (d *daemon) client() *http.Client {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
	}}}
	return c
}

// ask sends a request to its socket and returns status and body.
func (d *daemon) ask(method, path, body string) (int, string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := d.client().Do(r)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// create opens a session and returns its path.
func (d *daemon) create() string {
	d.t.Helper()
	status, body := d.ask("POST", "/v1/sessions", `{"directory": "a"}`)
	var s struct{ ID string }
	if err := json.Unmarshal([]byte(body), &s); err != nil || status != http.StatusCreated {
		d.t.Fatalf("create: %d %s", status, body)
	}
	return "/v1/sessions/" + s.ID
}

// freePort is a port that was free a moment ago.
func freePort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestH1KilledServer: a server that was killed leaves nothing in the way of the next, and
// nothing that runs.
func TestH1KilledServer(t *testing.T) {
	d := newDaemon(t).start()
	s := d.create()
	if status, body := d.ask("POST", s+"/run", `{"code": "import os, subprocess\nsubprocess.Popen(['sleep', '613'])\nos.getpid()"}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	var info struct{ Info struct{ WorkerPid int } }
	_, body := d.ask("GET", s, "")
	if err := json.Unmarshal([]byte(body), &info); err != nil || info.Info.WorkerPid == 0 {
		t.Fatalf("%s", body)
	}
	d.signal(syscall.SIGKILL)
	d.ends()
	if _, err := os.Lstat(d.socket); err != nil {
		t.Fatalf("control: a killed server leaves its socket: %v", err)
	}
	eventually(t, "the worker ends with its server", hang, func() bool {
		_, err := os.Stat("/proc/" + strconv.Itoa(info.Info.WorkerPid))
		return os.IsNotExist(err)
	})
	d.start()
	if o := d.run("6 * 7"); o.code != 0 || o.stdout != "42\n" {
		t.Errorf("%+v", o)
	}
	if status, _ := d.ask("GET", s, ""); status != http.StatusNotFound {
		t.Errorf("a session of the killed server: %d", status)
	}
}

// TestH1SecondServer: it says who serves, and the first stays reachable.
func TestH1SecondServer(t *testing.T) {
	d := newDaemon(t).start()
	o := command(t).run(d.args()...)
	if o.code != 2 || !strings.Contains(o.stderr, "process "+strconv.Itoa(d.cmd.Process.Pid)) || !strings.Contains(o.stderr, d.socket) {
		t.Errorf("%+v", o)
	}
	if o := d.run("6 * 7"); o.code != 0 || o.stdout != "42\n" {
		t.Errorf("the first: %+v", o)
	}
}

// TestH1ClientWithoutTheRight: it is told so, and removes nothing.
func TestH1ClientWithoutTheRight(t *testing.T) {
	d := newDaemon(t).start()
	before, err := os.Stat(d.socket)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(binary(t), "run", "--connect", d.socket, "-c", "1")
	if os.Geteuid() == 0 {
		// Another user, who finds the way to the socket, and the command.
		for _, dir := range []string{filepath.Dir(filepath.Dir(d.socket)), filepath.Dir(d.socket)} {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		place := newDirIn(t, "/var/tmp")
		if err := os.Chmod(place, 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(binary(t))
		if err == nil {
			err = os.WriteFile(place+"/cellblock", text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		cmd = exec.Command(place+"/cellblock", cmd.Args[1:]...)
		cmd.Dir = place
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	} else if err := os.Chmod(d.socket, 0); err != nil {
		t.Fatal(err)
	}
	cmd.Env, cmd.Stderr = []string{"HOME=/nowhere", "PATH=/usr/bin:/bin"}, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(stderr.String(), "permission denied") || !strings.Contains(stderr.String(), d.socket) {
		t.Errorf("%v: %s", err, stderr.String())
	}
	if after, err := os.Stat(d.socket); err != nil || !os.SameFile(before, after) {
		t.Errorf("the socket: %v", err)
	}
	if os.Geteuid() != 0 {
		if err := os.Chmod(d.socket, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if o := d.run("6 * 7"); o.stdout != "42\n" {
		t.Errorf("who may: %+v", o)
	}
}

// TestH1AbsentServer: a client says what to do.
func TestH1AbsentServer(t *testing.T) {
	d := newDaemon(t)
	if o := d.run("1"); o.code != 2 || !strings.Contains(o.stderr, "start 'cellblock serve'") || !strings.Contains(o.stderr, d.socket) {
		t.Errorf("%+v", o)
	}
}

// TestH5ClientThatGoes: a killed client's cell stops, and nothing of it runs on.
func TestH5ClientThatGoes(t *testing.T) {
	d := newDaemon(t).start("--mode", "enforce")
	beat := d.root + "/a/beat"
	client := exec.Command(binary(t), "run", "--connect", d.socket, "--session", d.root+"/a", "-c",
		"import time\nwhile True:\n    open('beat', 'a').write('.')\n    time.sleep(0.05)")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(beat)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	eventually(t, "the cell runs", hang, func() bool { return size() > 3 })
	_, list := d.ask("GET", "/v1/sessions", "")
	var found struct{ Sessions []struct{ ID string } }
	if err := json.Unmarshal([]byte(list), &found); err != nil || len(found.Sessions) != 1 {
		t.Fatalf("%s", list)
	}
	s := "/v1/sessions/" + found.Sessions[0].ID
	client.Process.Signal(syscall.SIGKILL)
	client.Wait()
	eventually(t, "no call runs", hang, func() bool { _, body := d.ask("GET", s, ""); return strings.Contains(body, `"calls":0`) })
	before := size()
	time.Sleep(time.Second)
	if after := size(); after != before {
		t.Errorf("the cell runs on: %d beats, then %d", before, after)
	}
	if status, body := d.ask("POST", s+"/run", `{"code": "6 * 7"}`); status != 200 || !strings.Contains(body, `"value":"42"`) || strings.Contains(body, "stateLost") {
		t.Errorf("the session: %d %s", status, body)
	}
}

// TestH11PortInUse: the start fails at once, names the address, and leaves nothing.
func TestH11PortInUse(t *testing.T) {
	d := newDaemon(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := command(t).run(d.args("--listen", l.Addr().String(), "--token-file", d.tokens())...)
	if o.code != 2 || !strings.Contains(o.stderr, l.Addr().String()) || !strings.Contains(o.stderr, "in use") {
		t.Errorf("%+v", o)
	}
	if _, err := os.Lstat(d.socket); !os.IsNotExist(err) {
		t.Errorf("a socket is left: %v", err)
	}
}

// TestServeRefusesWhatCannotBe before it serves anything, with the flag and the reason.
func TestServeRefusesWhatCannotBe(t *testing.T) {
	d := newDaemon(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"serve"}, "--root"},
		{[]string{"serve", "--root", d.root, "--session", d.root}, "--session"},
		{[]string{"serve", "--root", d.root, "--keep-definitions", "x"}, "--keep-definitions"},
		{[]string{"serve", "--root", "uid:1="}, "names no directory"},
		{[]string{"serve", "--root", d.root, "--socket", "none"}, "nobody could connect"},
		{[]string{"serve", "--root", d.root, "--mode", "sometimes"}, "--mode"},
		{[]string{"serve", "--root", d.root, "--max-cells", "0"}, "cells"},
		{[]string{"serve", "--root", d.root, "--activated", "--socket", d.socket}, "--activated"},
		{d.args("--listen", "0.0.0.0:1", "--token-file", d.tokens()), "not on loopback"},
		{d.args("--listen", "127.0.0.1:0"), "--token-file"},
		{d.args("--policy", "/nowhere.yaml"), "/nowhere.yaml"},
	} {
		if o := command(t).run(c.args...); o.code != 2 || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: %+v", c.args, o)
		}
	}
}

// TestMCPOverHTTP: a client that is not ours speaks to a session over streamable HTTP.
func TestMCPOverHTTP(t *testing.T) {
	d := newDaemon(t).start("--mode", "enforce")
	client := mcp.NewClient(&mcp.Implementation{Name: "integration", Version: "1"}, nil)
	c, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: "http://x" + d.create() + "/mcp", HTTPClient: d.client()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	mcpSession(t, c)
}

// mcpSession holds what a client is promised, wherever the session is.
func mcpSession(t *testing.T, c *mcp.ClientSession) {
	t.Helper()
	ctx := context.Background()
	tools, err := c.ListTools(ctx, nil)
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "python" || !strings.Contains(tools.Tools[0].Description, "Python") {
		t.Fatalf("tools %+v, %v", tools, err)
	}
	callPython(t, ctx, c, map[string]any{"code": "x = 20"})
	if result, r := callPython(t, ctx, c, map[string]any{"code": "print('out')\nx + 1"}); result.IsError || r.value() != "21" || r.Details.Stdout != "out\n" {
		t.Errorf("%s", r)
	}
	if result, r := callPython(t, ctx, c, map[string]any{"code": "1/0"}); !result.IsError || r.ename() != "ZeroDivisionError" {
		t.Errorf("%s", r)
	}
	cancelled, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(cancelled, &mcp.CallToolParams{Name: "python", Arguments: map[string]any{"code": "import time\nopen('up', 'w').close()\ntime.sleep(600)"}})
		ended <- err
	}()
	time.Sleep(500 * time.Millisecond) // either it runs by then, or it is cancelled before
	cancel()
	<-ended
	if _, r := callPython(t, ctx, c, map[string]any{"code": "x + 2"}); r.value() != "22" {
		t.Errorf("after a cancelled call: %s", r)
	}
	callPython(t, ctx, c, map[string]any{"reset": true})
	if _, r := callPython(t, ctx, c, map[string]any{"code": "'x' in globals()"}); r.value() != "False" {
		t.Errorf("%s", r)
	}
}

// TestServeDrains: what runs at the server's end comes to its result.
func TestServeDrains(t *testing.T) {
	d := newDaemon(t).start()
	done := make(chan outcome, 1)
	go func() {
		done <- d.run("import os, time\nopen('up', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.02)\n'whole'")
	}()
	eventually(t, "the cell runs", hang, func() bool { _, err := os.Stat(d.root + "/a/up"); return err == nil })
	d.signal(syscall.SIGTERM)
	eventually(t, "the server drains", hang, func() bool { return strings.Contains(readFile(t, d.log), `"msg":"draining"`) })
	if o := d.run("1"); o.code != 2 || !strings.Contains(o.stderr, "takes no new work") {
		t.Errorf("%+v", o)
	}
	write(t, d.root+"/a/go", "")
	if o := <-done; o.stdout != "'whole'\n" {
		t.Errorf("%+v", o)
	}
	if code := d.ends(); code != 0 {
		t.Errorf("exit code %d: %s", code, readFile(t, d.log))
	}
	if _, err := os.Lstat(d.socket); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}

// TestActivation: the service manager's sockets are taken over as they are, by number, and
// are left as they are.
func TestActivation(t *testing.T) {
	d := newDaemon(t)
	if err := os.MkdirAll(filepath.Dir(d.socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.socket})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// The manager's child sets LISTEN_PID, since only it knows that number.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"`, binary(t)},
		"serve", "--activated", "--root", d.root, "--python", pythonBin(), "--start-timeout", hang.String())...)
	cmd.ExtraFiles = []*os.File{file}
	d.launch(cmd)
	if o := d.run("6 * 7"); o.code != 0 || o.stdout != "42\n" {
		t.Errorf("%+v", o)
	}
	d.signal(syscall.SIGTERM)
	if code := d.ends(); code != 0 {
		t.Errorf("exit code %d: %s", code, readFile(t, d.log))
	}
	if _, err := os.Lstat(d.socket); err != nil {
		t.Errorf("the manager's socket: %v", err)
	}
}

// TestUnitsAreGood: systemd reads what is printed, where there is one, and the command
// line in it is one that this command takes.
func TestUnitsAreGood(t *testing.T) {
	dir := newDirIn(t, "/var/tmp")
	for _, kind := range []string{"service", "socket"} {
		o := command(t).run("serve", "unit", kind)
		if o.code != 0 {
			t.Fatalf("%+v", o)
		}
		text := strings.ReplaceAll(o.stdout, "/usr/local/bin/cellblock", binary(t))
		for _, user := range []string{"User=cellblock", "Group=cellblock"} {
			text = strings.ReplaceAll(text, user, strings.Replace(user, "cellblock", "root", 1)) // who exists here
		}
		write(t, dir+"/cellblock."+kind, text)
		if line, found := strings.CutPrefix(firstLine(o.stdout, "ExecStart="), "ExecStart=/usr/local/bin/cellblock "); found {
			args := strings.Fields(strings.ReplaceAll(line, "/srv/cellblock", dir))
			// Without a manager's sockets it says so, which comes after all flags.
			if o := command(t).env("HOME=" + dir).run(args...); o.code != 2 || !strings.Contains(o.stderr, "LISTEN_FDS") {
				t.Errorf("%q: %+v", args, o)
			}
		} else if kind == "service" {
			t.Errorf("no ExecStart: %s", o.stdout)
		}
	}
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("no systemd-analyze: what it would say is not known")
		return
	}
	out, err := exec.Command(program, "verify", dir+"/cellblock.service", dir+"/cellblock.socket").CombinedOutput()
	if text := string(out); err != nil || strings.Contains(text, dir+"/cellblock.") {
		t.Errorf("%v: %s", err, text)
	}
}

// firstLine is the first line of a text that begins so.
func firstLine(text, with string) string {
	lines := strings.Split(text, "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, with) })
	if i < 0 {
		return ""
	}
	return lines[i]
}

// TestSessionsCannotReachTheirServer: from within a session, in each mode, the server's
// socket and its file of tokens are not there, on any way to them, and its port asks for
// a token. The control is this process, which reaches all.
func TestSessionsCannotReachTheirServer(t *testing.T) {
	require(t, needUserns)
	for _, m := range []string{"off", "report", "shadow", "enforce"} {
		t.Run(m, func(t *testing.T) {
			if m == "shadow" {
				require(t, needOverlay)
			}
			port := freePort(t)
			d := newDaemon(t)
			d.start("--mode", m, "--listen", port, "--token-file", d.tokens())
			if status, _ := d.ask("GET", "/v1/sessions", ""); status != 200 {
				t.Fatalf("control: the socket: %d", status)
			}
			contains(t, "control: the tokens", readFile(t, d.tokens()), daemonToken)
			o := d.run(netTools + fmt.Sprintf(`
import glob, http.client
SOCK, TOKENS, PORT = %q, %q, %q
found = []
class Unix(http.client.HTTPConnection):
    def __init__(self, path): super().__init__("x"); self.path = path
    def connect(self): self.sock = socket.socket(socket.AF_UNIX); self.sock.connect(self.path)
def tried(what, do):
    try: found.append((what, do()))
    except OSError as problem: pass
def request(path):
    c = Unix(path); c.request("GET", "/v1/sessions"); return c.getresponse().status
def name(p): return "/proc/self/root" + p
ways = [SOCK, name(SOCK), os.path.relpath(SOCK), "/proc/%%d/root" %% os.getppid() + SOCK, "/proc/1/root" + SOCK]
for way in ways: tried("socket", lambda: request(way))
for way in (TOKENS, name(TOKENS), os.path.relpath(TOKENS)): tried("tokens", lambda: open(way).read())
tried("descriptors", lambda: [l for n in glob.glob("/proc/[0-9]*/fd/*") for l in [os.readlink(n)] if "sock" in l and SOCK in l] or (_ for _ in ()).throw(OSError()))
tried("environment", lambda: [v for v in os.environ.values() if SOCK in v or TOKENS in v] or (_ for _ in ()).throw(OSError()))
try:
    c = http.client.HTTPConnection(PORT, timeout=20); c.request("GET", "/v1/sessions"); answer = c.getresponse().status
except OSError as problem: answer = "unreached"
(found, answer)`, d.socket, d.tokens(), port))
			want := "([], 401)\n"
			if m == "enforce" {
				want = "([], 'unreached')\n"
			}
			if o.stdout != want {
				t.Errorf("want %s, got %s\n%s", want, o.stdout, o.stderr)
			}
		})
	}
}
