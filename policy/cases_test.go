package policy

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestCasesAreReadStrictly(t *testing.T) {
	text, err := os.ReadFile("../integration/testdata/trial/team_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := ParseCases("team_test.yaml", text)
	if err != nil || len(f.Cases) < 30 || len(f.Modes) != 2 || f.Policy != "team.yaml" {
		t.Fatalf("%v %+v", err, f)
	}
	for _, c := range f.Cases {
		if c.Name == "" || c.Line == 0 || len(c.Expect) == 0 {
			t.Errorf("%+v", c)
		}
	}
	const head = "policy: p\nfiles:\n  - {path: \"${session}/f\", text: x}\ncases:\n"
	for _, c := range []struct{ text, want string }{
		{"policy: p\n", "has no cases"},
		{"policy: p\ncases: []\n", "no cases"},
		{"policy: p\nmode: x\ncases: []\n", `:2: unknown key "mode"`},
		{"policy: p\nmodes: []\ncases: []\n", ":2: modes is an empty list"},
		{"policy: p\nmodes: [report, report]\ncases: []\n", "stands twice"},
		{"policy: p\nmodes: [sometimes]\ncases: []\n", "choose from off"},
		{head + "  - {op: write /x}\n", ":5: a case has no expect"},
		{head + "  - {op: write /x, expect: maybe}\n", `:5: expect is "maybe"`},
		{head + "  - {op: write /x, expect: {}}\n", "empty mapping"},
		{head + "  - {op: write /x, expect: {never: deny}}\n", `unknown key "never"`},
		{head + "  - {expect: deny}\n", "neither or both"},
		{head + "  - {op: write /x, cell: x, expect: deny}\n", "neither or both"},
		{head + "  - {op: burn /x, expect: deny}\n", `:5: op "burn /x"`},
		{head + "  - {op: write, expect: deny}\n", "write write PATH"},
		{head + "  - {op: write /x /y, expect: deny}\n", "write write PATH"},
		{head + "  - {op: rename /x, expect: deny}\n", "write rename OLD NEW"},
		{head + "  - {op: write x, expect: deny}\n", "is not absolute"},
		{head + "  - {op: write /x/../y, expect: deny}\n", "is not clean"},
		{head + "  - {op: [write, [x]], expect: deny}\n", "a word of op"},
		{head + "  - {op: \"write ${nowhere}/x\", expect: deny}\n", "unknown variable"},
		{head + "  - {op: \"connect example.com:443\", expect: deny}\n", "a name is asked for in a cell"},
		{head + "  - {op: bind 0, expect: deny}\n", "from 1 to 65535"},
		{head + "  - {op: tool a.*, expect: deny}\n", `tool "a.*"`},
		{head + "  - {op: 'tool a.b {', expect: deny}\n", "not JSON"},
		{head + "  - {op: write /x, expect: allow, errno: EACCES}\n", "without an expected denial"},
		{head + "  - {op: write /x, expect: deny, errno: denied}\n", `errno "denied"`},
		{head + "  - {op: tool a.b, expect: deny, errno: EACCES}\n", "of a host call"},
		{head + "  - {op: write /x, expect: deny, role: extension}\n", "belong to host calls"},
		{head + "  - {cell: x, expect: allow, rule: r}\n", "rule of a cell"},
		{head + "  - {op: write /x, expect: deny}\n  - {op: write /x, expect: deny}\n", `:6: case "write /x" stands twice, first on line 5`},
		{"policy: p\nfiles:\n  - {path: x}\ncases: []\n", "is not absolute"},
		{"policy: p\nfiles:\n  - {path: /tmp/x}\ncases: []\n", "private /tmp"},
		{"policy: p\nfiles:\n  - {path: \"${session}/d/\", text: x}\ncases: []\n", "a directory with a text"},
		{"policy: p\nfiles:\n  - {path: /x}\n  - {path: /x}\ncases: []\n", "stands twice"},
		{"policy: p\nfiles:\n  - {path: /x, exec: perhaps}\ncases: []\n", "true or false"},
		{"[]", "the file is a list"},
	} {
		_, err := ParseCases("f", []byte(c.text))
		var told *Error
		if !errors.As(err, &told) || !strings.Contains(err.Error(), c.want) || told.Do == "" {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	c, err := ParseCases("f", []byte("policy: p\nmodes: [report, enforce]\ncases:\n  - {op: [write, \"/a b\"], expect: deny}\n  - {op: 'tool a.b {\"x\": \"a b\"}', expect: {shadow: allow}}\n"))
	if err != nil || c.Cases[0].Op[1] != "/a b" || len(c.Cases[0].Expect) != 2 || c.Cases[1].Op[2] != `{"x": "a b"}` || len(c.Cases[1].Order()) != 1 {
		t.Errorf("%v %+v", err, c)
	}
}

func FuzzParseCases(f *testing.F) {
	f.Add("policy: p\nfiles:\n  - {path: \"${session}/f\", text: x, exec: true}\ncases:\n  - {op: rename /a /b, expect: {enforce: deny}, rule: r, errno: EACCES}\n")
	f.Add("policy: p\ncases: [{cell: x, expect: allow}, {op: [tool, a.b], expect: deny}]\n")
	f.Add(`{"policy": "p", "cases": [{"op": "connect [::1]:80", "expect": "deny"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := ParseCases("f", []byte(text))
		if err != nil {
			var told *Error
			if !errors.As(err, &told) || told.Line < 1 {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, c := range file.Cases {
			if (len(c.Op) == 0) == (c.Cell == "") || c.Name == "" || len(c.Expect) == 0 || len(c.Op) > 3 {
				t.Fatalf("%+v", c)
			}
		}
	})
}
