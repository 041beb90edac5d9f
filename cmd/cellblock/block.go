package main

import (
	"regexp"
	"strings"
)

// blockState is what the lines typed so far amount to.
type blockState int

const (
	blockEmpty blockState = iota
	blockOpen             // more lines must follow: a bracket or a string is open
	blockBody             // a compound statement, which a blank line ends
	blockDone
)

// compound finds the first words of Python's compound statements. The soft
// keyword match needs its colon at the end to be one.
var compound = regexp.MustCompile(`^(?:(?:if|for|while|try|with|def|class|async)\b|@|match\b.*:\s*(?:#.*)?$)`)

// blockOf judges lines by Python's lexical rules alone: brackets, strings,
// comments, continuations and the first word of a statement. No interpreter is
// asked, since the only one there is runs the cells. What is lexically whole and
// still wrong goes to it and comes back as a SyntaxError.
func blockOf(lines []string) blockState {
	var (
		scan  lineScanner
		body  bool
		blank = true
	)
	for _, line := range lines {
		fresh := !scan.open()
		stripped := strings.TrimSpace(line)
		if fresh && stripped != "" {
			blank = false
			if line[0] != ' ' && line[0] != '\t' {
				body = body || compound.MatchString(stripped)
			}
		}
		scan.line(line)
	}
	switch {
	case scan.open():
		return blockOpen
	case blank:
		return blockEmpty
	case body && strings.TrimSpace(lines[len(lines)-1]) != "":
		return blockBody
	}
	return blockDone
}

// lineScanner follows brackets and strings from line to line.
type lineScanner struct {
	depth     int
	quote     string // the triple quote that is open
	continued bool   // the line before ended in a backslash
}

func (s *lineScanner) open() bool { return s.depth > 0 || s.quote != "" || s.continued }

func (s *lineScanner) line(text string) {
	s.continued = false
	for i := 0; i < len(text); {
		if s.quote != "" {
			i = s.inString(text, i)
			continue
		}
		switch ch := text[i]; ch {
		case '#':
			return
		case '(', '[', '{':
			s.depth++
		case ')', ']', '}':
			s.depth = max(s.depth-1, 0)
		case '\\':
			s.continued = i == len(text)-1
		case '"', '\'':
			if triple := strings.Repeat(string(ch), 3); strings.HasPrefix(text[i:], triple) {
				s.quote = triple
			} else {
				s.quote = string(ch)
			}
			i += len(s.quote)
			continue
		}
		i++
	}
	if len(s.quote) == 1 {
		// A one-line string ends with its line, unless a backslash carries it on.
		if odd := (len(text) - len(strings.TrimRight(text, `\`))) % 2; odd == 0 {
			s.quote = ""
		}
	}
}

// inString returns the place after the string's end, or the line's.
func (s *lineScanner) inString(text string, i int) int {
	for ; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case strings.HasPrefix(text[i:], s.quote):
			i += len(s.quote)
			s.quote = ""
			return i
		}
	}
	return len(text)
}
