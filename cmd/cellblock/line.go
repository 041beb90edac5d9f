package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"
)

// errInterrupted says that Ctrl-C was typed at a prompt.
var errInterrupted = errors.New("interrupted")

// lineReader gives the repl its lines.
type lineReader interface {
	// read returns one line without its end, errInterrupted, or io.EOF.
	read(prompt string) (string, error)
}

func newLineReader(c *console) lineReader {
	if !c.inTTY || !c.outTTY {
		return &plainLines{bufio.NewReader(c.in)}
	}
	return &editor{c: c, history: loadHistory(stateDir())}
}

// plainLines reads lines that nobody types.
type plainLines struct{ in *bufio.Reader }

func (p *plainLines) read(string) (string, error) {
	line, err := p.in.ReadString('\n')
	if errors.Is(err, io.EOF) && line != "" {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}

// editor is a line editor with history. The terminal is raw only while a line
// is typed, so that Ctrl-C during a cell is a signal.
type editor struct {
	c       *console
	history *history
	term    *term.Terminal
	ctrlC   bool
}

// Read passes on what is typed and notes a Ctrl-C: to term.Terminal it is the
// same end as Ctrl-D.
func (e *editor) Read(p []byte) (int, error) {
	n, err := e.c.in.Read(p)
	for _, b := range p[:n] {
		if b == 0x03 {
			e.ctrlC = true
		}
	}
	return n, err
}

func (e *editor) Write(p []byte) (int, error) { return e.c.out.Write(p) }

func (e *editor) read(prompt string) (string, error) {
	fd := int(e.c.in.Fd())
	state, err := term.MakeRaw(fd)
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(fd, state) }()
	if e.term == nil {
		e.term = term.NewTerminal(e, "")
		e.term.History = e.history
	}
	if w, h, err := term.GetSize(fd); err == nil && w > 0 {
		_ = e.term.SetSize(w, h)
	}
	e.term.SetBracketedPasteMode(true)
	defer e.term.SetBracketedPasteMode(false)
	e.term.SetPrompt(prompt)
	e.ctrlC = false
	line, err := e.term.ReadLine()
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	if errors.Is(err, io.EOF) && e.ctrlC {
		e.term = nil // with the half-typed line in it
		io.WriteString(e.c.out, "^C\r\n")
		return "", errInterrupted
	}
	return line, err
}

// maxHistory bounds what is kept, in lines.
const maxHistory = 1000

// history is the lines typed, oldest first, kept in a file that only its owner
// reads. A line that cannot be written is kept for this run.
type history struct {
	lines []string
	file  string
}

func loadHistory(dir string) *history {
	h := &history{}
	if dir == "" || os.MkdirAll(dir, 0o700) != nil {
		return h
	}
	h.file = filepath.Join(dir, "history")
	if data, err := os.ReadFile(h.file); err == nil {
		for _, line := range strings.Split(string(data), "\n") {
			h.keep(line)
		}
		if strings.Count(string(data), "\n") > 2*maxHistory {
			_ = os.WriteFile(h.file, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600)
		}
	}
	return h
}

func (h *history) keep(line string) bool {
	if strings.TrimSpace(line) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return false
	}
	h.lines = append(h.lines, line)
	if len(h.lines) > maxHistory {
		h.lines = h.lines[len(h.lines)-maxHistory:]
	}
	return true
}

// Add keeps a line, in memory and in the file.
func (h *history) Add(line string) {
	if !h.keep(line) || h.file == "" {
		return
	}
	f, err := os.OpenFile(h.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(line + "\n")
}

// Len is the number of lines kept.
func (h *history) Len() int { return len(h.lines) }

// At returns a line; 0 is the newest.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }
