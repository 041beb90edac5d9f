package policy

import (
	"fmt"
	"strings"
)

// Mode says what becomes of an action that the policy does not allow.
type Mode string

// The modes. The zero value stands for the default, [Report].
const (
	// Off does the action and reports only what modules declare themselves.
	Off Mode = "off"
	// Report does the action and reports it as one that would be denied.
	Report Mode = "report"
	// Shadow does the action in a private layer of the session: the host's files
	// stay as they are.
	Shadow Mode = "shadow"
	// Enforce has the operating system refuse the action.
	Enforce Mode = "enforce"
)

// DefaultMode is used where no mode was named: it never blocks.
const DefaultMode = Report

// Available lists the modes this build can carry out.
func Available() []Mode { return []Mode{Off, Report, Shadow, Enforce} }

// ModeError says why a mode's name was not accepted.
type ModeError struct {
	Input     string // what was asked for
	Available []Mode // what may be asked for instead
}

// Error names the modes that may be chosen.
func (e *ModeError) Error() string {
	names := make([]string, len(e.Available))
	for i, m := range e.Available {
		names[i] = string(m)
	}
	return fmt.Sprintf("policy mode %q: unknown mode; choose one of %s", e.Input, strings.Join(names, ", "))
}

// ParseMode reads a mode's name. The older spellings stay valid: "0" and
// "false" are off, "1" and "true" are report. The empty string is the default.
// Any other name gives a [*ModeError].
func ParseMode(s string) (Mode, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "":
		return DefaultMode, nil
	case "off", "0", "false":
		return Off, nil
	case "report", "1", "true":
		return Report, nil
	case "enforce":
		return Enforce, nil
	case "shadow":
		return Shadow, nil
	}
	return "", &ModeError{Input: s, Available: Available()}
}

// OrDefault returns m, or the default for the zero value.
func (m Mode) OrDefault() Mode {
	if m == "" {
		return DefaultMode
	}
	return m
}

// String returns the mode's name.
func (m Mode) String() string { return string(m.OrDefault()) }

// Enforced reports whether the operating system refuses what m forbids.
func (m Mode) Enforced() bool { return m == Enforce }
