package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"cellblock/kernel/host"
)

func TestACellYieldsItsTurn(t *testing.T) {
	o := withTools(t, host.Tool{Name: "t.echo", Do: echo},
		host.Tool{Name: "t.wait", Do: func(context.Context, host.Call) (json.RawMessage, error) {
			return nil, &host.Error{Code: host.CodeYield, Message: "for the review"}
		}})
	tiers(t, o, func(t *testing.T, s *Session) {
		for code, text := range map[string]string{
			"import cellblock\nprint('out')\nraise cellblock.TurnYield({'after': 5})": "out\n[turn yielded]\n{'after': 5}",
			"t.wait()": "[turn yielded]\nfor the review",
			"try: t.wait()\nexcept BaseException: pass\ntry: t.echo()\nexcept Exception as e: print(type(e).__name__)": "ScopeClosed\n[turn yielded]",
		} {
			if r := run(t, s, code); r.IsError || !r.Details.Yielded || r.Text() != text || r.Details.Status != StatusOK {
				t.Errorf("%q: %q, %+v", code, r.Text(), r.Details)
			}
		}
		if r := run(t, s, "t.echo(n=1)"); r.IsError || r.Details.Yielded || r.Text() != "{'n': 1}" {
			t.Errorf("the next cell: %s", r.Text())
		}
	})
}

func TestLateOutputSaysWhichScopeItIsOf(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		run(t, s, `
import threading, subprocess
go = threading.Event()
def late(): go.wait(); print("€" * 5000)
thread = threading.Thread(target=late); thread.start()
child = subprocess.Popen(["python3", "-c", "import os, sys; sys.stdin.read(); os.write(1, '€'.encode() * 3000)"], stdin=subprocess.PIPE);`)
		r := run(t, s, "go.set(); thread.join(); child.communicate(b''); 'mine'")
		if r.Details.Stdout != "" || *r.Details.Value != "'mine'" {
			t.Errorf("%q, %v", r.Details.Stdout, r.Details.Value)
		}
		found := r.Details.Outputs
		text := r.Text()
		for range 100 {
			if len(found) > 1 {
				break
			}
			r = run(t, s, "")
			found = append(found, r.Details.Outputs...)
			text += r.Text()
		}
		got := 0
		for _, f := range found {
			if !f.Background || f.Origin != s.name+"/1" || strings.Trim(f.Text, "€\n") != "" || utf8.RuneCountInString(f.Text) > 4096 {
				t.Errorf("%+v", f)
			}
			got += strings.Count(f.Text, "€")
		}
		if got != 4096+3000 || !strings.Contains(text, "[background origin="+s.name+"/1] €") {
			t.Errorf("%d of 7096: %.200s", got, text)
		}
	})
}

func TestTheOutputOfAScopeIsBounded(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		r := run(t, s, `print("é" * 50000, end="")`)
		if len(r.Details.Outputs) != 1 || len(r.Details.Outputs[0].Text) != 65536 || r.Details.TruncatedBytes != 100000-65536 {
			t.Errorf("%d records, %d bytes left out", len(r.Details.Outputs), r.Details.TruncatedBytes)
		}
		r = run(t, s, `print("x" + "é" * 50000, end="")`)
		if n := len(r.Details.Outputs[0].Text); n != 65535 || !utf8.ValidString(r.Details.Outputs[0].Text) || r.Details.TruncatedBytes != 100001-65535 {
			t.Errorf("%d bytes, %d left out", n, r.Details.TruncatedBytes)
		}
		r = run(t, s, `
import sys, time
for i in range(150):
    for stream in (sys.stdout, sys.stderr):
        stream.write(f"{i}\\n"); stream.flush(); time.sleep(0.002)`)
		records, bytes := r.Details.Outputs, int64(0)
		for i, o := range records {
			if i > 0 && o.Stream == records[i-1].Stream {
				t.Errorf("records %d and %d are of one stream", i-1, i)
			}
			bytes += int64(len(o.Text))
		}
		if whole := int64(len(r.Details.Stdout) + len(r.Details.Stderr)); len(records) > 256 || bytes+r.Details.TruncatedBytes != whole {
			t.Errorf("%d records, %d bytes and %d left out of %d", len(records), bytes, r.Details.TruncatedBytes, whole)
		}
		// A worker that names an origin of its own making.
		fake := withFake(t, `say({"id": m["id"], "value": {"status": "ok", "background": [{"origin": o, "stream": "stdout", "text": "x"} for o in ("1", "99", "s9/1", "] root", "unassigned")]}})`, Options{})
		r = run(t, fake, "1")
		for i, o := range r.Details.Outputs {
			if want := []string{fake.name + "/1", "unassigned", "unassigned", "unassigned", "unassigned"}[i]; o.Origin != want {
				t.Errorf("%d: %s, want %s", i, o.Origin, want)
			}
		}
		if strings.Contains(r.Text(), "root") || len(r.Details.Outputs) != 5 {
			t.Error(fmt.Sprint(r.Text(), len(r.Details.Outputs)))
		}
	})
}
