package server

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/policy"
)

// FuzzCreate: whatever a request for a session says, the session's options are the
// operator's or tighter.
func FuzzCreate(f *testing.F) {
	for _, body := range []string{
		`{"directory": "a"}`, `{"directory": "a", "mode": "off"}`, `{"mode": "enforce", "net": "none", "onTimeout": "interrupt"}`,
		`{"limits": {"memory": "256MiB", "tasks": "64"}}`, `{"limits": {"memory": "9999999999999999999GiB"}}`, `{"limits": {"memory": "max"}}`,
		`{"timeoutSeconds": 5, "maxOutput": 100, "idleSeconds": 30}`, `{"timeoutSeconds": 1e300, "idleSeconds": -1e-300}`, `{"maxOutput": -9223372036854775808}`,
		`{"tools": [{"name": "a.b"}]}`, `[]`, `null`, `{"directory": "a"} {}`,
	} {
		f.Add([]byte(body))
	}
	s := &Server{limits: policy.Limits{MemoryBytes: 1 << 30, Tasks: 100}}
	s.config.Bounds = api.DefaultBounds()
	s.config.Bounds.Idle = time.Minute
	s.config.Session = api.Options{Python: "/usr/bin/python3", Mode: policy.Report, Profile: kernel.DefaultProfile, Tier: kernel.TierJail,
		CellTimeout: 20 * time.Second, MaxOutput: 1000, OnTimeout: kernel.TimeoutKill}
	s.config.Session.Limits = s.limits
	f.Fuzz(func(t *testing.T, body []byte) {
		var c api.Create
		if api.Decode(bytes.NewReader(body), &c) != nil {
			return
		}
		if _, a := tools(c.Tools); a != nil {
			return
		}
		theirs := s.config.Session.Kernel()
		o, idle, a := s.tighten(c, "/somewhere")
		if a != nil {
			if a.status < 400 || a.status > 499 {
				t.Errorf("%s: %+v", body, a)
			}
			return
		}
		if slices.Index(modes, o.Mode) < slices.Index(modes, theirs.Mode) || o.Net != theirs.Net && o.Net != policy.NetNone {
			t.Errorf("%s: mode %s, net %s", body, o.Mode, o.Net)
		}
		if o.CellTimeout <= 0 || o.CellTimeout > theirs.CellTimeout || o.MaxOutput <= 0 || o.MaxOutput > theirs.MaxOutput || idle <= 0 || idle > s.config.Bounds.Idle {
			t.Errorf("%s: timeout %v, output %d, idle %v", body, o.CellTimeout, o.MaxOutput, idle)
		}
		for _, name := range policy.LimitNames() {
			if most, got := *s.limits.Field(name), *o.Limits.Field(name); most != 0 && (got <= 0 || got > most) {
				t.Errorf("%s: limit %s is %d", body, name, got)
			}
		}
		// What no request has a field for is as the operator has it.
		o.SessionDir, o.Mode, o.Net, o.CellTimeout, o.MaxOutput, o.Limits, o.OnTimeout = theirs.SessionDir, theirs.Mode, theirs.Net, theirs.CellTimeout, theirs.MaxOutput, theirs.Limits, theirs.OnTimeout
		if !reflect.DeepEqual(o, theirs) {
			t.Errorf("%s: %+v, not %+v", body, o, theirs)
		}
	})
}

// FuzzBodies: a body that is taken says the same when it is written down and read again.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{`{"code": "1"}`, `{"answers": [{"question": 1, "value": {}}]}`, `{"reset": true, "purpose": "eval"}`, `{}`, `{"code": "1"}x`, "{\"code\": \"\xff\"}"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, r := range routes() {
			if r.body == nil {
				continue
			}
			into := reflect.New(reflect.TypeOf(r.body))
			if api.Decode(bytes.NewReader(body), into.Interface()) != nil {
				continue
			}
			text, err := json.Marshal(into.Interface())
			if err != nil {
				t.Fatalf("%s %s: %q: %v", r.method, r.path, body, err)
			}
			again := reflect.New(reflect.TypeOf(r.body))
			if err := api.Decode(bytes.NewReader(text), again.Interface()); err != nil {
				t.Errorf("%s %s: %q, written %q: %v", r.method, r.path, body, text, err)
			}
			second, _ := json.Marshal(again.Interface())
			if !bytes.Equal(text, second) {
				t.Errorf("%s %s: %q, then %q", r.method, r.path, text, second)
			}
		}
	})
}
