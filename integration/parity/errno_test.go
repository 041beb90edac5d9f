package parity

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of errors that this host shows into the document")

// errnoDocument is where users read which error a refusal is.
const errnoDocument = "../../policy/ERRNO.md"

// columns are the ways in which Linux refuses, and the places that show each.
var columns = []struct {
	title  string
	places []string
}{
	{"outside, or a rule denies writing", []string{"outside", "locked in the session", "locked in what is allowed", "beside, by the session's name"}},
	{"a rule allows other changes only", []string{"where files may be made", "where they may be modified", "where they may be removed"}},
	{"hidden", []string{"hidden in the session", "secret"}},
	{"a rule denies executing", []string{"without programs"}},
}

// errnoTable is what refusals under enforce looked like, as a table.
func errnoTable(rows []row, enforce []outcome) string {
	seen := map[string]map[int][]string{}
	var order []string
	for i, r := range rows {
		if slices.Contains([]string{"copy by a program", "sqlite"}, r.op.name) {
			continue // they say it in words of their own
		}
		if seen[r.op.name] == nil {
			seen[r.op.name] = map[int][]string{}
			order = append(order, r.op.name)
		}
		for c, column := range columns {
			if !slices.Contains(column.places, r.place.name) {
				continue
			}
			if refused(enforce[i]) && !slices.Contains(seen[r.op.name][c], enforce[i].Result) {
				seen[r.op.name][c] = append(seen[r.op.name][c], enforce[i].Result)
			}
		}
	}
	slices.Sort(order)
	var b strings.Builder
	b.WriteString("| operation |")
	for _, c := range columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, name := range order {
		fmt.Fprintf(&b, "| %s |", name)
		for c := range columns {
			found := seen[name][c]
			slices.Sort(found)
			if len(found) == 0 {
				found = []string{"–"}
			}
			fmt.Fprintf(&b, " %s |", strings.Join(found, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// checkErrnos holds the document against what was seen.
func checkErrnos(t *testing.T, rows []row, enforce []outcome) {
	t.Helper()
	text, err := os.ReadFile(errnoDocument)
	must(t, err)
	before, rest, ok := strings.Cut(string(text), "| operation |")
	if !ok {
		t.Fatalf("%s has no table", errnoDocument)
	}
	table := "| operation |" + rest
	after := ""
	if i := strings.Index(table, "\n\n"); i >= 0 {
		table, after = table[:i+1], table[i+1:]
	}
	got := errnoTable(rows, enforce)
	if *update {
		must(t, os.WriteFile(errnoDocument, []byte(before+got+after), 0o644))
		return
	}
	if got != table {
		t.Errorf("%s does not say what happens:\n%s", errnoDocument, got)
	}
}
