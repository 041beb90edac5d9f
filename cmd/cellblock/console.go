package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// console is where a command reads and prints. What depends on a terminal
// (colour, the line editor, taking control characters out of a guest's output)
// asks it, each stream for itself.
type console struct {
	in       *os.File
	out, err io.Writer
	inTTY    bool
	outTTY   bool
	errTTY   bool
	colour   bool // on err, for our own lines

	questions *questions
}

func newConsole() *console {
	c := &console{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		outTTY: term.IsTerminal(int(os.Stdout.Fd())),
		errTTY: term.IsTerminal(int(os.Stderr.Fd())),
	}
	// https://no-color.org: any value but the empty one turns colour off.
	c.colour = c.errTTY && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	c.questions = &questions{c: c}
	return c
}

// say prints one line of our own to standard error. The text may quote what a
// guest chose (a path, an exception), so it is made safe for a terminal too.
func (c *console) say(format string, args ...any) {
	prefix := "cellblock: "
	if c.colour {
		prefix = "\x1b[1mcellblock:\x1b[0m "
	}
	fmt.Fprintln(c.err, prefix+clean(fmt.Sprintf(format, args...), c.errTTY))
}

// printOut writes a guest's text to standard output.
func (c *console) printOut(text string) { io.WriteString(c.out, clean(text, c.outTTY)) }

// printErr writes a guest's text to standard error.
func (c *console) printErr(text string) { io.WriteString(c.err, clean(text, c.errTTY)) }
