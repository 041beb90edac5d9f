package shadow

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Kind says what a change comes to on the host.
type Kind string

// The kinds of change.
const (
	Created  Kind = "created"  // nothing is there on the host
	Changed  Kind = "changed"  // the same kind of file is there; Parts says what differs
	Deleted  Kind = "deleted"  // with all that is beneath it
	Renamed  Kind = "renamed"  // From is no longer there
	Replaced Kind = "replaced" // another kind of file is there
)

// Parts of a file that differ.
const (
	PartContent = "content"
	PartMode    = "mode"
	PartOwner   = "owner"
	PartTime    = "time"
	// PartAttributes are the user's extended attributes and access lists.
	PartAttributes = "attributes"
)

// File is one side of a change. Type is file, directory, link, fifo, socket or
// device; the zero File stands for nothing.
type File struct {
	Type   string `json:"type,omitempty"`
	Size   int64  `json:"size,omitempty"` // bytes, of a regular file
	Mode   uint32 `json:"mode,omitempty"` // the permission bits of stat(2), set-id bits included
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	Target string `json:"target,omitempty"` // of a symbolic link, as it is written
}

// Change is one difference between a layer and the host.
type Change struct {
	Path  string   `json:"path"`           // on the host
	From  string   `json:"from,omitempty"` // of Renamed
	Kind  Kind     `json:"kind"`
	Parts []string `json:"parts,omitempty"` // of Changed, and of Renamed
	Old   *File    `json:"old,omitempty"`   // on the host
	New   *File    `json:"new,omitempty"`   // in the layer
	// Flag says why the host would execute or load the file by itself later.
	Flag string `json:"flag,omitempty"`
	// Conflict says why the change should not be copied to the host as it is.
	Conflict string `json:"conflict,omitempty"`

	// PathBytes and FromBytes are Path and From where these are not UTF-8, which
	// JSON cannot hold.
	PathBytes []byte `json:"path_bytes,omitempty"`
	FromBytes []byte `json:"from_bytes,omitempty"`

	tree  Tree
	name  string    // beneath the tree
	where string    // of what the layer has in view there, on the host as it is now
	freed bool      // the host's directory at where has another name in the layer
	was   *identity // of Old
	// replaces is what a renamed directory has taken the place of, and what goes.
	replaces *identity
	origin   *origin // it began as a copy of a file of the host
	hidden   bool    // the directory above it shows nothing of the host's
	covered  bool    // nothing stands for it in the layer: a directory hides it
	setID    bool    // Flag says this alone
	from     place   // of Renamed, where From is in the layer
}

// place is where something stands in a layer.
type place struct {
	tree            Tree
	name            string
	hidden, covered bool
}

// Diff is a layer's difference from the host, in the order of paths.
type Diff struct {
	Layer   string   `json:"layer"`
	Session string   `json:"session"`
	Changes []Change `json:"changes"`
	Unread  []Unread `json:"unread,omitempty"`
}

// Unread is a place of a layer that could not be looked at.
type Unread struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// String is the place on one line.
func (u Unread) String() string { return shown(u.Path) + ": " + u.Why }

// Flagged counts the changes with a flag.
func (d Diff) Flagged() (n int) {
	for _, c := range d.Changes {
		if c.Flag != "" {
			n++
		}
	}
	return n
}

// String is the change on one line.
func (c Change) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %s", c.Kind, shown(c.Path))
	if c.From != "" {
		b.WriteString(" from " + shown(c.From))
	}
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	switch {
	case c.Kind == Replaced:
		add("%s, was %s", c.New.Type, c.Old.Type)
	case c.New != nil && c.New.Type == "link" && c.Old == nil:
		add("link to %s", shown(c.New.Target))
	case c.New != nil && c.New.Type != "file":
		add("%s", c.New.Type)
	case c.New == nil && c.Old != nil && c.Old.Type != "file":
		add("%s", c.Old.Type)
	}
	switch {
	case c.New != nil && c.New.Type == "file" && c.Old != nil && c.Old.Type == "file" && c.Old.Size != c.New.Size:
		add("%d -> %d bytes", c.Old.Size, c.New.Size)
	case c.New != nil && c.New.Type == "file" && c.Old == nil:
		add("%d bytes", c.New.Size)
	}
	for _, part := range c.Parts {
		switch part {
		case PartMode:
			add("mode %04o -> %04o", c.Old.Mode, c.New.Mode)
		case PartOwner:
			add("owner %d:%d -> %d:%d", c.Old.UID, c.Old.GID, c.New.UID, c.New.GID)
		case PartContent:
			if c.New.Type == "link" {
				add("%q -> %q", c.Old.Target, c.New.Target)
			} else if c.Old.Size == c.New.Size {
				add("content")
			}
		default:
			add("%s", part)
		}
	}
	if len(notes) > 0 {
		b.WriteString(" (" + strings.Join(notes, ", ") + ")")
	}
	if c.Flag != "" {
		b.WriteString("  ! " + c.Flag)
	}
	if c.Conflict != "" {
		b.WriteString("  conflict: " + c.Conflict)
	}
	return b.String()
}

// shown is a name as it may stand on a line: a session chose it, and one that would
// end the line, or work on a terminal, is quoted.
func shown(name string) string {
	for _, r := range name {
		if !unicode.IsPrint(r) || r == '"' || r == unicode.ReplacementChar {
			return strconv.Quote(name)
		}
	}
	return name
}
