package policy

import (
	"math/rand/v2"
	"path"
	"strings"
	"testing"
)

const work = `version: 1
name: work
fs:
  rules:
    - {path: "${session}", access: [write], effect: allow, reason: work}
    - {id: hooks, path: "${session}/.git/hooks/", access: [write], effect: deny, mode: enforce, reason: run on the host}
    - {id: later, path: "${session}/later", access: [write], effect: deny, mode: report, reason: being tried}
    - {id: cache, path: /var/cache/x, access: [write], effect: allow, reason: cache}
    - {id: inbox, path: /srv/inbox, access: [create], effect: allow, reason: inbox}
    - {id: log, path: /var/log/x.log, access: [modify], effect: allow, reason: log}
    - {id: ssh, path: "${home}/.ssh", access: [read], effect: deny, mode: enforce, reason: keys}
    - {id: data, path: /srv/data, access: [read], effect: deny, reason: others' data}
    - {id: opt, path: /opt, access: [exec], effect: deny, reason: not ours}
    - {id: gone, path: /nowhere, access: [write], effect: allow, reason: absent}
`

var workFacts = Facts{SessionDir: "/home/ann/work", Home: "/home/ann", State: []string{"/home/ann/.local/state/cellblock"},
	Sealed: []Rule{{ID: "ground.skills", Path: "/home/ann/work/skills", Access: AccessWrite, Enforced: true, Reason: "skills"}},
	Paths: map[string]Found{
		"/nowhere":                         {Path: "/nowhere"},
		"/home/ann/work/.git/hooks":        {Path: "/home/ann/work/.git/hooks"},
		"/var/log/x.log":                   {Exists: true, Path: "/var/log/x.log"},
		"/home/ann/.ssh":                   {Exists: true, Dir: true, Path: "/data/keys", Links: []HostLink{{"/home/ann/.ssh", "/data/keys"}}},
		"/home/ann/.local/state/cellblock": {Path: "/home/ann/.local/state/cellblock"}}}

func compiled(t testing.TB, text string, f Facts, mode Mode) Policy {
	t.Helper()
	f.Mode = mode
	p, _, err := Compile(parse(t, text), f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestDecisions is the table of what a document says: operation, path, the rule
// that decides, and whether Linux refuses it in mode report and in enforce.
func TestDecisions(t *testing.T) {
	const allowed, reported, always = "allow", "enforce only", "both modes"
	report, enforce := compiled(t, work, workFacts, Report), compiled(t, work, workFacts, Enforce)
	for _, c := range []struct {
		op   OpKind
		path string
		want string
		rule string
	}{
		{Write, "/home/ann/work/a", allowed, "fs.1"},
		{Create, "/home/ann/work/a/b", allowed, "fs.1"},
		{Chmod, "/home/ann/work", allowed, "fs.1"},
		{Rmdir, "/home/ann/work", always, "ground.place"}, // a mount point
		{Create, "/home/ann/work-evil", reported, "default.write"},
		{Write, "/home/ann/work/../x", reported, "default.write"},
		{Write, "relative", reported, "default.write"},
		{Write, "/home/ann/work/.git/config", allowed, "fs.1"},
		{Create, "/home/ann/work/.git/hooks", always, "hooks"},
		{Create, "/home/ann/work/.git/hooks/post-commit", always, "hooks"},
		{Read, "/home/ann/work/.git/hooks/post-commit", allowed, "default.read"},
		{RenameFrom, "/home/ann/work/.git", always, "hooks"}, // on the way to it
		{RenameFrom, "/home/ann/work/.gitx", allowed, "fs.1"},
		{Rmdir, "/home/ann/work/.git", always, "hooks"},
		{Chmod, "/home/ann/work/.git", allowed, "fs.1"},
		{Write, "/home/ann/work/later/x", "never", "later"},
		{Write, "/home/ann/work/skills/x", always, "ground.skills"},
		{Write, "/var/cache/x/y", allowed, "cache"},
		{Remove, "/var/cache/x", always, "ground.place"},
		{Write, "/var/cache/y", reported, "default.write"},
		{Mkdir, "/srv/inbox/new", allowed, "inbox"},
		{Write, "/srv/inbox/old", reported, "default.write"},
		{Remove, "/srv/inbox/old", reported, "default.write"},
		{Chmod, "/srv/inbox/old", allowed, "inbox"},
		{Write, "/var/log/x.log", allowed, "log"},
		{Truncate, "/var/log/x.log", allowed, "log"},
		{Remove, "/var/log/x.log", always, "ground.place"},
		{Read, "/home/ann/.ssh/id", "never", "ssh"}, // the link itself; what it leads to is hidden
		{Read, "/data/keys/id", always, "ssh"},
		{Write, "/data/keys/id", always, "ssh"},
		{Exec, "/data/keys/tool", always, "ssh"},
		{Read, "/srv/data/x", reported, "data"},
		{Read, "/srv/database", allowed, "default.read"},
		{Exec, "/opt/bin/x", reported, "opt"},
		{Read, "/opt/bin/x", allowed, "default.read"},
		{Exec, "/usr/bin/x", allowed, "default.exec"},
		{Write, "/nowhere/x", reported, "default.write"},
		{Write, "/tmp/x", allowed, "ground.tmp"},
		{Rmdir, "/tmp", always, "ground.tmp"},
		{Create, "/dev/shm/x", allowed, "ground.shm"},
		{Exec, "/dev/shm/x", always, "ground.noexec"},
		{Write, "/dev/null", allowed, "ground.device.null"},
		{Chmod, "/dev/null", always, "ground.dev"},
		{Create, "/dev/x", always, "ground.dev"},
		{Write, "/proc/7/comm", allowed, "ground.proc"},
		{Mkdir, "/proc/x", always, "ground.proc"},
		{Write, "/proc/sys/kernel/hostname", always, "ground.proc.sys"},
		{Write, "/sys/kernel/x", always, "ground.sys"},
		{Write, "/run/x", reported, "default.write"},
		{Read, "/home/ann/.local/state/cellblock/x", "enforce only", "ground.state"}, // absent: in report nothing is there to hide
		{Read, "pipe:[7]", allowed, "default.read"},
		{OpKind("newcall"), "/etc/x", reported, "default.write"},
	} {
		in, out := report.Decide(Op{Kind: c.op, Path: c.path}), enforce.Decide(Op{Kind: c.op, Path: c.path})
		if in.Effect != out.Effect || in.Rule != out.Rule {
			t.Errorf("%s %s: the modes differ: %+v and %+v", c.op, c.path, in, out)
		}
		got := allowed
		if !in.Allowed() {
			got = map[[2]bool]string{{false, true}: reported, {true, true}: always, {false, false}: "never", {true, false}: "report only"}[[2]bool{in.Enforced, out.Enforced}]
		}
		if got != c.want || out.Rule != c.rule {
			t.Errorf("%s %s: %s by %s, want %s by %s", c.op, c.path, got, out.Rule, c.want, c.rule)
		}
		if out.Reason == "" {
			t.Errorf("%s %s: no reason", c.op, c.path)
		}
	}
	if d := enforce.Decide(Op{Kind: Write, Path: "/srv/inbox/new", Creates: true}); d.Allowed() {
		t.Errorf("a new file opened for writing needs modify as well: %+v", d)
	}
	if d := enforce.Decide(Op{Kind: Write, Path: "/etc/x"}); len(d.Nearest) != 4 || d.Nearest[0] != "/home/ann/work" {
		t.Errorf("nearest: %v", d.Nearest)
	}
}

func TestReadingByList(t *testing.T) {
	text := `version: 1
name: listed
fs:
  defaults:
    read: {effect: deny, reason: r}
    exec: {effect: deny, reason: r}
  rules:
    - {path: "${session}", access: [write], effect: allow, reason: r}
    - {id: usr, path: /usr/share, access: [read], effect: allow, reason: r}
    - {id: git, path: /usr/bin/git, access: [read, exec], effect: allow, reason: r}
    - {id: hidden, path: /usr/share/secret, access: [read], effect: deny, reason: r}
`
	f := Facts{SessionDir: "/srv/s1", Needs: []Rule{{ID: "ground.interpreter", Path: "/usr/bin/python3", Access: AccessRead | AccessExec, Reason: "r"},
		{ID: "ground.library", Path: "/usr/lib", Access: AccessRead, Reason: "r"}}}
	p := compiled(t, text, f, Enforce)
	for _, c := range []struct {
		op   OpKind
		path string
		want bool
	}{
		{Read, "/srv/s1/x", true}, {Read, "/usr/share/doc", true}, {Read, "/usr/share/secret/x", false}, {Read, "/etc/passwd", false},
		{Read, "/usr", true}, {Read, "/", true}, {Read, "/usr/lib/x.so", true}, {Read, "/tmp/x", true}, {Read, "/run/x", true}, {Read, "/srv/s2", false},
		{Exec, "/usr/bin/python3", true}, {Exec, "/usr/bin/git", true}, {Exec, "/usr/bin/sh", false}, {Exec, "/usr/lib/x", false}, {Exec, "/srv/s1/x", false},
		{Exec, "/tmp/x", false}, {Exec, "memfd:x", false}, {Write, "/srv/s1/x", true}, {Write, "/usr/share/x", false},
	} {
		if d := p.Decide(Op{Kind: c.op, Path: c.path}); d.Allowed() != c.want || !d.Allowed() && !d.Enforced {
			t.Errorf("%s %s: %+v, want allowed %v", c.op, c.path, d, c.want)
		}
	}
}

// TestTopLinks: a link in the root directory is shown where something is listed of what
// it leads to.
func TestTopLinks(t *testing.T) {
	top := func(at, target, leads string) TopLink { return TopLink{HostLink{at, target}, leads} }
	f := Facts{SessionDir: "/srv/s1", Needs: []Rule{{ID: "ground.library", Path: "/usr/lib", Access: AccessRead, Reason: "r"}},
		Top: []TopLink{top("/bin", "usr/bin", "/usr/bin"), top("/lib", "usr/lib", "/usr/lib"), top("/srv2", "srv", "/srv"), top("/home", "/data/home", "/data/home"), top("/temp", "tmp", "/tmp"), top("/all", ".", "/")}}
	for listed, want := range map[string]string{"/usr": "/bin /lib /srv2", "/usr/bin/git": "/bin /lib /srv2", "/data/home/ann": "/lib /srv2 /home", "/tmp": "/lib /srv2"} {
		p := compiled(t, "version: 1\nname: listed\nfs:\n  defaults:\n    read: {effect: deny, reason: r}\n  rules:\n    - {path: \"${session}\", access: [write], effect: allow, reason: r}\n    - {path: "+listed+", access: [read], effect: allow, reason: r}\n", f, Enforce)
		var got []string
		for _, l := range p.Links {
			got = append(got, l.Path)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is listed: %v, want %s", listed, got, want)
		}
	}
}

// TestWhatCannotBeCompiled: documents that would not hold what they say.
func TestWhatCannotBeCompiled(t *testing.T) {
	head := "version: 1\nname: x\nfs:\n  rules:\n    - {path: \"${session}\", access: [write], effect: allow, reason: r}\n    - "
	link := map[string]Found{"/srv/s1/way": {Exists: true, Dir: true, Path: "/etc", Links: []HostLink{{"/srv/s1/way", "/etc"}}}}
	for rule, want := range map[string]string{
		`{path: /, access: [write], effect: allow, reason: r}`:                              "fs.defaults",
		`{path: /, access: [read], effect: deny, reason: r}`:                                "fs.defaults",
		`{path: /tmp, access: [write], effect: deny, reason: r}`:                            "the jail's own",
		`{path: /srv, access: [read], effect: deny, reason: r}`:                             "holds the session directory",
		`{path: /usr/bin, access: [exec], effect: deny, mode: enforce, reason: r}`:          "the interpreter itself",
		`{path: "${session}/way", access: [write], effect: allow, reason: r}`:               "symbolic link",
		`{path: "${session}/way", access: [write], effect: deny, mode: enforce, reason: r}`: "symbolic link",
	} {
		doc := parse(t, head+rule+"\n")
		_, _, err := Compile(doc, Facts{SessionDir: "/srv/s1", Paths: link, Needs: []Rule{{Path: "/usr/bin/python3", Access: AccessExec}}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "policy test.yaml:6: ") {
			t.Errorf("%s\n gives %v, want line 6 and %q", rule, err, want)
		}
	}
}

func TestStubsAndPins(t *testing.T) {
	p := compiled(t, work, workFacts, Enforce)
	for _, r := range p.Deny {
		switch r.ID {
		case "hooks":
			if r.Stub != StubDirectory || len(r.Pins) != 1 || r.Pins[0] != "/home/ann/work/.git" {
				t.Errorf("hooks: %+v", r)
			}
		case "ssh", "ground.state", "data":
			if r.Stub != "" || len(r.Pins) != 0 {
				t.Errorf("nothing is put in the place of what lies outside the writable places: %+v", r)
			}
		}
	}
	text := "version: 1\nname: x\nfs:\n  rules:\n    - {path: /srv/a/b/c, access: [write], effect: deny, mode: enforce, reason: r}\n"
	p = compiled(t, text, Facts{SessionDir: "/srv/s1", Paths: map[string]Found{"/srv/a/b/c": {Path: "/srv/a/b/c"}}}, Report)
	if r := p.Deny[0]; r.Stub != StubFile || strings.Join(r.Pins, " ") != "/srv /srv/a /srv/a/b" {
		t.Errorf("a promoted denial in a writable tree: %+v", r)
	}
}

func TestDigestTellsPoliciesApart(t *testing.T) {
	a, b := compiled(t, work, workFacts, Report), compiled(t, work, workFacts, Enforce)
	if a.Digest() == b.Digest() || a.Digest() != compiled(t, work, workFacts, Report).Digest() || len(a.Digest()) != 64 {
		t.Errorf("digests: %s and %s", a.Digest(), b.Digest())
	}
}

// within is Within as one would write it without thinking of speed.
func within(root, p string) bool {
	if !strings.HasPrefix(root, "/") || !strings.HasPrefix(p, "/") {
		return false
	}
	a, b := strings.Split(path.Clean(root), "/"), strings.Split(path.Clean(p), "/")
	if path.Clean(root) == "/" {
		return true
	}
	if len(b) < len(a) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestPathsAreComparedByComponents(t *testing.T) {
	parts := []string{"a", "b", "ab", "..", ".", "", "A", "ä", "a\n"}
	r := rand.New(rand.NewPCG(1, 2))
	random := func() string {
		p := ""
		for range r.IntN(5) {
			p += "/" + parts[r.IntN(len(parts))]
		}
		return p
	}
	for range 100000 {
		a, b := random(), random()
		if Within(a, b) != within(a, b) {
			t.Fatalf("Within(%q, %q) is %v", a, b, Within(a, b))
		}
		if Within(a, b) && Within(b, a) && path.Clean(a) != path.Clean(b) {
			t.Fatalf("%q and %q lie within each other", a, b)
		}
	}
}

func FuzzWithin(f *testing.F) {
	f.Add("/work", "/work-evil")
	f.Add("/", "/a/../..")
	for _, p := range []string{"", "a", "a/", "a//b", "./a", "a/.", "a/..", ".a", "..a", "a/.b/..c", "..."} {
		f.Add("/"+p, p)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if Within(a, b) != within(a, b) {
			t.Errorf("Within(%q, %q) is %v", a, b, Within(a, b))
		}
		if ca, cb := path.Clean("/"+a), path.Clean("/"+b); strictlyBeneath(ca, cb) != (within(ca, cb) && ca != cb) {
			t.Errorf("strictlyBeneath(%q, %q) is %v", ca, cb, strictlyBeneath(ca, cb))
		}
		if cleaned("/"+a) != path.Clean("/"+a) {
			t.Errorf("cleaned(%q) is %q", a, cleaned("/"+a))
		}
	})
}

// FuzzDecide: a denial's rule is about the path, what lies beneath a hidden
// place is never allowed, and no operation is judged differently by the modes.
func FuzzDecide(f *testing.F) {
	report, enforce := compiled(f, work, workFacts, Report), compiled(f, work, workFacts, Enforce)
	f.Add("write", "/home/ann/work/x")
	f.Add("rename", "/data/keys/../keys/id")
	f.Add("exec", "/opt/x")
	f.Fuzz(func(t *testing.T, kind, p string) {
		op := Op{Kind: ParseKind(kind), Path: p}
		a, b := report.Decide(op), enforce.Decide(op)
		if a.Effect != b.Effect || a.Rule != b.Rule {
			t.Errorf("%+v: %+v in report, %+v in enforce", op, a, b)
		}
		if within("/data/keys", p) && !strings.ContainsRune(p, 0) && b.Allowed() {
			t.Errorf("%+v is allowed beneath what is hidden", op)
		}
		if op.Kind.Changes() && b.Allowed() {
			ok := false
			for _, rules := range [][]Rule{enforce.Allow, enforce.Private, enforce.Devices} {
				for _, r := range rules {
					ok = ok || within(r.Path, p)
				}
			}
			if !ok {
				t.Errorf("%+v is allowed by %s, outside of every place that may be changed", op, b.Rule)
			}
		}
	})
}

// TestWhatAPolicyHoldsIsCanonical: decisions compare its paths as they are, wherever they
// came from.
func TestWhatAPolicyHoldsIsCanonical(t *testing.T) {
	doc := Document{Version: 1, FS: FSPart{Rules: []FSRule{{Path: "/a//b/../c/", Access: AccessRead | AccessWrite, Effect: Allow, Reason: "r"}, {Path: "/d/./e/", Access: AccessRead, Effect: Deny, Reason: "r"}}}}
	rule := func(p string) Rule { return Rule{ID: "x", Path: p, Access: AccessRead | AccessExec} }
	facts := Facts{Mode: Enforce, SessionDir: "/s//x/", Needs: []Rule{rule("/n//x/")}, Sealed: []Rule{rule("/a/./c/q/")}, Paths: map[string]Found{"/d/./e": {Exists: true, Path: "/f//g/"}}}
	p, notes, err := Compile(doc, facts)
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	for _, rules := range [][]Rule{p.Private, p.Devices, p.Sealed, p.Needs, p.Allow, p.Deny} {
		for _, r := range rules {
			if r.Path != path.Clean(r.Path) {
				t.Errorf("%s: %s", r.ID, r.Path)
			}
			for _, pin := range r.Pins {
				if pin != path.Clean(pin) {
					t.Errorf("%s: pin %s", r.ID, pin)
				}
			}
		}
	}
	if !Own("/a/../tmp/x") || Own("/tmp/../a") {
		t.Error("a place of the jail's own is told by what is written, and not by where it is")
	}
	if facts.Needs[0].Path != "/n//x/" {
		t.Error("the caller's own facts are changed")
	}
	for op, want := range map[Op]bool{{Kind: Write, Path: "/a/c/x"}: true, {Kind: Write, Path: "/a/c/q/x"}: false, {Kind: Read, Path: "/f/g/h"}: false, {Kind: Read, Path: "/n/x"}: true, {Kind: Rmdir, Path: "/s/x"}: false} {
		if d := p.Decide(op); d.Allowed() != want {
			t.Errorf("%+v: %+v", op, d)
		}
	}
}
