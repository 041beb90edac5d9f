package policy

import (
	"fmt"
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	doc := parse(t, `version: 1
name: lint
fs:
  rules:
    - {path: "${session}", access: [write], effect: allow, reason: r}
    - {path: "${session}/a", access: [write], effect: allow, reason: r}
    - {path: "${session}/b", access: [write], effect: deny, reason: r}
    - {path: "${session}/b/c", access: [write], effect: deny, reason: r}
    - {id: lost, path: /srv/x/y, access: [write], effect: allow, reason: r}
    - {path: /srv/x, access: [read], effect: deny, reason: r}
    - {path: /usr, access: [read, exec], effect: allow, reason: r}
    - {path: /nowhere, access: [write], effect: allow, reason: r}
    - {path: "${home}/.ssh", access: [read], effect: deny, reason: r}
    - {path: /srv/data, access: [write], effect: allow, reason: r}
    - {path: /srv/data, access: [write], effect: allow, reason: r}
net:
  mode: allow
  allow:
    - {host: a.example, port: any, reason: r}
    - {host: a.example, port: 443, reason: r}
    - {host: 0.0.0.0/0, port: 443, reason: r}
tools:
  rules:
    - {tool: a.b, effect: allow, reason: r}
    - {tool: "a.*", effect: deny, reason: r}
limits: {shadow: 1GiB}
env: {pass: ["LD_*"]}
`)
	found := Lint(doc, Facts{SessionDir: "/s", Home: "/home/ann", Paths: map[string]Found{"/nowhere": {Path: "/nowhere"}}})
	want := []string{
		`1 warning  reading is open and nothing hides ${home}/.gnupg, ${home}/.aws`,
		`6 warning fs.2 unreachable: rule fs.1 on line 5 allows it already`,
		`8 warning fs.4 unreachable: rule fs.3 on line 7 denies it already`,
		`9 warning lost unreachable: rule fs.6 on line 10 denies all of it`,
		`11 warning fs.7 does nothing: read+exec is allowed by default`,
		`12 warning fs.8 dropped: /nowhere does not exist`,
		`15 warning fs.11 unreachable: rule fs.10 on line 14 allows it already`,
		`20 warning net.2 unreachable: line 19 lists it already`,
		`21 note net.3 does not open 127.0.0.0/8 within it`,
		`24 warning tools.1 unreachable: line 25 denies it`,
		`26 note  limit shadow`,
		`27 warning  variable LD_*`,
	}
	for i := range max(len(found), len(want)) {
		got, w := "nothing", "nothing more"
		if i < len(found) {
			got = fmt.Sprintf("%d %s %s %s", found[i].Line, found[i].Level, found[i].Rule, found[i].Text)
		}
		if i < len(want) {
			w = want[i]
		}
		if !strings.HasPrefix(got, w) {
			t.Errorf("finding %d: %s\nwant %s", i, got, w)
		}
	}
	if broken := Lint(parse(t, "version: 1\nname: x\nfs:\n  rules:\n    - {path: /, access: [read], effect: deny, reason: r}\n"), Facts{SessionDir: "/s"}); len(broken) == 0 || broken[len(broken)-1].Level != LevelError || broken[len(broken)-1].Line != 5 {
		t.Errorf("a document that no session can have: %+v", broken)
	}
}

func TestDiff(t *testing.T) {
	f := Facts{SessionDir: "/s"}
	old := compiled(t, work, workFacts, Enforce)
	if same := Diff(old, compiled(t, work, workFacts, Enforce)); len(same) != 0 {
		t.Errorf("a policy differs from itself: %v", same)
	}
	changed := strings.Replace(strings.Replace(work, "    - {id: cache, path: /var/cache/x", "    - {id: cache, path: /var/cache/y", 1), "mode: report, ", "", 1)
	changes := Diff(old, compiled(t, changed, workFacts, Enforce))
	text := ""
	for _, c := range changes {
		text += c.What + ": " + c.Old + " → " + c.New + "\n"
	}
	for _, w := range []string{"/home/ann/work/later", "write,chmod /var/cache/x: allow (cache) → deny (default.write)", "write,chmod /var/cache/y: deny (default.write) → allow (cache)"} {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
	a := compiled(t, listed, f, Enforce)
	b := compiled(t, strings.Replace(strings.Replace(listed, "pypi.org", "crates.io", 1), "port: 8000", "port: 8001", 1), f, Enforce)
	text = fmt.Sprint(Diff(a, b))
	for _, w := range []string{"connect pypi.org:443 allow (pypi) deny (net.unlisted)", "connect crates.io:443 deny (net.unlisted) allow (pypi)", "inbound ports web=8000 web=8001"} {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in %s", w, text)
		}
	}
	a = compiled(t, tools, f, Enforce)
	b = compiled(t, strings.Replace(strings.Replace(tools, "calls: 2", "calls: 3", 1)+"limits: {memory: 1GiB}\n", "mail.*", "post.*", 1), f, Enforce)
	text = fmt.Sprint(Diff(a, b))
	for _, w := range []string{"tool files.read ", "tool mail.* allow (mail) deny (default.tools)", "tool post.* deny (default.tools) allow (mail)", "limit memory, bytes of all processes together none 1073741824"} {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in %s", w, text)
		}
	}
}
