package shadow

import (
	"errors"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// judge says what is to be known of a change before anybody copies it to the host.
func (l *Layer) judge(c *Change, seen *carried) {
	if c.Kind != Deleted {
		c.Flag = l.flag(*c)
		if c.Flag == "" && c.New.Type == "file" && c.New.Mode&setIDs != 0 {
			c.Flag, c.setID = "it has a set-id bit", true
		}
	}
	if c.Conflict == "" {
		c.Conflict = l.conflict(*c, seen)
	}
}

// setIDs are the bits of a mode that give a program its owner's rights.
const setIDs = unix.S_ISUID | unix.S_ISGID

// conflict says why a change should not be copied to the host as it is; empty for
// no reason.
func (l *Layer) conflict(c Change, seen *carried) string {
	// A directory above a refused path may be made, or have its rights changed; put
	// there from elsewhere, replaced or removed it decides what lies at the path.
	harmless := c.New != nil && c.New.Type == "directory" && (c.Kind == Created || c.Kind == Changed)
	for _, r := range l.Refused {
		for _, p := range []string{c.Path, c.From} {
			if p != "" && (p == r.Path || strings.HasPrefix(p, r.Path+"/") || strings.HasPrefix(r.Path, p+"/") && !harmless) {
				return "rule " + r.Rule + " refuses it: " + r.Reason
			}
		}
	}
	if c.New != nil && c.New.Type != "file" && c.New.Type != "directory" && c.New.Type != "link" {
		return "a " + c.New.Type + " is not carried over"
	}
	if c.Old != nil && (c.Old.Type == "device" || c.Old.Type == "fifo" || c.Old.Type == "socket") && c.Kind != Changed {
		return "a " + c.Old.Type + " of the host is not taken away"
	}
	return l.underneath(c, seen)
}

// underneath says how the host has changed below a change since the layer was born.
func (l *Layer) underneath(c Change, seen *carried) string {
	why := l.hostChanged(c, seen)
	if _, setBack := l.old(); why != "" && setBack {
		why += ", or shortly before: the machine's clock has been set back since"
	}
	return why
}

func (l *Layer) hostChanged(c Change, seen *carried) string {
	if c.was == nil {
		return l.absent(c, seen)
	}
	if !c.was.isDir() {
		if !l.untouched(c.was, seen) {
			return "the host's file was changed after the session began"
		}
		return ""
	}
	if (c.Kind == Changed || c.Kind == Renamed) && len(c.Parts) > 0 && !l.untouched(c.was, seen) {
		// The time of change of a directory tells of its names as well; whose rights
		// these are is then not known.
		return "the host's directory, or names in it, were changed after the session began"
	}
	if c.Kind == Deleted || c.Kind == Replaced {
		return l.treeUntouched(c.where, c.was, seen)
	}
	if c.Kind == Renamed && c.replaces != nil {
		return l.treeUntouched(c.where, c.replaces, seen)
	}
	return ""
}

// absent judges what is new in a layer where the host has nothing. Where it began
// as a copy it was renamed and changed, or the host has removed the file since.
func (l *Layer) absent(c Change, seen *carried) string {
	if c.Kind != Created || c.origin == nil {
		return ""
	}
	if c.New.Type == "directory" {
		return "the host's directory was removed, or renamed, after the session began"
	}
	above, err := hostDir(path.Dir(c.where))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return "" // its directory is new as well
	}
	if err != nil {
		return "on the host: " + path.Dir(c.where) + ": " + err.Error()
	}
	defer unix.Close(above)
	if s, err := lstat(above, "."); err == nil && !l.untouched(identityOf(s), seen) {
		return "it began as a copy of a file of the host, and names in its directory were changed there after the session began"
	}
	return ""
}

// untouched reports whether nobody but a commit of this layer has changed a file of
// the host since the layer was born.
func (l *Layer) untouched(i *identity, seen *carried) bool {
	before, _ := l.old()
	return time.Unix(0, i.ctime).Before(before) || seen.left(i)
}

// treeUntouched looks whether all that lies in a directory of the host is as it was
// when the session began: it is about to go with the directory.
func (l *Layer) treeUntouched(p string, top *identity, seen *carried) string {
	if !top.isDir() {
		if !l.untouched(top, seen) {
			return "the host's file was changed after the session began"
		}
		return ""
	}
	if !l.untouched(top, seen) {
		return "names in the host's directory were changed after the session began"
	}
	above, err := hostDir(path.Dir(p))
	if err != nil {
		return "on the host: " + path.Dir(p) + ": " + err.Error()
	}
	defer unix.Close(above)
	return l.insideUntouched(above, path.Base(p), seen)
}

// insideUntouched is treeUntouched for what lies in a directory.
func (l *Layer) insideUntouched(above int, name string, seen *carried) string {
	look := inside{layer: l, seen: seen}
	look.directory(above, name, 0)
	return look.why
}

type inside struct {
	layer *Layer
	seen  *carried
	count int
	why   string
}

func (in *inside) directory(above int, name string, depth int) {
	fd, err := openDir(above, name, unix.RESOLVE_NO_XDEV)
	if err != nil {
		in.why = "in the host's directory: " + shown(name) + ": " + err.Error()
		return
	}
	defer unix.Close(fd)
	list, err := names(fd)
	if in.count += len(list); err == nil && (in.count > maxEntries || depth > maxDepth) {
		err = errors.New("more in it, or deeper, than is looked at")
	}
	if err != nil {
		in.why = "in the host's directory: " + shown(name) + ": " + err.Error()
		return
	}
	for _, name := range list {
		s, err := lstat(fd, name)
		switch {
		case err != nil:
			in.why = "in the host's directory: " + shown(name) + ": " + err.Error()
		case !in.layer.untouched(identityOf(s), in.seen):
			in.why = "in the host's directory " + shown(name) + " was changed after the session began"
		case s.Mode&unix.S_IFMT == unix.S_IFDIR:
			in.directory(fd, name, depth+1)
		}
		if in.why != "" {
			return
		}
	}
}
