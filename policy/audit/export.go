package audit

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Format names a form in which a log leaves.
type Format string

// The formats.
const (
	JSONLines Format = "jsonl" // the records as they are
	CSV       Format = "csv"   // one row a record, for spreadsheets
	OCSF      Format = "ocsf"  // JSON lines of Open Cybersecurity Schema Framework events
)

// Formats lists them.
func Formats() []Format { return []Format{JSONLines, CSV, OCSF} }

// ParseFormat reads a format's name.
func ParseFormat(name string) (Format, error) {
	for _, f := range Formats() {
		if string(f) == name {
			return f, nil
		}
	}
	return "", fmt.Errorf("format %q: unknown; choose jsonl, csv or ocsf", name)
}

// Skipped says which lines of a log were no records and were left out of an
// export. Verify says why.
type Skipped struct{ Lines []int64 }

func (e *Skipped) Error() string {
	return fmt.Sprintf("line %d: not a record, left out, as %d in all; 'audit verify' says more", e.Lines[0], len(e.Lines))
}

// Export writes the records of a log in another form. Host is the name of the
// machine that they come from, for OCSF. The error is a *Skipped when everything
// else was written.
func Export(w io.Writer, log io.Reader, f Format, host string) error {
	var put func(Entry) error
	flush := func() error { return nil }
	switch f {
	case JSONLines:
		put = func(e Entry) error { return writeLine(w, e.Raw) }
	case OCSF:
		put = func(e Entry) error {
			line, err := marshal(ocsfEvent(e.Record, host))
			if err != nil {
				return err
			}
			return writeLine(w, line)
		}
	case CSV:
		rows := csv.NewWriter(w)
		if err := rows.Write(columns); err != nil {
			return err
		}
		put = func(e Entry) error {
			row, err := csvRow(e.Record)
			if err != nil {
				return err
			}
			return rows.Write(row)
		}
		flush = func() error { rows.Flush(); return rows.Error() }
	default:
		return fmt.Errorf("format %q: unknown", f)
	}
	skipped := &Skipped{}
	for e, err := range Read(log) {
		switch {
		case err == nil:
			if err := put(e); err != nil {
				return err
			}
		case errors.Is(err, ErrNoRecord), errors.Is(err, ErrLineTooLong), errors.Is(err, ErrTorn):
			skipped.Lines = append(skipped.Lines, e.Line)
		default:
			return err
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if len(skipped.Lines) > 0 {
		return skipped
	}
	return nil
}

func writeLine(w io.Writer, line []byte) error {
	if _, err := w.Write(line); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

var columns = []string{"seq", "time", "session", "generation", "cell", "scope", "pid", "program", "op", "target",
	"decision", "rule", "reason", "source", "count", "policy", "facts", "prev"}

func csvRow(r Record) ([]string, error) {
	facts := ""
	if len(r.Facts) > 0 {
		text, err := marshal(r.Facts)
		if err != nil {
			return nil, err
		}
		facts = string(text)
	}
	number := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	row := []string{number(r.Seq), r.Time.UTC().Format(time.RFC3339Nano), r.Session, number(int64(r.Generation)), number(int64(r.Cell)),
		r.Scope, number(int64(r.PID)), r.Program, r.Op, r.Target, r.Decision, r.Rule, r.Reason, string(r.Source), number(r.Count),
		r.Policy, facts, r.Prev}
	for i := range row {
		row[i] = inert(row[i])
	}
	return row, nil
}

// inert makes a text that no spreadsheet takes for a formula: it must not begin
// with what starts one, also not after blanks, which some of them drop, nor in
// the full-width forms. Control characters are spelt out.
func inert(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r > 0x7f && acts(r) {
			return '\ufffd'
		}
		return r
	}, text)
	if strings.IndexAny(strings.TrimLeft(text, " \u00a0\ufffd'"), "=+-@|%＝＋－＠") == 0 {
		return "'" + text
	}
	return text
}
