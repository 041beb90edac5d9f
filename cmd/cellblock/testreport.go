package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"slices"
	"strings"

	"cellblock/kernel/trial"
)

// testReport is what policy test tells, in any form.
type testReport struct {
	trial.Report
	Seconds   float64           `json:"seconds"`
	Mutations []trial.Mutations `json:"mutations,omitempty"`
}

// maxUnused bounds how many rules a line of text lists.
const maxUnused = 12

func (c *console) printTests(t testReport, each bool) {
	for _, r := range t.Results {
		where := fmt.Sprintf("%s:%d: %s (%s)", r.File, r.Line, r.Name, r.Mode)
		switch {
		case r.Error != "":
			c.printOut(fmt.Sprintf("error %s: %s\n", where, r.Error))
		case r.Failure != "":
			c.printOut(fmt.Sprintf("FAIL  %s: %s\n", where, r.Failure))
		case r.Skipped && each:
			c.printOut(fmt.Sprintf("skip  %s\n", where))
		case each:
			c.printOut(fmt.Sprintf("ok    %s: %s\n", where, orElse(strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Got, r.Rule, r.Errno)), string(r.Got))))
		}
	}
	failed, broken := t.Count()
	for _, cover := range t.Coverage {
		line := fmt.Sprintf("%s: %d of %d rules decided a case", cover.Policy, cover.Rules-len(cover.Unused), cover.Rules)
		if len(cover.Unused) > 0 {
			line += "; none was decided by " + few(cover.Unused)
		}
		c.printOut(line + "\n")
	}
	for _, m := range t.Mutations {
		line := fmt.Sprintf("%s: %d rules dropped in turn, ", m.Policy, m.Dropped)
		if len(m.Unnoticed) == 0 {
			line += "and the loss of each is noticed"
		} else {
			line += fmt.Sprintf("and no case notices the loss of %d: %s", len(m.Unnoticed), few(m.Unnoticed))
		}
		c.printOut(line + "\n")
	}
	unfit := ""
	if broken > 0 {
		unfit = fmt.Sprintf(", %d could not be run", broken)
	}
	fmt.Fprintf(c.out, "%d cases in %d sessions: %d passed, %d failed%s (%.1fs)\n", len(t.Results), t.Sessions, len(t.Results)-failed-broken, failed, unfit, t.Seconds)
}

// few is a list that is cut where it gets long.
func few(ids []string) string {
	if n := len(ids) - maxUnused; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:maxUnused], ", "), n)
	}
	return strings.Join(ids, ", ")
}

// printTAP prints version 13 of the Test Anything Protocol.
func (c *console) printTAP(t testReport) {
	fmt.Fprintf(c.out, "TAP version 13\n1..%d\n", len(t.Results))
	for i, r := range t.Results {
		state := "ok"
		if !r.Passed() {
			state = "not ok"
		}
		// A # begins a directive, and a line feed ends the line.
		name := strings.NewReplacer("#", `\#`, "\n", " ").Replace(fmt.Sprintf("%s: %s (%s)", r.File, r.Name, r.Mode))
		if r.Skipped {
			name += " # SKIP"
		}
		c.printOut(fmt.Sprintf("%s %d - %s\n", state, i+1, name))
		if r.Passed() {
			continue
		}
		kind, why := "fail", r.Failure
		if r.Error != "" {
			kind, why = "error", r.Error
		}
		c.printOut(fmt.Sprintf("  ---\n  severity: %s\n  message: %q\n  at: %q\n  ...\n", kind, why, fmt.Sprintf("%s:%d", r.File, r.Line)))
	}
	for _, cover := range t.Coverage {
		for _, id := range cover.Unused {
			c.printOut(fmt.Sprintf("# %s: rule %s decided no case\n", cover.Policy, id))
		}
	}
	for _, m := range t.Mutations {
		for _, id := range m.Unnoticed {
			c.printOut(fmt.Sprintf("# %s: no case notices the loss of rule %s\n", m.Policy, id))
		}
	}
}

// The elements of JUnit's XML, as far as readers of it agree.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitMessage `xml:"failure"`
		Error   *junitMessage `xml:"error"`
		Skipped *struct{}     `xml:"skipped"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
	}
)

// junitEntry is one test as JUnit's XML tells of it.
type junitEntry struct {
	suite, name     string // the suite is a file
	line            int
	ms              float64
	failure, broken string
	skipped         bool
}

func (t testReport) junit() []junitEntry {
	var entries []junitEntry
	for _, r := range t.Results {
		entries = append(entries, junitEntry{r.File, fmt.Sprintf("%s (%s)", r.Name, r.Mode), r.Line, r.DurationMs, r.Failure, r.Error, r.Skipped})
	}
	return entries
}

func writeJUnit(file string, whole float64, entries []junitEntry) error {
	seconds := func(ms float64) string { return fmt.Sprintf("%.3f", ms/1000) }
	all := junitSuites{Time: fmt.Sprintf("%.3f", whole)}
	times := map[int]float64{}
	for _, e := range entries {
		at := slices.IndexFunc(all.Suites, func(s junitSuite) bool { return s.Name == e.suite })
		if at < 0 {
			at = len(all.Suites)
			all.Suites = append(all.Suites, junitSuite{Name: e.suite})
		}
		s := &all.Suites[at]
		one := junitCase{Name: e.name, Class: e.suite, File: e.suite, Line: e.line, Time: seconds(e.ms)}
		switch {
		case e.broken != "":
			one.Error = &junitMessage{e.broken}
			s.Errors++
		case e.failure != "":
			one.Failure = &junitMessage{e.failure}
			s.Failures++
		}
		if e.skipped {
			one.Skipped = &struct{}{}
		}
		s.Tests++
		times[at] += e.ms
		s.Time = seconds(times[at])
		s.Cases = append(s.Cases, one)
	}
	for _, s := range all.Suites {
		all.Tests, all.Failures, all.Errors = all.Tests+s.Tests, all.Failures+s.Failures, all.Errors+s.Errors
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte(xml.Header), append(text, '\n')...), 0o644)
}
