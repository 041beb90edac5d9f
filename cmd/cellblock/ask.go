package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"cellblock/kernel/host"
)

// maxAnswer bounds the line that answers input().
const maxAnswer = 64 << 10

// questions are those that cells ask at the terminal. Only the cell that runs
// may ask, and when it ends nothing goes on reading: the line that is typed next
// is the next prompt's.
type questions struct {
	c *console

	one sync.Mutex // one question at a time

	mu   sync.Mutex
	quit [2]int // a pipe whose write end is closed when the cell ends
	open bool
	all  sync.WaitGroup // the questions that wait or read
}

var errNobodyAsks = errors.New("input: the cell that asked has ended")

// begin lets a cell ask. Without the pipe none may.
func (q *questions) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = unix.Pipe2(q.quit[:], unix.O_CLOEXEC) == nil
}

// end ends every question and returns when the terminal is as it was.
func (q *questions) end() {
	q.mu.Lock()
	if !q.open {
		q.mu.Unlock()
		return
	}
	q.open = false
	unix.Close(q.quit[1])
	q.mu.Unlock()
	q.all.Wait()
	unix.Close(q.quit[0])
}

// enter waits for the turn to use the terminal; leave gives it back.
func (q *questions) enter() (leave func(), err error) {
	q.mu.Lock()
	if !q.open {
		q.mu.Unlock()
		return nil, errNobodyAsks
	}
	q.all.Add(1)
	q.mu.Unlock()
	q.one.Lock()
	return func() { q.one.Unlock(); q.all.Done() }, nil
}

// answering are what answers a cell's questions: whoever sits at the terminal. Without one
// nobody does. What is to be approved has to be seen.
func (c *console) answering() (input func(string, bool) (string, error), approve func(context.Context, host.Approval) (bool, error)) {
	if c.inTTY {
		input = c.questions.ask
		if c.errTTY {
			approve = c.questions.approve
		}
	}
	return input, approve
}

// maxShown bounds what is shown of a call that is to be approved, in bytes.
const maxShown = 4096

// approve asks whether a host call may be carried out. Only what is typed after the
// question counts, and only "y" or "yes" approves. What is too long to be shown is
// not approved: nobody would have seen it.
func (q *questions) approve(ctx context.Context, a host.Approval) (bool, error) {
	leave, err := q.enter()
	if err != nil {
		return false, err
	}
	defer leave()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	arguments, action := host.Shown(a.Call.Arguments), host.Shown(a.Action)
	if len(arguments)+len(action) > maxShown {
		return false, fmt.Errorf("its arguments and action have more than %d bytes, too many to be read at a terminal", maxShown)
	}
	fd := int(q.c.in.Fd())
	if err := unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH); err != nil {
		return false, fmt.Errorf("drop what was typed before the question: %w", err)
	}
	q.c.say("host call %s wants to be approved: %s", named(a.Call.Tool), named(a.Reason))
	q.c.say("  arguments %s", arguments)
	if action != "" {
		q.c.say("  action    %s", action)
	}
	fmt.Fprint(q.c.err, "approve it once? [y/N] ") // not among the output of cells
	text, err := q.line(ctx)
	if err != nil {
		return false, err
	}
	text = strings.ToLower(strings.TrimSpace(text))
	return text == "y" || text == "yes", nil
}

// ask answers input() and getpass() of a cell.
func (q *questions) ask(prompt string, password bool) (string, error) {
	leave, err := q.enter()
	if err != nil {
		return "", err
	}
	defer leave()

	q.c.printOut(prompt)
	if password && q.c.inTTY {
		restore, err := unechoed(int(q.c.in.Fd()))
		if err != nil {
			return "", fmt.Errorf("turn the terminal's echo off: %w", err)
		}
		defer fmt.Fprintln(q.c.out)
		defer restore()
	}
	return q.line(context.Background())
}

// look is how long a question waits between two looks at its context, in milliseconds.
const look = 100

// line reads one line, a byte a read: what follows the line belongs to the next
// reader.
func (q *questions) line(ctx context.Context) (string, error) {
	timeout := -1
	if ctx.Done() != nil {
		timeout = look
	}
	var line strings.Builder
	for one := make([]byte, 1); line.Len() < maxAnswer; {
		wait := []unix.PollFd{{Fd: int32(q.quit[0]), Events: unix.POLLIN}, {Fd: int32(q.c.in.Fd()), Events: unix.POLLIN}}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if _, err := unix.Poll(wait, timeout); err != nil && !errors.Is(err, unix.EINTR) {
			return "", fmt.Errorf("wait for an answer: %w", err)
		}
		switch {
		case wait[0].Revents != 0:
			return "", errNobodyAsks
		case wait[1].Revents == 0:
			continue
		}
		n, err := q.c.in.Read(one)
		switch {
		case n == 1 && one[0] == '\n':
			return line.String(), nil
		case n == 1:
			line.WriteByte(one[0])
		case errors.Is(err, io.EOF) && line.Len() > 0:
			return line.String(), nil
		case err != nil:
			return "", err
		}
	}
	return "", fmt.Errorf("input: a line of more than %d KiB", maxAnswer>>10)
}

// unechoed stops the terminal from showing what is typed (termios(3)).
func unechoed(fd int) (restore func(), err error) {
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	quiet := *was
	quiet.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &quiet); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) }, nil
}
