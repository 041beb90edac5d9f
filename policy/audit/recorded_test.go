package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"cellblock/policy"
)

// recordingOf is what a log of these records tells.
func recordingOf(t *testing.T, records ...Record) Recording {
	t.Helper()
	l := newLog(t, Options{})
	must(t, l.Append(records...))
	must(t, l.Close())
	data, err := os.ReadFile(l.Path())
	must(t, err)
	out, err := Operations(bytes.NewReader(data))
	must(t, err)
	return out
}

func startOf(directory string) Record {
	return Record{Session: "s1", Op: OpSessionStart, Source: SourceKernel, Policy: "0123456789abcdef",
		Facts: map[string]any{"directory": directory, "home": "/home/u", "state": []string{"/home/u/.local/state/cellblock"}, "mode": "report"}}
}

func denied(op, target string, facts map[string]any) Record {
	return Record{Session: "s1", Op: op, Target: target, Decision: WouldDeny, Rule: "default.write", Source: SourceOS, Facts: facts}
}

func TestWhatARecordTellsOfOperations(t *testing.T) {
	merged := denied("write", "/b", nil)
	merged.Count = 6
	flood := denied("write", "", nil)
	flood.Count = 9
	got := recordingOf(t,
		startOf("/srv/s1"),
		Record{Op: OpCellStart, Source: SourceKernel},
		denied("write", "/a", map[string]any{FactCreates: true}),
		denied("write", "/b", nil), merged, flood, denied("write", "(further paths)", nil),
		denied("write", "/a", nil),
		Record{Op: OpHostCall, Target: "input", Decision: Allowed, Source: SourceHost},
		Record{Op: OpHostCall, Target: "mail.send", Decision: Denied, Rule: "default.tools", Source: SourceHost},
		Record{Op: OpWorkerFail, Decision: Incomplete, Source: SourceKernel},
		Record{Op: OpSessionEnd, Source: SourceKernel},
		startOf("/srv/s2"),
		denied("connect", "192.0.2.1:53", map[string]any{FactProto: "udp"}),
	)
	if len(got.Runs) != 2 || got.Runs[0].Directory != "/srv/s1" || got.Runs[1].Directory != "/srv/s2" || got.Runs[0].Home != "/home/u" ||
		len(got.Runs[0].State) != 1 || got.Runs[0].Mode != policy.Report || got.Runs[0].Policy != "0123456789abcdef" {
		t.Errorf("%+v", got.Runs)
	}
	var told []string
	for _, o := range got.Operations {
		told = append(told, fmt.Sprintf("%d %s %s x%d %v %s", o.Run, o.Op, o.Target, o.Count, o.Creates, o.Proto))
	}
	want := "0 write /a x2 true |0 write /b x7 false |0 host.call mail.send x1 false |1 connect 192.0.2.1:53 x1 false udp"
	if strings.Join(told, "|") != want {
		t.Errorf("%s", strings.Join(told, "|"))
	}
	if got.Left != 10 {
		t.Errorf("%d are only counted", got.Left)
	}
}

func TestWhatCannotBeDecidedAgain(t *testing.T) {
	doc, err := policy.Parse("p.yaml", []byte(`version: 1
name: p
fs: {}
net: {mode: allow, allow: [{host: 192.0.2.1, port: 53, reason: r}, {host: a.example, port: 443, reason: r}]}
tools: {rules: [{tool: mail.send, schema: {type: object, required: [to]}, effect: allow, reason: r}, {tool: clock.now, effect: allow, reason: r}]}
`))
	must(t, err)
	p, _, err := policy.Compile(doc, policy.Facts{Mode: policy.Enforce, SessionDir: "/srv/s1"})
	must(t, err)
	for _, c := range []struct {
		op   Operation
		want string // of the effect, or a part of why there is none
	}{
		{Operation{Op: "write", Target: "/etc/x"}, "deny"},
		{Operation{Op: "exec", Target: "/bin/true"}, "allow"},
		{Operation{Op: "save", Target: "/etc/x", Source: SourceDeclared}, "deny"}, // a module's own word
		{Operation{Op: "write", Target: "/x/token=[masked field]"}, "masked"},
		{Operation{Op: "write", Target: "/" + strings.Repeat("x", maxTarget-40) + "… 99 bytes more"}, "cut off"},
		{Operation{Op: "write", Target: "relative"}, "no absolute path"},
		{Operation{Op: "connect", Target: "192.0.2.1:53"}, "allow"},
		{Operation{Op: "connect", Target: "192.0.2.1:53", Proto: "udp"}, "deny"},
		{Operation{Op: "connect", Target: "unix"}, "no host and port"},
		{Operation{Op: "connect", Target: "a.example:443", Source: SourceHost}, "allow"},
		{Operation{Op: "connect", Target: "a.example:443", Source: SourceHost, Addr: "127.0.0.1"}, "deny"}, // where its name led
		{Operation{Op: "connect", Target: "a.example:80", Source: SourceHost}, "deny"},
		{Operation{Op: "connect", Target: "127.0.0.1:443", Source: SourceHost}, "deny"}, // the host's loopback
		{Operation{Op: "connect", Target: "127.0.0.1:443"}, "allow"},                    // the session's own
		{Operation{Op: "lookup", Target: "a.example", Source: SourceHost}, "allow"},
		{Operation{Op: "lookup", Target: "b.example", Source: SourceHost}, "deny"},
		{Operation{Op: OpHostCall, Target: "clock.now"}, "allow"},
		{Operation{Op: OpHostCall, Target: "clock.set"}, "deny"},
		{Operation{Op: OpHostCall, Target: "mail.send"}, "arguments"},
	} {
		d, err := c.op.Decide(p)
		var cannot *UndecidableError
		switch {
		case errors.As(err, &cannot):
			if !strings.Contains(cannot.Why, c.want) {
				t.Errorf("%s %s: %s, want %s", c.op.Op, c.op.Target, cannot.Why, c.want)
			}
		case err != nil || string(d.Effect) != c.want:
			t.Errorf("%s %s: %v %+v, want %s", c.op.Op, c.op.Target, err, d, c.want)
		}
	}
}

// TestARunIsNotBelieved: a record's variables go into a policy, so what cannot be a
// directory is none.
func TestARunIsNotBelieved(t *testing.T) {
	for _, directory := range []any{nil, 7, "", "relative", "/", "/a/../b", "/a//b", "/a\nb", "/a\x00b", "/" + strings.Repeat("x", 5000), []any{"/a"}} {
		if run := runOf(Record{Op: OpSessionStart, Facts: map[string]any{"directory": directory, "home": directory, "state": []any{directory}}}); run.Directory != "" || run.Home != "" || len(run.State) != 0 {
			t.Errorf("%q was taken for a directory: %+v", directory, run)
		}
	}
	line := `{"seq":1,"time":"2026-01-01T00:00:00Z","op":"write","target":"/x","decision":"denied","source":"os","prev":"` + Genesis + `"}` + "\n"
	if _, err := Operations(strings.NewReader(line)); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("operations of no session: %v", err)
	}
}

func FuzzOperations(f *testing.F) {
	start := `{"seq":1,"time":"2026-01-01T00:00:00Z","session":"s","op":"session.start","source":"kernel","facts":{"directory":"/s","home":"/h","mode":"report"},"prev":"` + Genesis + `"}` + "\n"
	f.Add(start + `{"seq":2,"time":"2026-01-01T00:00:00Z","op":"write","target":"/etc/x","decision":"denied","source":"os","count":3,"facts":{"creates":true},"prev":"` + Genesis + `"}` + "\n")
	f.Add(start + `{"seq":2,"time":"2026-01-01T00:00:00Z","op":"connect","target":"[::1]:80","decision":"denied","source":"os","prev":"` + Genesis + `"}` + "\n")
	f.Add(start + `{"seq":2,"time":"2026-01-01T00:00:00Z","op":"host.call","target":"a.b","decision":"denied","source":"host","prev":"` + Genesis + `"}` + "\ntorn")
	f.Add("{}\nnot json\n")
	p, _, err := policy.Compile(policy.Document{Version: 1, Name: "p"}, policy.Facts{SessionDir: "/s"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Operations(strings.NewReader(text))
		if err != nil && len(got.Operations) > 0 {
			t.Fatalf("%v, and %d operations", err, len(got.Operations))
		}
		for _, o := range got.Operations {
			if o.Run < 0 || o.Run >= len(got.Runs) || o.Count < 1 || o.Line < 1 {
				t.Fatalf("%+v of %d runs", o, len(got.Runs))
			}
			first, err := o.Decide(p)
			again, _ := o.Decide(p)
			if err == nil && (first.Effect == "" || first.Effect != again.Effect) {
				t.Fatalf("%+v: %+v, then %+v", o, first, again)
			}
		}
	})
}
