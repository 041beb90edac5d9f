package audit

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// What most facts are has a short way to the file; it is the way of all others.
func TestSimpleFactsAreWrittenAsAllAre(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "call", "token", "MY-Password", "a b", "--token x", "key=AKIAIOSFODNN7EXAMPLE", `quo"te`, `back\slash`, `\x41`, "li\nne", "\x7f", "<&>",
		"ü", "\u202e", "\u2028", "\xff", "a\xc3", "\U0001f600", "https://bob:hunter2x@example.org/x"}
	text := func() string { return texts[r.IntN(len(texts))] }
	m := DefaultMasks()
	short := 0
	for range 20000 {
		facts := map[string]any{}
		for range r.IntN(20) {
			facts[text()+text()] = []any{nil, true, false, r.IntN(3) - 1, r.Int64() - 1<<62, text(), text(), text() + text(), []string{text()}, 1.5, map[string]string{text(): text()}}[r.IntN([]int{8, 11}[r.IntN(2)])]
		}
		if len(facts) == 0 {
			continue
		}
		whole, err := generic(facts)
		must(t, err)
		want, err := marshal(m.value(whole))
		must(t, err)
		if simple(facts) {
			short++
		}
		masked, err := m.record(Record{Facts: facts})
		must(t, err)
		got, err := appendFacts([]byte("x"), masked.Facts)
		must(t, err)
		if string(got) != "x"+string(want) {
			t.Fatalf("%#v\nis written as %s\nand not as   %s", facts, got[1:], want)
		}
		if back, err := generic(masked.Facts); err != nil || len(back.(map[string]any)) != reflect.ValueOf(whole).Len() {
			t.Fatalf("%#v: %v, %v", facts, back, err)
		}
	}
	if short < 1000 {
		t.Errorf("only %d were short", short)
	}
}
