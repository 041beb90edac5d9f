package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestFigures: the median and p99 are measurements, and goals say what they compare.
func TestFigures(t *testing.T) {
	var samples []float64
	for i := 100; i > 0; i-- {
		samples = append(samples, float64(i))
	}
	w := wayOf("ours", samples)
	if w.Median != 50 || w.P99 != 99 || w.Samples != 100 {
		t.Errorf("1 to 100: %+v, want median 50 and p99 99", w)
	}
	r := Row{Unit: "ms", Ways: []Way{w, {Name: "theirs", Median: 40, P99: 41, Samples: 3}, {Name: "gone", Missing: "not installed"}}}
	r.ratio("ours", "theirs", 1.2, false)
	r.ratio("ours", "theirs", 1.2, true)
	r.worst("ours", "theirs", 3)
	r.added("ours", "theirs", 10)
	r.below("ours", 49)
	r.ratio("ours", "gone", 1, false)
	r.ratio("ours", "nobody", 1, false)
	for i, want := range []Goal{{Value: 1.25}, {Value: 1.25, Met: true}, {Value: 99.0 / 40, Met: true}, {Value: 10, Met: true}, {Value: 50}, {Missing: "gone: not installed"}, {Missing: "nobody: not measured"}} {
		if g := r.Goals[i]; g.Value != want.Value || g.Met != want.Met || g.Missing != want.Missing {
			t.Errorf("goal %d: %+v, want %+v", i, g, want)
		}
	}
	beside := Row{}
	beside.note("warmed up", []float64{9, 1, 3}, 1)
	beside.note("never got there", []float64{9}, 1)
	if len(beside.Ways) != 1 || beside.Ways[0].Median != 1 || beside.Ways[0].P99 != 3 || beside.Ways[0].Samples != 2 {
		t.Errorf("noted beside others: %+v", beside.Ways)
	}
	var out strings.Builder
	Report{Rows: []Row{r}}.Print(&out)
	for _, line := range []string{"gone                               - not installed", "goal ours / theirs ≤ 1.2: 1.25, missed", "goal ours / gone ≤ 1: not compared (gone: not installed)"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("the table has no %q:\n%s", line, out.String())
		}
	}
}

// TestTurns: ways are taken in turn, the warm-up does not count, and a way that fails
// is given up with its reason while the others go on.
func TestTurns(t *testing.T) {
	var order strings.Builder
	ended := 0
	fails := 0
	ways, err := turns(t.Context(), 1, 2, []entry{
		{name: "a", once: func(context.Context) (float64, error) { order.WriteByte('a'); return float64(order.Len()), nil }, end: func() { ended++ }},
		{name: "b", once: func(context.Context) (float64, error) {
			order.WriteByte('b')
			if fails++; fails == 2 {
				return 0, errors.New("broke\nhere")
			}
			return 1, nil
		}, end: func() { ended++ }},
		absent("c", "%s is not installed", "c"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if order.String() != "ababa" || ended != 2 {
		t.Errorf("order %q with %d ends, want ababa with 2", order.String(), ended)
	}
	if ways[0].Samples != 2 || ways[1].Missing != "broke here" || ways[2].Missing != "c is not installed" {
		t.Errorf("%+v", ways)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns(cancelled, 0, 1, []entry{{name: "a", once: func(context.Context) (float64, error) { return 1, nil }}}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context's end: %v", err)
	}
}
