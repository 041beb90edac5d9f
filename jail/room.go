package jail

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"cellblock/jail/enter"
	"cellblock/jail/mount"
	"cellblock/jail/plan"
)

// errRoomTaken is an attachment after the first.
var errRoomTaken = errors.New("a jail takes one directory in its room, and has it")

// Witnessed is a check and what it came to.
type Witnessed struct {
	plan.Check
	Got string
}

// Attach puts a directory of the host into the room of a jail that runs already, at its
// own path, and looks that it is there as it should be: the directory itself, without
// devices and set-id programs, writable. The caller sees to it that no foreign code has
// run. It returns what was found, as the witness's results. On any error the jail is
// ended. Errors are *SpecError, *WitnessError, *MissingFeatureError, os.ErrProcessDone
// or Linux's, wrapped.
func (p *Process) Attach(b Bind) (Witnessed, error) {
	found, err := p.attach(b)
	if err != nil {
		p.Kill()
		return found, fmt.Errorf("jail attach %s: %w", b.Target, err)
	}
	return found, nil
}

func (p *Process) attach(b Bind) (w Witnessed, err error) {
	room := ""
	for _, s := range p.plan.StepsOf(plan.Launcher) {
		if s.Op == plan.OpRoom {
			room = s.Path
		}
	}
	if room == "" || b.Target == room || !below(b.Target, room) || !b.Write {
		return w, &SpecError{"attached directory", b.Target, "must lie below the room " + room + " and be writable"}
	}
	p.mu.Lock()
	taken, fd := p.attached, p.stagefd
	if fd >= 0 {
		fd, _ = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	p.attached = true
	p.mu.Unlock()
	if taken {
		return w, errRoomTaken
	}
	if fd < 0 {
		return w, os.ErrProcessDone
	}
	defer unix.Close(fd)
	tree, err := p.copyOf(b)
	if err != nil {
		return w, err
	}
	defer unix.Close(tree)
	found, err := enter.Attach(enter.Jail{PIDFD: fd, Users: !p.plan.SwitchIDs}, tree, b.Target)
	if err != nil {
		return w, err
	}
	const want = unix.ST_NOSUID | unix.ST_NODEV
	w.Check = plan.Check{Name: "attached", Act: "attached", Arg: b.Target, Want: []string{"yes"}, Reason: "the session's directory and nothing else, without devices and set-id programs"}
	if !found.Same || found.Flags&want != want || found.Flags&unix.ST_RDONLY != 0 || (found.Flags&unix.ST_NOEXEC != 0) != b.NoExec {
		w.Got = fmt.Sprintf("same directory %t, flags %#x", found.Same, found.Flags)
		return w, &WitnessError{Check: w.Check, Got: w.Got}
	}
	w.Got = "yes"
	return w, nil
}

// Cover hides a directory in what was attached: empty, a directory of the host that is
// empty and that nobody may list, lies over it read-only afterwards, and no name of the
// jail leads to what is beneath. The same holds as for Attach.
func (p *Process) Cover(empty, path string) (Witnessed, error) {
	found, err := p.cover(empty, path)
	if err != nil {
		p.Kill()
		return found, fmt.Errorf("jail cover %s: %w", path, err)
	}
	return found, nil
}

func (p *Process) cover(empty, path string) (w Witnessed, err error) {
	p.mu.Lock()
	attached, fd := p.attached, p.stagefd
	if fd >= 0 {
		fd, _ = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	p.mu.Unlock()
	if fd < 0 {
		return w, os.ErrProcessDone
	}
	defer unix.Close(fd)
	if !attached {
		return w, &SpecError{"covered directory", path, "must lie in a directory that was attached"}
	}
	tree, err := enter.Copy(empty, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return w, err
	}
	defer unix.Close(tree)
	found, err := enter.Attach(enter.Jail{PIDFD: fd, Users: !p.plan.SwitchIDs}, tree, path)
	if err != nil {
		return w, err
	}
	const want = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_RDONLY
	w.Check = plan.Check{Name: "covered", Act: "covered", Arg: path, Want: []string{"yes"}, Reason: "what lies there is hidden from the session"}
	if !found.Same || found.Flags&want != want {
		w.Got = fmt.Sprintf("same directory %t, flags %#x", found.Same, found.Flags)
		return w, &WitnessError{Check: w.Check, Got: w.Got}
	}
	w.Got = "yes"
	return w, nil
}

// copyOf makes the tree to attach: id-mapped where the launcher may, as at a start.
func (p *Process) copyOf(b Bind) (fd int, err error) {
	attr := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if b.NoExec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	if !p.plan.SwitchIDs {
		return enter.Copy(b.Source, attr)
	}
	c := mount.Copy{Path: b.Source, Attr: attr, Recursive: true, NoLinks: true}
	ids := p.plan.IDs
	if b.OwnerUID != ids.OuterUID || b.OwnerGID != ids.OuterGID {
		// Without a map the worker could not write what is its own.
		m := plan.IDMap{FSUID: b.OwnerUID, FSGID: b.OwnerGID, UID: ids.OuterUID, GID: ids.OuterGID, Required: true}
		if c.Users, err = users(m); err != nil {
			return -1, err
		}
	}
	return c.Do()
}
