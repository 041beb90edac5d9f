package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Access is a set of ways to use a path.
type Access uint8

// The ways. AccessWrite is every change; its three parts may be allowed one by
// one. Changes of metadata (mode, owner, times, attributes) have no part of
// their own: no mount and no Landlock right tells them from other changes, so
// they are allowed where any part is.
const (
	AccessRead   Access = 1 << iota // open for reading, list
	AccessExec                      // execute as a program, or load code from
	AccessModify                    // change the content of what exists
	AccessCreate                    // make files, directories, links
	AccessRemove                    // remove or rename away
	AccessWrite  = AccessModify | AccessCreate | AccessRemove
)

// accessWords are the words of a document, the widest first.
var accessWords = []struct {
	word string
	set  Access
}{
	{"read", AccessRead}, {"write", AccessWrite}, {"exec", AccessExec},
	{"modify", AccessModify}, {"create", AccessCreate}, {"remove", AccessRemove},
}

// ParseAccess reads one word of a document.
func ParseAccess(word string) (Access, error) {
	for _, a := range accessWords {
		if a.word == word {
			return a.set, nil
		}
	}
	return 0, fmt.Errorf("access %q: choose from read, write, exec, modify, create, remove", word)
}

// Words spells the set with as few words as do.
func (a Access) Words() []string {
	words := []string{}
	for _, w := range accessWords {
		if a&w.set == w.set {
			words = append(words, w.word)
			a &^= w.set
		}
	}
	return words
}

// String joins the words.
func (a Access) String() string { return strings.Join(a.Words(), "+") }

// Has reports whether all of b is in a.
func (a Access) Has(b Access) bool { return a&b == b }

// MarshalJSON writes the words.
func (a Access) MarshalJSON() ([]byte, error) { return json.Marshal(a.Words()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Access) UnmarshalJSON(text []byte) error {
	var words []string
	if err := json.Unmarshal(text, &words); err != nil {
		return err
	}
	*a = 0
	for _, w := range words {
		set, err := ParseAccess(w)
		if err != nil {
			return err
		}
		*a |= set
	}
	return nil
}

// Needs says which ways an operation uses. Changes of metadata need none of the
// parts but a place that may be changed at all.
func (o Op) Needs() (parts Access, metadata bool) {
	switch o.Kind {
	case Read:
		return AccessRead, false
	case Exec, Load:
		return AccessExec, false
	case Create, Mkdir, Link, Symlink:
		parts = AccessCreate
	case Remove, Rmdir, RenameFrom:
		parts = AccessRemove
	case RenameTo:
		parts = AccessCreate
	case Rename:
		parts = AccessCreate | AccessRemove
	case Socket:
		return AccessWrite, false // what it is told may change anything
	case Chmod, Chown, Utime, Xattr:
		return 0, true
	default: // Write, Truncate, and whatever is new
		parts = AccessModify
	}
	if o.Creates {
		parts |= AccessCreate
	}
	if o.Replaces {
		parts |= AccessRemove
	}
	return parts, false
}

// Names reports whether o makes or takes a name, which only a rule for the directory
// that holds it, or for one above, can allow.
func (o Op) Names() bool { return o.Kind.names() || o.Creates || o.Replaces }

// names reports whether an operation of kind k makes or takes a name, which is a
// change of the directory that holds it.
func (k OpKind) names() bool {
	return slices.Contains([]OpKind{Create, Mkdir, Remove, Rmdir, Rename, RenameFrom, RenameTo, Link, Symlink}, k)
}

// takes reports whether an operation of kind k takes a name away.
func (k OpKind) takes() bool {
	return k == Remove || k == Rmdir || k == Rename || k == RenameFrom || k == RenameTo
}
