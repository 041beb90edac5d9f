package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
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

// ask answers input() and getpass() of a cell.
func (q *questions) ask(prompt string, password bool) (string, error) {
	q.mu.Lock()
	if !q.open {
		q.mu.Unlock()
		return "", errNobodyAsks
	}
	q.all.Add(1)
	q.mu.Unlock()
	defer q.all.Done()
	q.one.Lock()
	defer q.one.Unlock()

	q.c.printOut(prompt)
	if password && q.c.inTTY {
		restore, err := unechoed(int(q.c.in.Fd()))
		if err != nil {
			return "", fmt.Errorf("turn the terminal's echo off: %w", err)
		}
		defer fmt.Fprintln(q.c.out)
		defer restore()
	}
	return q.line()
}

// line reads one line, a byte a read: what follows the line belongs to the next
// reader.
func (q *questions) line() (string, error) {
	var line strings.Builder
	for one := make([]byte, 1); line.Len() < maxAnswer; {
		wait := []unix.PollFd{{Fd: int32(q.quit[0]), Events: unix.POLLIN}, {Fd: int32(q.c.in.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(wait, -1); err != nil && !errors.Is(err, unix.EINTR) {
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
