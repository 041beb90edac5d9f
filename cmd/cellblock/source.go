package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxSource bounds what is read as code. A cell is sent as one line of the
// wire, which has a bound of its own.
const maxSource = 16 << 20

// source is where the code of run comes from.
type source struct {
	commands []string // -c, one cell each
	file     string   // "-" or empty: standard input
	split    bool     // --cells
}

// cells returns the code, one entry a cell.
func (s source) cells(c *console) ([]string, error) {
	if len(s.commands) > 0 {
		if s.file != "" {
			return nil, fmt.Errorf("argument %q: give -c or a file, not both", s.file)
		}
		if !s.split {
			return s.commands, nil
		}
		return splitCells(strings.Join(s.commands, "\n")), nil
	}
	text, err := s.read(c)
	if err != nil {
		return nil, err
	}
	if s.split {
		return splitCells(text), nil
	}
	return []string{text}, nil
}

func (s source) read(c *console) (string, error) {
	name, in := s.file, io.Reader(c.in)
	switch {
	case s.file == "" && c.inTTY:
		return "", errors.New("code: none given; use -c CODE, name a FILE, pipe code in, or start 'cellblock repl'")
	case s.file == "" || s.file == "-":
		name = "standard input"
	default:
		f, err := os.Open(s.file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxSource+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", name, err)
	case len(data) > maxSource:
		return "", fmt.Errorf("read %s: more than %d MiB of code; put the data into a file of the session directory", name, maxSource>>20)
	case !utf8.Valid(data):
		return "", fmt.Errorf("read %s: not UTF-8; convert it first", name)
	}
	return strings.TrimPrefix(string(data), "\ufeff"), nil
}

// cellMark opens a cell, as in the editors that know the percent format.
var cellMark = regexp.MustCompile(`(?m)^# ?%%.*$`)

// splitCells cuts text before every line that begins with "# %%". The mark
// stays as the first line of its cell, so that line numbers count from it. What
// holds nothing but blank lines and the mark is no cell.
func splitCells(text string) []string {
	var cells []string
	start := 0
	keep := func(part string) {
		if strings.TrimSpace(cellMark.ReplaceAllString(part, "")) != "" {
			cells = append(cells, part)
		}
	}
	for _, at := range cellMark.FindAllStringIndex(text, -1) {
		keep(text[start:at[0]])
		start = at[0]
	}
	keep(text[start:])
	return cells
}
