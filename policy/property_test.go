package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomDocument has a few rules about few places, so that they meet.
func randomDocument(r *rand.Rand) Document {
	doc := Document{Version: 1, Name: "random"}
	for range r.IntN(6) {
		doc.FS.Rules = append(doc.FS.Rules, randomRule(r))
	}
	standard := func() *Default {
		if r.IntN(2) == 0 {
			return nil
		}
		return &Default{Effect: []Effect{Allow, Deny}[r.IntN(2)], Reason: "r"}
	}
	doc.FS.Defaults = FSDefaults{Write: standard(), Exec: standard()}
	return doc
}

func randomPlace(r *rand.Rand) string {
	p := ""
	for range 1 + r.IntN(3) {
		p += "/" + []string{"a", "b", "ab"}[r.IntN(3)]
	}
	return p
}

func randomRule(r *rand.Rand) FSRule {
	rule := FSRule{Path: randomPlace(r), Effect: []Effect{Allow, Deny}[r.IntN(2)], Reason: "r"}
	if rule.Effect == Deny {
		rule.Access = []Access{AccessRead, AccessWrite, AccessExec, AccessWrite | AccessExec}[r.IntN(4)]
		rule.Mode = []Mode{"", Enforce, Report}[r.IntN(3)]
		return rule
	}
	for rule.Access == 0 {
		rule.Access = Access(r.IntN(32)) & (AccessRead | AccessWrite | AccessExec)
	}
	return rule
}

func randomOp(r *rand.Rand) Op {
	var all []OpKind
	for k := range kinds {
		all = append(all, k)
	}
	slices.Sort(all)
	op := Op{Kind: all[r.IntN(len(all))], Path: randomPlace(r)}
	op.Creates = op.Kind == Write && r.IntN(2) == 0
	op.Replaces = op.Kind == RenameTo && r.IntN(2) == 0
	return op
}

// TestRulesOnlyDoWhatTheySay: for random policies, one more denial allows nothing, one
// more permission denies nothing but taking names that are to stay, the modes agree, and the
// order of rules is of no matter to what is allowed.
func TestRulesOnlyDoWhatTheySay(t *testing.T) {
	compile := func(doc Document, m Mode) (Policy, bool) {
		p, _, err := Compile(doc, Facts{Mode: m, SessionDir: "/s"})
		return p, err == nil
	}
	compared := 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 7))
		doc := randomDocument(r)
		more := doc
		added := randomRule(r)
		more.FS.Rules = append(slices.Clone(doc.FS.Rules), added)
		mixed := doc
		mixed.FS.Rules = slices.Clone(doc.FS.Rules)
		r.Shuffle(len(mixed.FS.Rules), func(i, j int) { mixed.FS.Rules[i], mixed.FS.Rules[j] = mixed.FS.Rules[j], mixed.FS.Rules[i] })
		enforce, ok := compile(doc, Enforce)
		report, okReport := compile(doc, Report)
		shuffled, okMixed := compile(mixed, Enforce)
		if ok != okReport || ok != okMixed {
			t.Fatalf("seed %d: compiled %v under enforce, %v under report, %v in another order\n%+v", seed, ok, okReport, okMixed, doc.FS)
		}
		wider, okMore := compile(more, Enforce)
		for range 40 {
			op := randomOp(r)
			if !ok {
				break
			}
			d := enforce.Decide(op)
			if other := report.Decide(op); other.Effect != d.Effect {
				t.Fatalf("seed %d: %+v is %s under enforce and %s under report\n%+v", seed, op, d.Effect, other.Effect, doc.FS)
			}
			if other := shuffled.Decide(op); other.Effect != d.Effect || other.Enforced != d.Enforced {
				t.Fatalf("seed %d: %+v is %+v, and %+v with the rules in another order\n%+v", seed, op, d, other, doc.FS)
			}
			if !okMore {
				continue
			}
			compared++
			switch now := wider.Decide(op); {
			case added.Effect == Deny && !d.Allowed() && now.Allowed():
				t.Fatalf("seed %d: a denial of %s %s allows %+v\n%+v", seed, added.Access, added.Path, op, doc.FS)
			case added.Effect == Allow && d.Allowed() && !now.Allowed() && !op.Kind.takes():
				t.Fatalf("seed %d: a permission of %s %s denies %+v by %s\n%+v", seed, added.Access, added.Path, op, now.Rule, doc.FS)
			case d.Effect != now.Effect && !Overlap(added.Path, op.Path) && !op.Kind.takes():
				t.Fatalf("seed %d: a rule about %s changes what becomes of %+v\n%+v", seed, added.Path, op, doc.FS)
			}
		}
	}
	if compared < 10_000 {
		t.Errorf("%d decisions compared", compared)
	}
}

// TestAPathIsOnePlace: however a path is written, it is decided alike.
func TestAPathIsOnePlace(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 9))
		p, _, err := Compile(randomDocument(r), Facts{Mode: Enforce, SessionDir: "/s"})
		if err != nil {
			continue
		}
		for range 20 {
			op := randomOp(r)
			d := p.Decide(op)
			for _, other := range []string{op.Path + "/", op.Path + "/.", op.Path + "/x/..", "/z/.." + op.Path, strings.ReplaceAll(op.Path, "/", "//"), "/.." + op.Path} {
				again := op
				again.Path = other
				if got := p.Decide(again); fmt.Sprint(got) != fmt.Sprint(d) {
					t.Fatalf("seed %d: %+v is %+v, and written %s %+v", seed, op, d, other, got)
				}
			}
		}
	}
}
