package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"cellblock/kernel"

	"github.com/spf13/cobra"
)

const replLong = `Type cells into a session that lives until the end of input.

A statement is run when it is whole; a block (def, for, with …) when an empty
line follows it. Ctrl-C interrupts the running cell and keeps what earlier cells
have set; at the prompt it drops what was typed. Ctrl-D ends.

A line of its own: ":reset" clears the namespace, ":reload" imports the skills
afresh and reads the extensions again, ":quit" ends; "/name text" runs a command of
an extension, and "/" lists them.`

func newRepl(c *console) *cobra.Command {
	var flags sessionFlags
	cmd := &cobra.Command{
		Use:     "repl",
		Short:   "Type cells into a session",
		Long:    replLong,
		Example: "  cellblock repl --session ~/project --mode enforce",
		Args:    atMost(0),
	}
	flags.addCells(cmd.Flags())
	flags.addRecord(cmd.Flags())
	flags.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		session, _, err := flags.session(cmd, c, true)
		if err != nil {
			return err
		}
		defer c.closeSession(session)
		r := &repl{c: c, session: session, lines: newLineReader(c)}
		r.loop()
		if r.worst != exitOK && !c.inTTY {
			return &exitError{code: r.worst}
		}
		return nil
	}
	return cmd
}

// repl reads blocks and runs them.
type repl struct {
	c       *console
	session cellSession
	lines   lineReader
	worst   int
}

func (r *repl) loop() {
	if r.c.inTTY {
		r.c.say("Ctrl-D ends, Ctrl-C interrupts a cell, :reset clears the namespace")
	}
	for {
		code, err := r.block()
		switch {
		case errors.Is(err, errInterrupted):
			continue
		case code != "":
			if r.command(strings.TrimRight(code, " \t\n")) {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.c.say("read input: %v", err)
			} else if r.c.inTTY {
				fmt.Fprintln(r.c.out)
			}
			return
		}
	}
}

// block reads lines until they make a whole statement. At the end of input it
// returns what there is together with the error.
func (r *repl) block() (string, error) {
	var lines []string
	for {
		prompt := ">>> "
		if len(lines) > 0 {
			prompt = "... "
		}
		line, err := r.lines.read(prompt)
		if err != nil {
			if errors.Is(err, io.EOF) && len(lines) > 0 {
				return strings.Join(lines, "\n"), err
			}
			return "", err
		}
		lines = append(lines, line)
		if len(lines) == 1 && (strings.HasPrefix(line, ":") || strings.HasPrefix(line, "/")) {
			return line, nil
		}
		switch blockOf(lines) {
		case blockEmpty:
			return "", nil
		case blockDone:
			return strings.Join(lines, "\n"), nil
		}
	}
}

// command runs one block or one line with a colon, and reports whether it was
// the last.
func (r *repl) command(code string) (quit bool) {
	if name, text, _ := strings.Cut(code, " "); strings.HasPrefix(name, "/") {
		r.slash(strings.TrimPrefix(name, "/"), strings.TrimSpace(text))
		return false
	}
	call := kernel.Call{Code: code}
	if strings.HasPrefix(code, ":") {
		switch code {
		case ":quit":
			return true
		case ":reset":
			call = kernel.Call{Reset: true}
		case ":reload":
			call = kernel.Call{ReloadSkills: true}
		default:
			r.c.say("%s: no such command; there are :reset, :reload and :quit", code)
			return false
		}
	}
	stop := watchSignals(r.session)
	defer stop.done()
	out := newLive(r.c)
	call.Output = out.output
	r.c.questions.begin()
	defer r.c.questions.end()
	result := r.session.Call(context.Background(), call)
	out.finish(result)
	r.worst = max(r.worst, exitCode(result))
	return false
}

// slash runs a command of an extension, or lists them when none is named.
func (r *repl) slash(name, text string) {
	session, ok := r.session.(*kernel.Session)
	if !ok {
		r.c.say("/%s: a server's session has no commands of extensions here", name)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if name == "" {
		for _, c := range session.Commands(ctx) {
			r.c.say("/%s  %s", c.Name, named(c.Doc))
		}
		return
	}
	shown, err := session.Slash(ctx, name, text)
	if err != nil {
		r.c.say("/%s: %v", name, err)
		r.worst = max(r.worst, exitRaised)
		return
	}
	if shown != "" {
		r.c.printOut(strings.TrimSuffix(shown, "\n") + "\n")
	}
}
