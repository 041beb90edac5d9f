package policy

import (
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/quick"
)

// sample is the default policy of a session with a home beside it.
func sample(mode Mode) Policy {
	return Default(Facts{Mode: mode, SessionDir: "/srv/work", Home: "/home/ada", State: []string{"/home/ada/.local/state/cellblock"}})
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		kind    OpKind
		path    string
		effect  Effect
		rule    string
		private bool
	}{
		{Write, "/srv/work/a", Allow, "fs.write.session", false},
		{Create, "/srv/work", Allow, "fs.write.session", false},
		{Chmod, "/srv/work/./b/../a", Allow, "fs.write.session", false},
		{Write, "/srv/work-evil/a", Deny, "fs.write.outside", false},
		{Write, "/srv/work/../other", Deny, "fs.write.outside", false},
		{Rename, "/srv", Deny, "fs.write.outside", false},
		{Read, "/etc/passwd", Allow, "fs.read.default", false},
		{Exec, "/usr/bin/true", Allow, "fs.read.default", false},
		{Write, "/etc/passwd", Deny, "fs.write.outside", false},
		{Write, "/tmp/a", Allow, "fs.private.tmp", true},
		{Write, "/tmpfile", Deny, "fs.write.outside", false},
		{Mkdir, "/dev/shm/a", Allow, "fs.private.shm", true},
		{Write, "/dev/null", Allow, "fs.device.null", false},
		{Truncate, "/dev//null", Allow, "fs.device.null", false},
		{Remove, "/dev/null", Deny, "fs.write.outside", false},
		{Chmod, "/dev/null", Deny, "fs.write.outside", false},
		{Write, "/dev/null/a", Deny, "fs.write.outside", false},
		{Write, "/dev/sda", Deny, "fs.write.outside", false},
		{Read, "/home/ada/.ssh/id_ed25519", Deny, "fs.deny.secret", false},
		{Read, "/home/ada/.ssh", Deny, "fs.deny.secret", false},
		{Write, "/home/ada/.ssh/authorized_keys", Deny, "fs.deny.secret", false},
		{Exec, "/home/ada/.ssh/../.ssh/x", Deny, "fs.deny.secret", false},
		{Read, "/home/ada/.sshd", Allow, "fs.read.default", false},
		{Read, "/home/ada/.local/state/cellblock/history", Deny, "fs.deny.state", false},
		{Write, "relative", Deny, "fs.write.unknown", false},
		{Write, "", Deny, "fs.write.unknown", false},
		{Write, "/srv/work/a\x00b", Deny, "fs.write.unknown", false},
		{Read, "relative", Allow, "fs.read.default", false},
		{OpKind("splice"), "/etc/passwd", Deny, "fs.write.outside", false},
		{OpKind("splice"), "/srv/work/a", Allow, "fs.write.session", false},
	} {
		d := sample(Report).Decide(Op{Kind: c.kind, Path: c.path})
		if d.Effect != c.effect || d.Rule != c.rule || d.Private != c.private || d.Reason == "" {
			t.Errorf("%s %q: %+v, want %s by %s", c.kind, c.path, d, c.effect, c.rule)
		}
		if !d.Allowed() && !slices.Equal(d.Nearest, []string{"/srv/work"}) {
			t.Errorf("%s %q: nearest %q does not say where it is allowed", c.kind, c.path, d.Nearest)
		}
	}
}

// TestDecideSpecialPlaces: the deeper of two rules decides; a deny beneath an
// allow, and one above it, both win.
func TestDecideSpecialPlaces(t *testing.T) {
	p := Policy{
		Write:   []Rule{{ID: "w", Path: "/tmp/session", Reason: "r"}, {ID: "deep", Path: "/a/b/c", Reason: "r"}},
		Private: []Rule{{ID: "tmp", Path: "/tmp", Reason: "r"}, {ID: "cache", Path: "/tmp/session/.cache", Reason: "r"}, {ID: "same", Path: "/same", Reason: "r"}},
		Deny:    []Rule{{ID: "d", Path: "/tmp/session/secret", Reason: "r"}, {ID: "above", Path: "/a", Reason: "r"}},
	}
	p.Write = append(p.Write, Rule{ID: "same.w", Path: "/same/", Reason: "r"})
	for path, want := range map[string]string{
		"/tmp/x": "tmp", "/tmp/session/x": "w", "/tmp/session/.cache/x": "cache",
		"/tmp/session/secret/x": "d", "/a/b/c/x": "above", "/same/x": "same.w",
	} {
		if d := p.Decide(Op{Write, path}); d.Rule != want {
			t.Errorf("%s: decided by %q, want %q", path, d.Rule, want)
		}
	}
}

// anyPolicy is a policy of random rules over few names, so that rules meet.
type anyPolicy struct{ Policy }

func (anyPolicy) Generate(r *rand.Rand, _ int) reflect.Value {
	rules := func(id string) []Rule {
		var out []Rule
		for range r.Intn(4) {
			out = append(out, Rule{ID: id, Path: anyPath(r), Reason: "r"})
		}
		return out
	}
	return reflect.ValueOf(anyPolicy{Policy{
		Mode: []Mode{Off, Report, Shadow, Enforce}[r.Intn(4)], Write: rules("w"), Private: rules("p"), Devices: rules("v"), Deny: rules("d"),
	}})
}

// anyOp is an operation on a path over the same names.
type anyOp struct{ Op }

func (anyOp) Generate(r *rand.Rand, _ int) reflect.Value {
	all := []OpKind{Read, Exec, Write, Create, Truncate, Mkdir, Remove, Rmdir, Rename, Link, Symlink, Chmod, Chown, Utime, Xattr, "new"}
	return reflect.ValueOf(anyOp{Op{all[r.Intn(len(all))], anyPath(r)}})
}

func anyPath(r *rand.Rand) string {
	var path strings.Builder
	for range 1 + r.Intn(4) {
		path.WriteString("/" + []string{"a", "b", "a-evil", ".", "..", ""}[r.Intn(6)])
	}
	return path.String()
}

// TestDecideProperties: what holds for all policies and operations.
func TestDecideProperties(t *testing.T) {
	covered := func(rules []Rule, path string) bool {
		return slices.ContainsFunc(rules, func(r Rule) bool { return within(r.Path, path) })
	}
	properties := map[string]any{
		"deny wins over every allow": func(p anyPolicy, op anyOp) bool {
			return !covered(p.Deny, op.Path) || !p.Decide(op.Op).Allowed()
		},
		"what is not denied may be read": func(p anyPolicy, op anyOp) bool {
			return op.Kind.Changes() || p.Decide(op.Op).Allowed() == !covered(p.Deny, op.Path)
		},
		"a change is allowed beneath an allowed place, or on a device, and nowhere else": func(p anyPolicy, op anyOp) bool {
			device := (op.Kind == Write || op.Kind == Truncate) && slices.ContainsFunc(p.Devices, func(r Rule) bool {
				return within(r.Path, op.Path) && within(op.Path, r.Path)
			})
			want := !covered(p.Deny, op.Path) && (device || covered(p.Write, op.Path) || covered(p.Private, op.Path))
			return !op.Kind.Changes() || p.Decide(op.Op).Allowed() == want
		},
		"the mode changes no decision": func(p anyPolicy, op anyOp) bool {
			want := p.Decide(op.Op)
			for _, m := range []Mode{"", Off, Report, Shadow, Enforce} {
				p.Mode = m
				if !reflect.DeepEqual(p.Decide(op.Op), want) {
					return false
				}
			}
			return true
		},
		"one more deny never allows more": func(p anyPolicy, op anyOp, more anyOp) bool {
			before := p.Decide(op.Op).Allowed()
			p.Deny = append(slices.Clone(p.Deny), Rule{ID: "more", Path: more.Path, Reason: "r"})
			return before || !p.Decide(op.Op).Allowed()
		},
		"how a path is spelt changes nothing": func(p anyPolicy, op anyOp) bool {
			other := Op{op.Kind, "/x/../" + op.Path + "/./"}
			return reflect.DeepEqual(p.Decide(op.Op), p.Decide(other))
		},
		"every decision has a rule and a reason": func(p anyPolicy, op anyOp) bool {
			d := p.Decide(op.Op)
			return d.Rule != "" && d.Reason != "" && (d.Effect == Allow || d.Effect == Deny)
		},
	}
	for name, property := range properties {
		if err := quick.Check(property, &quick.Config{MaxCount: 5000}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
