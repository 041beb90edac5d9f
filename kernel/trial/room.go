package trial

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"cellblock/kernel"
	"cellblock/policy"
)

// room is where a task has its files: a session directory, a home and the state of a
// launcher, and what the set-up made elsewhere on the host.
type room struct {
	dir     string
	outside []string // in the order in which they were made
	made    map[string]bool
}

// roomsIn is where rooms are: not /tmp, which is private in a jail.
const roomsIn = "/var/tmp"

func newRoom(files []policy.CaseSetup) (*room, error) {
	dir, err := os.MkdirTemp(roomsIn, "cellblock-trial-")
	if err != nil {
		return nil, fmt.Errorf("set-up: %w", err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	r := &room{dir: dir, made: map[string]bool{}}
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(r.session(), 0o755), os.Mkdir(r.home(), 0o755), os.Mkdir(r.state(), 0o700))
	for _, f := range files {
		if err == nil {
			err = r.put(f)
		}
	}
	if err != nil {
		r.remove()
		return nil, fmt.Errorf("set-up: %w", err)
	}
	return r, nil
}

func (r *room) session() string { return filepath.Join(r.dir, "session") }
func (r *room) home() string    { return filepath.Join(r.dir, "home") }
func (r *room) state() string   { return filepath.Join(r.dir, "state") }

// expand puts the room's places in for variables.
func (r *room) expand(p string) string {
	for name, value := range map[string]string{"${session}": r.session(), "${home}": r.home(), "${tmp}": "/tmp", "${state}": r.state()} {
		if rest, ok := strings.CutPrefix(p, name); ok {
			return value + rest
		}
	}
	return p
}

// own reports whether a place is made for the case, and gone with it.
func (r *room) own(p string) bool { return policy.Within(r.dir, p) || policy.Own(p) }

// put makes a file of the set-up. Outside of the room nothing may be there before, so
// that nothing of the host's is lost afterwards.
func (r *room) put(f policy.CaseSetup) error {
	at := r.expand(f.Path)
	parent := filepath.Dir(at)
	if policy.Within(r.dir, at) {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	var err error
	if f.Dir {
		if err = os.Mkdir(at, 0o755); errors.Is(err, fs.ErrExist) && policy.Within(r.dir, at) {
			err = nil // made for a file beneath it
		}
	} else {
		err = r.file(at, f)
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("line %d: %s is there already: it is the host's, and a case may not change it", f.Line, at)
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", f.Line, err)
	}
	r.made[kernel.Canonical(at)] = true
	if !policy.Within(r.dir, at) {
		r.outside = append(r.outside, at)
	}
	return nil
}

// emptyProgram is what an executable of the set-up does that has no text.
const emptyProgram = "#!/bin/sh\n:\n"

func (r *room) file(at string, f policy.CaseSetup) error {
	mode, text := fs.FileMode(0o644), f.Text
	if f.Exec {
		mode = 0o755
		if text == "" {
			text = emptyProgram
		}
	}
	to, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = to.WriteString(text)
	return errors.Join(err, to.Close(), os.Chmod(at, mode))
}

// remove takes away all that was made, with what cases have put into it.
func (r *room) remove() {
	for i := len(r.outside) - 1; i >= 0; i-- {
		os.RemoveAll(r.outside[i])
	}
	os.RemoveAll(r.dir)
}

func (r *room) kernelOptions(o kernel.Options, doc policy.Document, mode policy.Mode) kernel.Options {
	o.SessionDir, o.Home, o.Mode, o.Policy, o.Tier = r.session(), r.home(), mode, &doc, kernel.TierJail
	o.Audit = ""
	o.SkillRoots = []string{}
	o.State = append([]string{r.state()}, o.State...)
	o.Shadow = filepath.Join(r.state(), "shadow")
	o.MaxOutput = maxReply
	return o
}
