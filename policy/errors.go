package policy

import "fmt"

// Error is what is wrong with a document, where, and what to do about it.
type Error struct {
	File string // as it was named to Parse
	Line int    // from 1
	What string
	Do   string
}

// Error is "policy FILE:LINE: what: what to do".
func (e *Error) Error() string {
	return fmt.Sprintf("policy %s:%d: %s: %s", e.File, e.Line, e.What, e.Do)
}
