package audit

import (
	"fmt"
	"testing"
)

// merged adds records and returns everything that is to be written.
func merged(m *Merger, n int, make func(i int) Record) []Record {
	var out []Record
	for i := range n {
		if r, now := m.Add(make(i)); now {
			out = append(out, r)
		}
	}
	return append(out, m.Flush()...)
}

func total(records []Record) (n int64) {
	for _, r := range records {
		n += r.Times()
	}
	return n
}

func TestAFloodIsMergedAndCounted(t *testing.T) {
	const n = 1_000_000
	got := merged(&Merger{}, n, func(int) Record { return event("write", "/etc/hosts") })
	if len(got) != 2 || got[0].Count != 0 || got[1].Count != n-1 || total(got) != n {
		t.Errorf("%+v", got)
	}
	// A guest that changes the target each time cannot make the log grow with it.
	got = merged(&Merger{}, n, func(i int) Record { return event("write", fmt.Sprint("/etc/", i)) })
	if len(got) > DefaultKinds+1 || total(got) != n {
		t.Errorf("%d records that stand for %d", len(got), total(got))
	}
	got = merged(&Merger{Kinds: 2}, 10000, func(i int) Record {
		r := event(fmt.Sprint("op", i), "/")
		r.Rule = fmt.Sprint(i)
		return r
	})
	if len(got) > maxOther+4 || total(got) != 10000 {
		t.Errorf("%d records that stand for %d", len(got), total(got))
	}
}

func TestWhatDiffersIsNotMerged(t *testing.T) {
	base := event("write", "/a")
	var m Merger
	m.Add(base)
	for name, change := range map[string]func(*Record){
		"target":   func(r *Record) { r.Target = "/b" },
		"op":       func(r *Record) { r.Op = "remove" },
		"cell":     func(r *Record) { r.Cell++ },
		"source":   func(r *Record) { r.Source = SourceOS },
		"decision": func(r *Record) { r.Decision = WouldDeny },
		"pid":      func(r *Record) { r.PID = 7 },
	} {
		r := base
		change(&r)
		if _, now := m.Add(r); !now {
			t.Errorf("another %s was merged", name)
		}
	}
	counted := base
	counted.Count = 5
	m.Add(counted)
	if got := m.Flush(); len(got) != 1 || got[0].Count != 5 {
		t.Errorf("%+v", got)
	}
	if got := m.Flush(); len(got) != 0 {
		t.Errorf("counted twice: %+v", got)
	}
}
