package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"
)

// maxAnswer bounds the line that answers input().
const maxAnswer = 64 << 10

// ask answers input() and getpass() of a cell from the terminal.
func (c *console) ask(prompt string, password bool) (string, error) {
	c.printOut(prompt)
	if password {
		line, err := term.ReadPassword(int(c.in.Fd()))
		fmt.Fprintln(c.out)
		return string(line), err
	}
	// One byte a read: what follows the line belongs to the next reader.
	var line strings.Builder
	for one := make([]byte, 1); line.Len() < maxAnswer; {
		n, err := c.in.Read(one)
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
