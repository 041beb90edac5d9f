package server

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/integration/need"
	"cellblock/kernel/front/http/api"
)

// TestSessionsOfOthersAreNotThere: who asks with another identity gets what it would for
// a session that does not exist, on every route. The control is the owner.
func TestSessionsOfOthersAreNotThere(t *testing.T) {
	l := serve(t, nil)
	s := l.create("")
	const bearer = "Authorization: Bearer " + token
	for _, r := range routes() {
		if !strings.Contains(r.path, "{id}") {
			continue
		}
		body := ""
		if r.body != nil {
			body = `{}`
		}
		theirs := l.port(r.method, strings.Replace(r.path, "/v1/sessions/{id}", s, 1), body, bearer)
		none := l.port(r.method, strings.Replace(r.path, "{id}", strings.Replace(strings.TrimPrefix(s, "/v1/sessions/"), "s-", "s-x", 1)[:28], 1), body, bearer)
		if theirs.status != http.StatusNotFound || none.status != http.StatusNotFound || theirs.code() != none.code() {
			t.Errorf("%s: %d %s, and for no session %d %s", r.id, theirs.status, theirs.body, none.status, none.body)
		}
	}
	if g := l.port("GET", "/v1/sessions", "", bearer); g.body != `{"sessions":[]}`+"\n" {
		t.Errorf("the list of another: %s", g.body)
	}
	if g := l.ask("GET", s, ""); g.status != http.StatusOK {
		t.Errorf("control: the owner: %d %s", g.status, g.body)
	}
	// A directory that another's session has tells nothing but that it is taken.
	g := l.port("POST", "/v1/sessions", `{"directory": "a"}`, bearer)
	if g.status != http.StatusConflict || strings.Contains(g.body, "uid:") || strings.Contains(g.body, "s-") {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// TestLoopbackAsksForATokenAndIsNoWebsite: the control is the same request with the token
// and the address as the client knows it.
func TestLoopbackAsksForATokenAndIsNoWebsite(t *testing.T) {
	l := serve(t, nil)
	const good = "Authorization: Bearer " + token
	_, port, _ := net.SplitHostPort(l.tcp)
	for _, c := range []struct {
		name    string
		headers []string
		status  int
		code    api.Code
	}{
		{"control", []string{good}, 200, ""},
		{"control: localhost", []string{good, "Host: localhost:" + port}, 200, ""},
		{"no token", nil, 401, api.CodeToken},
		{"an empty one", []string{"Authorization: Bearer "}, 401, api.CodeToken},
		{"a part of it", []string{good[:len(good)-1]}, 401, api.CodeToken},
		{"more than it", []string{good + "x"}, 401, api.CodeToken},
		{"its name", []string{"Authorization: Bearer ci"}, 401, api.CodeToken},
		{"as a password", []string{"Authorization: Basic " + token}, 401, api.CodeToken},
		{"in other letters", []string{strings.Replace(good, "tried", "TRIED", 1)}, 401, api.CodeToken},
		{"a page", []string{good, "Origin: http://127.0.0.1:" + port}, 403, api.CodeOrigin},
		{"a sandboxed page", []string{good, "Origin: null"}, 403, api.CodeOrigin},
		{"a name that leads here", []string{good, "Host: rebound.example:" + port}, 403, api.CodeOrigin},
		{"a name that begins alike", []string{good, "Host: 127.0.0.1.example:" + port}, 403, api.CodeOrigin},
		{"another port", []string{good, "Host: 127.0.0.1:1"}, 403, api.CodeOrigin},
		{"no port", []string{good, "Host: 127.0.0.1"}, 403, api.CodeOrigin},
	} {
		if g := l.port("GET", "/v1/sessions", "", c.headers...); g.status != c.status || g.code() != c.code {
			t.Errorf("%s: want %d %q, got %d %s", c.name, c.status, c.code, g.status, g.body)
		} else if g.status == 401 && !strings.HasPrefix(g.header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: no WWW-Authenticate", c.name)
		}
	}
	if g := l.port("GET", "/v1/health", ""); g.status != 200 {
		t.Errorf("health needs no token: %d %s", g.status, g.body)
	}
	if g := l.port("GET", "/v1/health", "", "Host: rebound.example"); g.status != 403 {
		t.Errorf("health for a page: %d %s", g.status, g.body)
	}
	if strings.Contains(l.log.String(), token[:20]) {
		t.Error("a token stands in the log")
	}
}

// TestNothingSecretIsTold: neither the log nor the metrics nor an error has a token, code
// or output of a cell.
func TestNothingSecretIsTold(t *testing.T) {
	l := serve(t, nil)
	s := l.create(`, "name": "plain"`)
	const canary = "canary-7f3a9c"
	l.run(s, "print('"+canary+"'); '"+canary+"'")
	l.ask("POST", s+"/run", `{"code": "`+canary+`", "`+"unknown"+`": 1}`)
	l.port("GET", "/v1/sessions/"+canary, "", "Authorization: Bearer "+canary+strings.Repeat("x", 40))
	l.ask("GET", "/"+canary, "")
	l.ask(canary, "/v1/sessions", "")
	metrics := l.ask("GET", "/v1/metrics", "").body
	for name, text := range map[string]string{"log": l.log.String(), "metrics": metrics} {
		if strings.Contains(text, canary) || strings.Contains(text, token) {
			t.Errorf("the %s tells: %s", name, text)
		}
	}
	if !strings.Contains(metrics, `route="other"`) || !strings.Contains(l.log.String(), `"route":"POST /v1/sessions/{id}/run"`) {
		t.Error("control: neither tells of the requests")
	}
}

// TestTokenFiles: one that others can read is refused, and no error quotes a token.
func TestTokenFiles(t *testing.T) {
	const other = "other-other-other-other-other-other"
	for _, c := range []struct {
		name, text string
		mode       os.FileMode
		says       string
	}{
		{"one", token, 0o600, ""},
		{"named, with a comment", "# who\nci " + token + "\n\nnight " + other + "\n", 0o400, ""},
		{"readable by the group", token, 0o640, "chmod 600"},
		{"readable by all", token, 0o604, "chmod 600"},
		{"writable by all", token, 0o602, "chmod 600"},
		{"empty", "\n# none\n", 0o600, "has no token"},
		{"short", "ci " + token[:31], 0o600, "32 characters"},
		{"with odd characters", "ci " + token + "\u00e9", 0o600, "letters, digits"},
		{"three words", "ci " + token + " x", 0o600, "neither"},
		{"a name twice", "ci " + token + "\nci " + other, 0o600, "line 2"},
		{"a token twice", "ci " + token + "\nnight " + token, 0o600, "line 2"},
		{"a name that is none", "../x " + token, 0o600, "the name"},
		{"large", strings.Repeat("#\n", maxTokens), 0o600, "more than"},
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		found, err := readTokens(path)
		switch {
		case c.says == "":
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			} else if _, known := found.find(token); !known {
				t.Errorf("%s: the token is not known", c.name)
			} else if _, known := found.find(""); known {
				t.Errorf("%s: no token is one", c.name)
			}
		case err == nil || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v lacks %q", c.name, err, c.says)
		case strings.Contains(err.Error(), token[:20]) || !strings.Contains(err.Error(), path):
			t.Errorf("%s: the error quotes a token, or lacks the path: %v", c.name, err)
		}
	}
	for name, path := range map[string]string{"a directory": t.TempDir(), "missing": "/nowhere/tokens", "a device": "/dev/null"} {
		if _, err := readTokens(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTokens(fifo); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("a FIFO: %v", err)
	}
}

// TestWhoMayConnect: by the credentials that Linux gives.
func TestWhoMayConnect(t *testing.T) {
	self := os.Getpid()
	for _, c := range []struct {
		name   string
		peer   peer
		self   int
		listed []int
		admits bool
	}{
		{"the server's own user", peer{uid: 1000, pid: self}, 1000, nil, true},
		{"root", peer{uid: 0, pid: self}, 1000, nil, true},
		{"a listed one", peer{uid: 1001, pid: self}, 1000, []int{1001}, true},
		{"another", peer{uid: 1002, pid: self}, 1000, []int{1001}, false},
		{"a user of nowhere", peer{uid: overflowUID, pid: self}, 1000, []int{overflowUID}, false},
		{"unknown", peer{err: unix.EINVAL}, 1000, nil, false},
		{"a process that is gone", peer{uid: 1000, pid: 1 << 22}, 1000, nil, false},
		{"from outside of the pid namespace", peer{uid: 1000}, 1000, nil, true},
	} {
		if err := c.peer.placed().admit(c.self, c.listed); (err == nil) != c.admits {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A process in a user namespace of its own, as sessions are, has the same user.
	child := exec.Command("sleep", "600")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}}
	if err := child.Start(); err != nil {
		need.Absent(t, "userns", err.Error())
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	if err := (peer{uid: os.Geteuid(), pid: child.Process.Pid}).placed().admit(os.Geteuid(), nil); err == nil || !strings.Contains(err.Error(), "namespace") {
		t.Errorf("a process of a session: %v", err)
	}
}

// TestWhoHasGoneIsNobody: what Linux says of the number of a process that connected and
// ended may be another's.
func TestWhoHasGoneIsNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accept := func() peer {
		t.Helper()
		c, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return peerOf(c)
	}
	own, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := accept().admit(os.Geteuid(), nil); err != nil {
		t.Errorf("a process that lives: %v", err)
	}
	const connects = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
	if out, err := exec.Command("/usr/bin/python3", "-I", "-c", connects, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := accept().admit(os.Geteuid(), nil); err == nil || !strings.Contains(err.Error(), "process") {
		t.Errorf("a process that has ended: %v", err)
	}
}

// TestForeignUsersNameOnlyTheirOwn directories, and only where nobody can exchange them.
func TestForeignUsersNameOnlyTheirOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give directories away")
	}
	const user = 12345
	root := t.TempDir()
	for path, owner := range map[string]int{"theirs": user, "ours": 0, "open/theirs": user, "theirs/deeper": user} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	p, err := newPlaces([]api.Root{{Path: root}})
	if err != nil {
		t.Fatal(err)
	}
	for dir, fine := range map[string]bool{"theirs": true, "ours": false, "open/theirs": false, "theirs/deeper": false, ".": false} {
		if _, a := p.find(uidCaller(user), dir, false, 0); (a == nil) != fine {
			t.Errorf("%s: %+v", dir, a)
		}
	}
	if _, a := p.find(uidCaller(user), "new", true, 0); a == nil {
		t.Error("a directory was made for another user")
	}
	if _, a := p.find(uidCaller(0), "theirs/deeper", false, 0); a != nil {
		t.Errorf("control: the server's own user: %+v", a)
	}
}

// TestDirectoriesStayBeneathTheRoots: whatever is named.
func TestDirectoriesStayBeneathTheRoots(t *testing.T) {
	top := t.TempDir()
	root, other := filepath.Join(top, "root"), filepath.Join(top, "other")
	for _, dir := range []string{root + "/a/b", other, top + "/root-2", top + "/mine"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"out": other, "in": "a", "a/up": "../.."} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(root+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := newPlaces([]api.Root{{Path: root}, {Caller: "token:ci", Path: top + "/mine"}})
	if err != nil {
		t.Fatal(err)
	}
	us := uidCaller(os.Geteuid())
	for _, c := range []struct {
		who  caller
		dir  string
		make bool
		want string // empty: refused
	}{
		{us, "a", false, root + "/a"},
		{us, root + "/a/b", false, root + "/a/b"},
		{us, root, false, root},
		{us, "a/../a", false, root + "/a"},
		{us, "new/deep", true, root + "/new/deep"},
		{"token:ci", top + "/mine", false, top + "/mine"},
		{us, top + "/mine", false, ""},
		{"token:ci", "a", false, ""}, // two roots: which?
		{us, "", false, ""},
		{us, "absent", false, ""},
		{us, "file", false, ""},
		{us, "..", false, ""},
		{us, "a/../../other", false, ""},
		{us, other, false, ""},
		{us, top + "/root-2", false, ""},
		{us, "/", false, ""},
		{us, "/etc", false, ""},
		{us, "out", false, ""},
		{us, "out/x", true, ""},
		{us, "in", false, ""},
		{us, "a/up/other", true, ""},
		{us, "a\x00b", false, ""},
		{us, strings.Repeat("a/", 3000), true, ""},
	} {
		got, a := p.find(c.who, c.dir, c.make, os.Geteuid())
		if got != c.want || (a == nil) != (c.want != "") {
			t.Errorf("%s %.60q: %q, %+v", c.who, c.dir, got, a)
		}
		if a != nil && a.status != http.StatusForbidden && a.status != http.StatusBadRequest {
			t.Errorf("%.60q: %d", c.dir, a.status)
		}
	}
	if entries, err := os.ReadDir(other); err != nil || len(entries) != 0 {
		t.Errorf("something was made outside: %v %v", entries, err)
	}
	for _, bad := range []string{"/", "/nowhere", root + "/file"} {
		if _, err := newPlaces([]api.Root{{Path: bad}}); err == nil {
			t.Errorf("root %s was accepted", bad)
		}
	}
}

// TestIDsAreNotGuessed: they are random, long, and fit into names and addresses.
func TestIDsAreNotGuessed(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := newID()
		if seen[id] || len(id) < 28 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567-") != "" {
			t.Fatalf("%q", id)
		}
		seen[id] = true
	}
}

// TestConfigurationsPassAsJSON: what the command hands over arrives as it was.
func TestConfigurationsPassAsJSON(t *testing.T) {
	l := serve(t, func(c *api.Config) {
		text, err := json.Marshal(*c)
		if err != nil {
			t.Fatal(err)
		}
		var again api.Config
		if err := api.Decode(strings.NewReader(string(text)), &again); err != nil {
			t.Fatal(err)
		}
		*c = again
	})
	if r := l.run(l.create(""), strconv.Itoa(6)+"*7"); r.Details.Value == nil || *r.Details.Value != "42" {
		t.Errorf("%+v", r.Details)
	}
}

// Who may not ask holds no connection that others could have had.
func TestARefusedCallerLosesItsConnection(t *testing.T) {
	l := serve(t, nil)
	for _, c := range []struct {
		header string
		closes bool
	}{{"Origin: http://evil.example", true}, {"Authorization: Bearer none-none-none-none-none-none-none", true}, {"Authorization: Bearer " + token, false}} {
		answer := l.start(t.Context(), l.loopback(), "http://"+l.tcp, "GET", "/v1/sessions", "", c.header)
		answer.Body.Close()
		if answer.Close != c.closes {
			t.Errorf("%.20s: status %d, connection closes: %v", c.header, answer.StatusCode, answer.Close)
		}
	}
}
