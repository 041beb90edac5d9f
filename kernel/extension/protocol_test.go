package extension

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// PROTOCOL.md, the worker's table of requests, and what the launcher sends are one.
func TestTheProtocolIsWhatTheWorkerTakes(t *testing.T) {
	text, err := os.ReadFile("../wire/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, ok := strings.Cut(string(text), "| extension op |")
	if !ok {
		t.Fatal("PROTOCOL.md has no table of extension ops")
	}
	l := launch(t)
	const ask = "import sys, json; sys.path.insert(0, sys.argv[1]); from _extension import serve; print(json.dumps({o: {n: r for n, (k, r) in f.items()} for o, f in serve.OPS.items()}))"
	out, err := exec.Command(l.Python, "-I", "-B", "-c", ask, l.Source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var ops map[string]map[string]bool
	if err := json.Unmarshal(out, &ops); err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| to worker \\| (.*?) \\|")
	word := regexp.MustCompile("`(\\w+)`")
	rows := row.FindAllStringSubmatch(chapter, -1)
	if len(rows) != len(ops) {
		t.Errorf("%d rows, %d ops", len(rows), len(ops))
	}
	for _, r := range rows {
		required, optional, _ := strings.Cut(r[2], "optional")
		fields, known := ops[r[1]]
		if !known {
			t.Errorf("the worker has no %s", r[1])
		}
		for name, needed := range fields {
			part := optional
			if needed {
				part = required
			}
			if !slices.ContainsFunc(word.FindAllStringSubmatch(part, -1), func(m []string) bool { return m[1] == name }) {
				t.Errorf("%s: field %s is not told, or not as required as it is", r[1], name)
			}
		}
		if told := len(word.FindAllString(r[2], -1)); told != len(fields) {
			t.Errorf("%s: %d fields are told of %d", r[1], told, len(fields))
		}
	}
}
