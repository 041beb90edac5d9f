package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/policy"
)

// TestRequestsOnlyTighten: what is wider than the operator's is refused with a reason,
// what is tighter is in force, and what is no value is named.
func TestRequestsOnlyTighten(t *testing.T) {
	l := serve(t, func(c *api.Config) {
		c.Session.Mode = policy.Report
		c.Session.Limits = policy.Limits{MemoryBytes: 512 << 20}
		c.Session.CellTimeout = 20 * time.Second
		c.Session.MaxOutput = 1000
		c.Bounds.Idle = time.Minute
	})
	for _, c := range []struct {
		more string
		want int
		code api.Code
		says string
	}{
		{`, "mode": "off"`, 403, api.CodeWider, "off is wider than the operator's report"},
		{`, "mode": "sometimes"`, 400, api.CodeInvalid, "sometimes"},
		{`, "net": "host"`, 403, api.CodeWider, "operator's"},
		{`, "limits": {"memory": "1GiB"}`, 403, api.CodeWider, "memory"},
		{`, "limits": {"memory": "-1"}`, 400, api.CodeInvalid, "memory"},
		{`, "limits": {"memory": "1MiB"}`, 400, api.CodeInvalid, "too little"},
		{`, "limits": {"../x": "1"}`, 400, api.CodeInvalid, "there is no limit"},
		{`, "timeoutSeconds": 21`, 403, api.CodeWider, "20s"},
		{`, "timeoutSeconds": -1`, 400, api.CodeInvalid, "seconds"},
		{`, "timeoutSeconds": 1e300`, 400, api.CodeInvalid, "seconds"},
		{`, "idleSeconds": 0.5`, 400, api.CodeInvalid, "1s"},
		{`, "timeoutSeconds": "2s"`, 400, api.CodeInvalid, `"timeoutSeconds"`},
		{`, "maxOutput": 1001`, 403, api.CodeWider, "1000"},
		{`, "maxOutput": -1`, 400, api.CodeInvalid, "negative"},
		{`, "idleSeconds": 61`, 403, api.CodeWider, "1m0s"},
		{`, "onTimeout": "never"`, 400, api.CodeInvalid, "never"},
		{`, "name": "../x"`, 400, api.CodeInvalid, "name"},
		{`, "profile": "x"`, 400, api.CodeInvalid, `"profile"`},
		{`, "id": "s-mine"`, 400, api.CodeInvalid, `"id"`},
		{`, "policy": {}`, 400, api.CodeInvalid, `"policy"`},
		{`, "env": ["LD_PRELOAD=x"]`, 400, api.CodeInvalid, `"env"`},
	} {
		g := l.ask("POST", "/v1/sessions", `{"directory": "a"`+c.more+`}`)
		if g.status != c.want || g.code() != c.code || !strings.Contains(g.body, strings.ReplaceAll(c.says, `"`, `\"`)) {
			t.Errorf("%s: want %d %s %q, got %d %s", c.more, c.want, c.code, c.says, g.status, g.body)
		}
	}
	for _, body := range []string{``, `[]`, `{"directory": "a"} {}`, `{"directory": "a"} x`, `{"directory": 1}`, `null x`} {
		if g := l.ask("POST", "/v1/sessions", body, "Content-Type: application/json"); g.status != 400 {
			t.Errorf("%q: %d %s", body, g.status, g.body)
		}
	}

	s := l.create(`, "mode": "enforce", "net": "none", "limits": {"memory": "256MiB", "tasks": "64"}, "timeoutSeconds": 5, "maxOutput": 100, "idleSeconds": 30, "name": "job-1"`)
	var is api.Session
	if err := json.Unmarshal([]byte(l.ask("GET", s, "").body), &is); err != nil {
		t.Fatal(err)
	}
	if is.Name != "job-1" || is.TimeoutSeconds != 5 || is.IdleSeconds != 30 || is.Info.Mode != policy.Enforce {
		t.Errorf("%+v", is)
	}
	if r := l.run(s, "print('x' * 5000)"); len(r.Details.Stdout) > 500 {
		t.Errorf("maxOutput: %d characters", len(r.Details.Stdout))
	}
	if r := l.run(s, "open('/etc/x', 'w')"); r.Details.Error == nil || r.Details.Error.Name != "OSError" {
		t.Errorf("mode: %+v", r.Details)
	}
	// The limits are those of the jail.
	if err := json.Unmarshal([]byte(l.ask("GET", s, "").body), &is); err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(is.Info.Limits)
	for _, want := range []string{"268435456", "64"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("limits %s lack %s", text, want)
		}
	}
	// A cell's own time may be shorter than its session's, and no longer.
	if g := l.ask("POST", s+"/run", `{"code": "1", "timeoutSeconds": 6}`); g.status != 403 || g.code() != api.CodeWider {
		t.Errorf("%d %s", g.status, g.body)
	}
	var r kernel.Result
	if err := json.Unmarshal([]byte(l.ask("POST", s+"/run", `{"code": "import time; time.sleep(600)", "timeoutSeconds": 0.3}`).body), &r); err != nil || r.Details.Error == nil || r.Details.Error.Name != kernel.KernelTimeout {
		t.Errorf("%+v, %v", r.Details, err)
	}
}

// TestWhatIsFullIsSaid: each bound answers with what to do and when, for the caller that
// reached it, and lets others go on.
func TestWhatIsFullIsSaid(t *testing.T) {
	l := serve(t, func(c *api.Config) {
		c.Bounds.Sessions, c.Bounds.CallerSessions = 3, 2
		c.Bounds.Cells, c.Bounds.CallerCells, c.Bounds.Queue = 2, 1, 3
	})
	const bearer = "Authorization: Bearer " + token
	expect := func(g got, status int, code api.Code) {
		t.Helper()
		if g.status != status || g.code() != code || g.header.Get("Retry-After") == "" {
			t.Errorf("want %d %s with Retry-After, got %d %v %s", status, code, g.status, g.header, g.body)
		}
	}
	first := l.create("")
	second := l.create("")
	expect(l.ask("POST", "/v1/sessions", `{"directory": "a"}`), http.StatusTooManyRequests, api.CodeTooMany)
	var other api.Session
	made := l.port("POST", "/v1/sessions", `{"directory": "t", "make": true}`, bearer)
	if err := json.Unmarshal([]byte(made.body), &other); err != nil || made.status != 201 {
		t.Fatalf("another caller: %d %s", made.status, made.body)
	}
	expect(l.port("POST", "/v1/sessions", `{"directory": "u", "make": true}`, bearer), http.StatusServiceUnavailable, api.CodeBusy)
	if g := l.ask("DELETE", second, ""); g.status != 204 {
		t.Errorf("%d %s", g.status, g.body)
	}
	third := l.create("")

	stop := l.busy(first)
	expect(l.ask("POST", third+"/run", `{"code": "1"}`), http.StatusTooManyRequests, api.CodeTooMany)
	if g := l.port("POST", "/v1/sessions/"+other.ID+"/run", `{"code": "6*7"}`, bearer); g.status != 200 || !strings.Contains(g.body, "42") {
		t.Errorf("another caller: %d %s", g.status, g.body)
	}
	stop()
	eventually(t, "room again", func() bool { return l.ask("POST", third+"/run", `{"code": "1"}`).status == 200 })
	metrics := l.ask("GET", "/v1/metrics", "").body
	for _, want := range []string{"cellblock_sessions 3", `cellblock_refused_total{code="too many"}`, `cellblock_sessions_ended_total{cause="asked"} 1`, `cellblock_cells_total{outcome="ok"}`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// TestCallsOfASessionWait: they run one after the other, and as many wait as may.
func TestCallsOfASessionWait(t *testing.T) {
	l := serve(t, func(c *api.Config) { c.Bounds.Queue = 1 })
	s := l.create("")
	stop := l.busy(s)
	waits := make(chan kernel.Result, 1)
	go func() { waits <- l.run(s, "'waited'") }()
	eventually(t, "a call waits", func() bool { return strings.Contains(l.ask("GET", s, "").body, `"calls":2`) })
	if g := l.ask("POST", s+"/run", `{"code": "1"}`); g.status != http.StatusTooManyRequests || g.code() != api.CodeTooMany {
		t.Errorf("%d %s", g.status, g.body)
	}
	stop()
	if r := <-waits; r.Details.Value == nil || *r.Details.Value != "'waited'" {
		t.Errorf("%+v", r.Details)
	}
}

// TestUnusedSessionsEnd: and one in which a cell runs does not.
func TestUnusedSessionsEnd(t *testing.T) {
	l := serve(t, func(c *api.Config) { c.Bounds.Idle = time.Second })
	used := l.create("")
	stop := l.busy(used)
	unused := l.create("")
	eventually(t, "the unused one ends", func() bool { return l.ask("GET", unused, "").status == http.StatusNotFound })
	if g := l.ask("GET", used, ""); g.status != http.StatusOK {
		t.Errorf("the used one: %d %s", g.status, g.body)
	}
	stop()
	eventually(t, "it ends, too, when it is not used any more", func() bool { return l.ask("GET", "/v1/sessions", "").body == `{"sessions":[]}`+"\n" })
	if !strings.Contains(l.log.String(), `"cause":"idle"`) {
		t.Error("the log does not say why")
	}
}

// TestAClientThatGoesStopsItsCell: case H5. Nothing runs on, and the session is as it was.
func TestAClientThatGoesStopsItsCell(t *testing.T) {
	l := serve(t, nil)
	for _, how := range []string{"stream", "answer"} {
		s := l.create("")
		l.run(s, "x = 41")
		var stop func()
		if how == "stream" {
			stop = l.busy(s)
		} else {
			stop = l.dropped(s, `{"code": "import time; time.sleep(600)"}`)
		}
		stop()
		eventually(t, "no call runs", func() bool { return strings.Contains(l.ask("GET", s, "").body, `"calls":0`) })
		if r := l.run(s, "x + 1"); r.Details.Value == nil || *r.Details.Value != "42" || r.Details.StateLost {
			t.Errorf("%s: %+v", how, r.Details)
		}
	}
}
