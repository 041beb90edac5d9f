package shadow

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// carried is what a layer notes of commits: what they have left on the host, so
// that it is not taken for somebody else's work, and what one is about to do, so
// that the next finishes what was cut off. Paths are bytes, since they need not be
// UTF-8.
type carried struct {
	// Left are the times of change, in nanoseconds, that commits have left at files
	// and directories of the host, by file key.
	Left map[string]int64 `json:"left,omitempty"`
	// Names are paths in directories that hide what the host has there, and that
	// were carried over: they hide nothing more.
	Names [][]byte `json:"names,omitempty"`
	// Moved are directories of the host that commits have renamed, or are about to,
	// one after the other: each From is a path after those before it.
	Moved []relocation `json:"moved,omitempty"`
	// Doing is what the commit that is under way, or was cut off, does.
	Doing []doing `json:"doing,omitempty"`
	// Mine are files and directories of the host, by key, that it may give another
	// time of change, and that nobody else had changed before it, with their mtime.
	Mine map[string]int64 `json:"mine,omitempty"`
	// Dirs are the directories of the host in which it changes names, and Made those
	// that it makes.
	Dirs [][]byte `json:"dirs,omitempty"`
	Made [][]byte `json:"made,omitempty"`

	names map[string]bool
	// again says that a commit that was cut off is being finished: what was nobody
	// else's before it still is.
	again bool
}

// relocation is a directory that has, or is about to get, another name.
type relocation struct {
	From []byte `json:"from"`
	To   []byte `json:"to"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
	Done bool   `json:"done,omitempty"`
}

// doing is one file that a commit puts in the place of another, or removes.
type doing struct {
	Tree  string `json:"tree"`
	Path  []byte `json:"path"`
	Aside string `json:"aside"` // the name in its directory that it uses meanwhile
	// The host's file at the path before. Zero for none.
	Dev   uint64 `json:"dev,omitempty"`
	Ino   uint64 `json:"ino,omitempty"`
	Mtime int64  `json:"mtime,omitempty"`
	Size  int64  `json:"size,omitempty"`
	Mode  uint32 `json:"mode,omitempty"`
}

// carriedFile is in the layer's directory, beside layer.json.
const carriedFile = "carried.json"

func (l *Layer) carried() (*carried, error) {
	c := &carried{Left: map[string]int64{}, names: map[string]bool{}}
	text, err := os.ReadFile(filepath.Join(l.Path, carriedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(text, c)
	}
	if err != nil {
		return nil, fmt.Errorf("shadow layer %s: %s: %w", l.ID, carriedFile, err)
	}
	if c.Left == nil {
		c.Left = map[string]int64{}
	}
	for _, n := range c.Names {
		c.names[string(n)] = true
	}
	return c, nil
}

// write puts the notes to the disk before it returns.
func (c *carried) write(l *Layer) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	name := filepath.Join(l.Path, carriedFile)
	file, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	dir, err := os.Open(l.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// has reports whether a path was carried over from a directory that hides.
func (c *carried) has(p string) bool { return c.names[p] }

func (c *carried) addName(p string) {
	if !c.names[p] {
		c.names[p] = true
		c.Names = append(c.Names, []byte(p))
	}
}

// left reports whether a file of the host is as a commit has left it.
func (c *carried) left(i *identity) bool {
	key := fileKey(i.dev, i.ino)
	if mtime, ok := c.Mine[key]; ok && c.again && (i.isDir() || mtime == i.mtime) {
		return true
	}
	return c.Left[key] == i.ctime
}

// note remembers how a commit leaves a file of the host.
func (c *carried) note(s *unix.Stat_t) { c.Left[fileKey(s.Dev, s.Ino)] = s.Ctim.Nano() }

// movedTo is where a directory lies that was at a path when the layer was born.
func (c *carried) movedTo(p string) string {
	for _, m := range c.Moved {
		from, to := string(m.From), string(m.To)
		if isWithin(p, from) && m.isDone() {
			p = to + strings.TrimPrefix(p, from)
		}
	}
	return p
}

// isDone looks whether the directory has its new name.
func (m relocation) isDone() bool {
	if m.Done {
		return true
	}
	above, err := hostDir(path.Dir(string(m.To)))
	if err != nil {
		return false
	}
	defer unix.Close(above)
	s, err := lstat(above, path.Base(string(m.To)))
	return err == nil && s.Dev == m.Dev && s.Ino == m.Ino
}

// settle forgets what was under way.
func (c *carried) settle() { c.Doing, c.Mine, c.Dirs, c.Made = nil, nil, nil, nil }
