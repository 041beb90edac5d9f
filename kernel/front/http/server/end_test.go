package server

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
)

// TestTheEndLetsCellsEnd: what runs when the server is asked to end comes to its result,
// what comes after that is refused, and nothing is left behind.
func TestTheEndLetsCellsEnd(t *testing.T) {
	l := serve(t, nil)
	s := l.create("")
	result := make(chan kernel.Result, 1)
	go func() {
		result <- l.run(s, "import os, time\nopen('up', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.02)\n'whole'")
	}()
	eventually(t, "the cell runs", func() bool { _, err := os.Stat(l.root + "/a/up"); return err == nil })
	l.drain()
	// A call that comes before the server has noticed would wait for the one that runs.
	eventually(t, "the server drains", func() bool { return l.ask("GET", "/v1/health", "").code() == api.CodeShuttingDown })
	if g := l.ask("POST", s+"/run", `{"code": "1"}`); g.code() != api.CodeShuttingDown {
		t.Errorf("something new is let in: %d %s", g.status, g.body)
	}
	if err := os.WriteFile(l.root+"/a/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := <-result; r.Details.Value == nil || *r.Details.Value != "'whole'" {
		t.Errorf("%+v", r.Details)
	}
	eventually(t, "the server ends", func() bool { return len(l.served) == 1 })
	if _, err := os.Lstat(l.socket); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}

// TestTheEndWaitsForNoCellForever: what goes on after the bound, or a second signal, is
// aborted, and its caller is told.
func TestTheEndWaitsForNoCellForever(t *testing.T) {
	for _, how := range []string{"bound", "second signal"} {
		l := serve(t, func(c *api.Config) {
			if how == "bound" {
				c.Bounds.Drain = 200 * time.Millisecond
			}
		})
		s := l.create("")
		result := make(chan string, 1)
		go func() {
			code := "import time\nopen('up', 'w').close()\ntime.sleep(600)"
			body, _ := json.Marshal(api.Run{Code: &code})
			result <- l.ask("POST", s+"/run", string(body)).body
		}()
		eventually(t, "the cell runs", func() bool { _, err := os.Stat(l.root + "/a/up"); return err == nil })
		l.drain()
		if how != "bound" {
			l.now()
		}
		if text := <-result; !strings.Contains(text, kernel.KernelKilled) {
			t.Errorf("%s: %s", how, text)
		}
		eventually(t, "the server ends", func() bool { return len(l.served) == 1 })
	}
}
