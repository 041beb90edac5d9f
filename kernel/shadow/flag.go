package shadow

import (
	"path"

	"golang.org/x/sys/unix"
)

// flag says why the host would execute or load by itself what a change puts there.
func (l *Layer) flag(c Change) string {
	why := flagOf(c.Path, c.New.Type)
	if why != "" || c.New.Type != "directory" || c.Kind != Renamed {
		return why
	}
	fd, err := hostDir(c.From)
	if err != nil {
		return "" // a conflict says so
	}
	defer unix.Close(fd)
	in := arriving{}
	in.directory(fd, c.Path, 0)
	return in.why
}

// arriving looks for what is flagged in a directory of the host by the paths that its
// files are about to have. What the layer has in it are changes with flags of their own.
type arriving struct {
	count int
	why   string
}

func (m *arriving) directory(fd int, as string, depth int) {
	const notAll = "not all that is in it can be looked at"
	list, err := names(fd)
	if m.count += len(list); err != nil || m.count > maxEntries || depth > maxDepth {
		m.why = notAll
		return
	}
	for _, name := range list {
		s, err := lstat(fd, name)
		if err != nil {
			m.why = notAll
			return
		}
		at, kind := path.Join(as, name), typeOf(s.Mode)
		if m.why = flagOf(at, kind); m.why == "" && kind == "directory" {
			in, err := openDir(fd, name, 0)
			if err != nil {
				m.why = notAll
				return
			}
			m.directory(in, at, depth+1)
			unix.Close(in)
		}
		if m.why != "" {
			return
		}
	}
}

// FlagOf says why the host would execute or load what lies at a path by itself,
// some time later and with somebody's rights; empty for no reason known. It looks
// at the name alone: what is in a file decides nothing.
func FlagOf(p string) string { return flagOf(p, "file") }

// flagOf is FlagOf for a type of file. A directory that has the name of such a file is
// none: what is made in it has flags of its own. A link decides what lies at each path
// below its own.
func flagOf(p, kind string) string {
	if n := flagged.first(p, kind == "directory"); n >= 0 {
		return flags[n].why
	}
	if kind != "link" {
		return ""
	}
	if n := leading.first(p, false); n >= 0 {
		return "it leads to files of which is known: " + flags[n].why
	}
	return ""
}
