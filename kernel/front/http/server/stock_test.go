package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cellblock/kernel/front/http/api"
)

// metric is a number of /v1/metrics; -1 when it is not there.
func (l *live) metric(name string) int {
	l.t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` (\d+)$`).FindStringSubmatch(l.ask("GET", "/v1/metrics", "").body)
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// fromStock reports whether a session's worker was ready before it.
func (l *live) fromStock(session string) bool {
	l.t.Helper()
	var s api.Session
	if g := l.ask("GET", session, ""); json.Unmarshal([]byte(g.body), &s) != nil {
		l.t.Fatalf("%d %s", g.status, g.body)
	}
	return s.Info.Stock
}

// TestSessionsFromStock: a server that keeps workers ready gives them to sessions, which
// are as others: their own directory and none beside it. One that asks for other limits gets
// a worker of its own kind. The numbers tell.
func TestSessionsFromStock(t *testing.T) {
	for _, way := range []string{"exec", "fork"} {
		t.Run(way, func(t *testing.T) { sessionsFromStock(t, way) })
	}
}

func sessionsFromStock(t *testing.T, way string) {
	l := serve(t, func(c *api.Config) { c.Stock = api.Stock{Workers: 2, Memory: 256 << 20, Way: way} })
	made := func(dir, more string) string {
		t.Helper()
		s := l.createIn(dir, `, "make": true`+more)
		if r := l.run(s, "import os; os.getcwd()"); r.Details.Value == nil || *r.Details.Value != "'"+l.root+"/"+dir+"'" {
			t.Fatalf("%s: %+v", dir, r.Details)
		}
		return s
	}
	// The first of its kind finds none, and tells what is wanted.
	if s := made("one", ""); l.fromStock(s) || l.metric("cellblock_stock_missed_total") != 1 {
		t.Errorf("the first session: %d missed", l.metric("cellblock_stock_missed_total"))
	}
	eventually(t, "a worker is ready", func() bool { return l.metric("cellblock_stock_ready") > 0 })
	s := made("two", "")
	if !l.fromStock(s) || l.metric("cellblock_stock_given_total") != 1 {
		t.Errorf("the second session is not from stock: %d given", l.metric("cellblock_stock_given_total"))
	}
	if r := l.run(s, "open('own', 'w').write('x')"); r.IsError {
		t.Errorf("its own directory: %+v", r.Details)
	}
	for _, path := range []string{"../one/x", "../new"} {
		if r := l.run(s, fmt.Sprintf("open(%q, 'w')", path)); !r.IsError || r.Details.Error.Name != "OSError" && r.Details.Error.Name != "PermissionError" {
			t.Errorf("%s: %+v", path, r.Details)
		}
	}
	if other := made("three", `, "limits": {"memory": "300MiB"}`); l.fromStock(other) {
		t.Error("a session with other limits got a worker with these")
	}
	if l.metric("cellblock_stock_failed_total") != 0 || strings.Contains(l.log.String(), `"msg":"stock"`) {
		t.Errorf("the log: %s", l.log.String())
	}
}

// TestStocksThatCannotBe: the start says so.
func TestStocksThatCannotBe(t *testing.T) {
	for want, s := range map[string]api.Stock{"-1 workers": {Workers: -1}, "hold no worker": {Workers: 1, Memory: 1}, "want exec or fork": {Workers: 1, Memory: 1 << 30, Way: "spawn"}} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if _, err := openStocks(api.Stock{Workers: 1, Memory: 1 << 30}, places{{Path: "/tmp"}}, nil); err == nil || !strings.Contains(err.Error(), "use another") {
		t.Errorf("%v", err)
	}
	if all, err := openStocks(api.DefaultStock(), places{{Path: "/tmp"}}, nil); all != nil || err != nil || all.of("/tmp/a") != nil {
		t.Errorf("no stock is asked for: %v, %v", all, err)
	}
}
