package audit

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func exported(t *testing.T, f Format, records ...Record) string {
	t.Helper()
	var log []byte
	for i, r := range records {
		r.Seq, r.Prev = int64(i+1), Genesis
		line, err := appendRecord(nil, &r)
		must(t, err)
		log = append(append(log, line...), '\n')
	}
	var out bytes.Buffer
	must(t, Export(&out, bytes.NewReader(log), f, "host-1"))
	if f == JSONLines && out.String() != string(log) {
		t.Errorf("JSON lines are not the records as they are:\n%s\n%s", out.String(), log)
	}
	return out.String()
}

func TestNoCellOfACSVIsAFormula(t *testing.T) {
	exported(t, JSONLines, event("write", "/a"))
	for _, nasty := range []string{`=cmd|'/C calc'!A0`, "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "|x", "%x", "'=1", "\n=1"} {
		out := exported(t, CSV, Record{Op: nasty, Target: nasty, Reason: nasty, Program: nasty, Source: SourceDeclared})
		rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		must(t, err)
		if len(rows) != 2 || len(rows[1]) != len(columns) {
			t.Fatalf("%q: %q", nasty, rows)
		}
		for i, cell := range rows[1] {
			if strings.IndexAny(strings.TrimLeft(cell, " \ufffd"), "=+-@|%＝") == 0 || strings.ContainsAny(cell, "\t\r\n") {
				t.Errorf("%q: column %s is %q", nasty, columns[i], cell)
			}
		}
	}
	out := exported(t, CSV, event("write", "/etc/a,b\"c"))
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	must(t, err)
	if rows[1][9] != "/etc/a,b\"c" || rows[1][10] != Denied {
		t.Errorf("%q", rows)
	}
}

func TestOCSFEventsHaveWhatTheirClassRequires(t *testing.T) {
	would := event("chmod", "/etc/x")
	would.Decision = WouldDeny
	for _, c := range []struct {
		record                           Record
		class, activity, action, outcome float64
		has                              string
	}{
		{event("write", "/etc/hosts"), 1001, 3, 2, 2, "file"},
		{event("remove", "/etc/hosts"), 1001, 4, 2, 2, "file"},
		{event("unlink", "/etc/hosts"), 1001, 4, 2, 2, "file"},
		{event("something-new", "/etc/hosts"), 1001, 3, 2, 2, "file"},
		{would, 1001, 7, 3, 17, "file"},
		{event("exec", "/bin/sh"), 1007, 1, 2, 2, "process"},
		{event("connect", "192.0.2.1:80"), 4001, 1, 2, 2, "dst_endpoint"},
		{Record{Op: OpSessionStart, Source: SourceKernel}, 6002, 3, 0, 0, "app"},
		{Record{Op: OpCellStart, Source: SourceKernel}, 6002, 99, 0, 0, "app"},
		{Record{Op: OpHostCall, Target: "input", Decision: Allowed, Source: SourceHost}, 6003, 99, 1, 1, "api"},
	} {
		var e map[string]any
		must(t, json.Unmarshal([]byte(exported(t, OCSF, c.record)), &e))
		if e["class_uid"] != c.class || e["activity_id"] != c.activity || e["type_uid"] != c.class*100+c.activity ||
			e["category_uid"] != float64(int(c.class)/1000) || e[c.has] == nil || e["time"] == nil || e["severity_id"] == nil {
			t.Errorf("%s: %v", c.record.Op, e)
		}
		if c.action != 0 && (e["action_id"] != c.action || e["disposition_id"] != c.outcome) {
			t.Errorf("%s: action %v, disposition %v", c.record.Op, e["action_id"], e["disposition_id"])
		}
		if m := e["metadata"].(map[string]any); m["version"] != ocsfVersion || m["product"] == nil {
			t.Errorf("metadata: %v", m)
		}
	}
}

func TestALineThatIsNoRecordIsLeftOutAndSaid(t *testing.T) {
	line, err := appendRecord(nil, &Record{Seq: 1, Op: "write", Source: SourceOS, Prev: Genesis})
	must(t, err)
	for _, f := range Formats() {
		var out bytes.Buffer
		err := Export(&out, strings.NewReader("nonsense\n"+string(line)+"\ntorn"), f, "h")
		var skipped *Skipped
		if !errors.As(err, &skipped) || len(skipped.Lines) != 2 || skipped.Lines[0] != 1 || !strings.Contains(out.String(), "write") {
			t.Errorf("%s: %v\n%s", f, err, out.String())
		}
	}
}
