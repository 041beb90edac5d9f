package suggest

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what stands beside a rule: it is read by a person.
const (
	maxShown    = 6  // operations of one rule
	maxFlagged  = 20 // of those that the host executes
	maxPrograms = 3
	maxLeft     = 50
)

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// reason says what a rule is for: who did what, how often. It holds no text that a
// session chose but the names of programs.
func (n *need) reason() string {
	var times int64
	var kinds, programs []string
	for _, o := range n.evidence {
		times += o.Count
		if !slices.Contains(kinds, o.Op) {
			kinds = append(kinds, o.Op)
		}
		if p := path.Base(o.Program); o.Program != "" && !slices.Contains(programs, p) {
			programs = append(programs, p)
		}
	}
	slices.Sort(kinds)
	slices.Sort(programs)
	by := ""
	if more := len(programs) - maxPrograms; more > 0 {
		programs = append(programs[:maxPrograms], fmt.Sprintf("%d more", more))
	}
	if len(programs) > 0 {
		by = ", by " + printable(strings.Join(programs, ", "))
	}
	return fmt.Sprintf("recorded %s (%s)%s", plural(int(times), "time"), strings.Join(kinds, ", "), by)
}

// printable is a text in which nothing acts on a terminal or an editor.
func printable(text string) string {
	quoted := strconv.QuoteToGraphic(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// line is an operation as a comment shows it.
func (o Operation) line() string {
	text := fmt.Sprintf("%s %s", o.Op, printable(o.Target))
	if o.Count > 1 {
		text += fmt.Sprintf(", %d times", o.Count)
	}
	if o.Program != "" {
		text += ", by " + printable(o.Program)
	}
	if o.Flag != "" {
		text += "  ! " + o.Flag
	}
	return text
}

// String is what is left out, and why.
func (l Left) String() string { return l.line() + ": " + printable(l.Why) }

// Comments are the evidence of each rule by its id, and by "" what stands at the top:
// where the document comes from, and what it leaves out.
func (s Suggestion) Comments() map[string][]string {
	top := []string{fmt.Sprintf("Suggested from %s, beyond the policy %s. Read each rule before use:", plural(s.Sessions, "recorded session"), printable(s.Base)),
		"what a record tells was chosen by the code that ran. A ! stands at what the host",
		"executes or loads by itself later."}
	if len(s.Left) > 0 {
		top = append(top, "", "Not suggested, and still denied:")
	}
	for i, l := range s.Left {
		if i == maxLeft {
			top = append(top, fmt.Sprintf("  and %d more", len(s.Left)-i))
			break
		}
		top = append(top, "  "+l.String())
	}
	out := map[string][]string{"": top}
	for _, r := range s.Rules {
		// What the host would execute comes first.
		evidence := slices.Clone(r.Evidence)
		slices.SortStableFunc(evidence, func(a, b Operation) int {
			return strings.Compare(map[bool]string{true: "1"}[a.Flag == ""], map[bool]string{true: "1"}[b.Flag == ""])
		})
		var lines []string
		for i, o := range evidence {
			if i >= maxShown && o.Flag == "" || i >= maxFlagged {
				more := fmt.Sprintf("and %d more", len(evidence)-i)
				if o.Flag != "" {
					more += ", also with a !"
				}
				lines = append(lines, more)
				break
			}
			lines = append(lines, o.line())
		}
		out[r.ID] = lines
	}
	return out
}
