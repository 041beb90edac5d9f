package jail

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"syscall"

	"cellblock/jail/mount"
	"cellblock/jail/plan"
)

var (
	usersMu    sync.Mutex
	usersFiles = map[plan.IDMap]*os.File{}
)

// users returns a user namespace whose map lets files of m.FSUID and m.FSGID
// belong to m.UID and m.GID, and everybody else's stay theirs. It is kept for
// the life of the launcher: an entry costs one descriptor, and owners are few.
func users(m plan.IDMap) (*os.File, error) {
	m.Required = false
	usersMu.Lock()
	defer usersMu.Unlock()
	if f := usersFiles[m]; f != nil {
		return f, nil
	}
	stage, err := image()
	if err != nil {
		return nil, err
	}
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	// A process is needed to have the namespace for as long as we open it. It
	// ends when this end of its pipe is closed.
	pid, err := spawn("/proc/self/fd/3", []string{"cellblock-users", plan.HoldArgument}, &syscall.ProcAttr{
		Files: []uintptr{uintptr(pipe[0]), 1, 2, stage.Fd()},
		Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
			UidMappings: idMapping(m.FSUID, m.UID), GidMappings: idMapping(m.FSGID, m.GID)},
	}, nil)
	syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	if err != nil {
		return nil, fmt.Errorf("clone of a user namespace: %w", err)
	}
	defer func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}()
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
	if err != nil {
		return nil, err
	}
	usersFiles[m] = f
	return f, nil
}

// idMapping is the map of a namespace in which disk reads as inside: all ids
// stay the same, but disk's files belong to inside, and inside's own files on
// disk to nobody, since two owners cannot become one.
func idMapping(disk, inside int) []syscall.SysProcIDMap {
	cuts := []int{disk, inside}
	sort.Ints(cuts)
	maps := []syscall.SysProcIDMap{{ContainerID: disk, HostID: inside, Size: 1}}
	next := 0
	for _, cut := range append(cuts, 1<<32-1) {
		if cut > next {
			maps = append(maps, syscall.SysProcIDMap{ContainerID: next, HostID: next, Size: cut - next})
		}
		if cut >= next {
			next = cut + 1
		}
	}
	return maps
}

// clones carries out the launcher's clone steps, in order. A step that asks for
// a map where the file system has none is made without one and noted, unless
// its map is required.
func clones(p *plan.Plan) (fds []int, degraded []plan.Degradation, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
			fds = nil
		}
	}()
	for _, s := range p.StepsOf(plan.Launcher) {
		if s.Op != plan.OpClone {
			continue
		}
		c := mount.Copy{Path: s.Source, Attr: s.Flags, Recursive: s.Recursive, NoLinks: s.NoLinks}
		if s.Map != nil {
			if c.Users, err = users(*s.Map); err != nil {
				return fds, nil, &StepError{s, err}
			}
		}
		fd, err := c.Do()
		if errors.Is(err, mount.ErrNotMappable) {
			if s.Map.Required {
				return fds, nil, &MissingFeatureError{IDMappedMount,
					fmt.Sprintf("%s belongs to %d:%d and lies on a file system that cannot be id-mapped", s.Source, s.Map.FSUID, s.Map.FSGID),
					fmt.Sprintf("run as the ordinary user %d, or chown -R %d:%d %s", s.Map.FSUID, s.Map.UID, s.Map.GID, s.Source)}
			}
			degraded = append(degraded, plan.Degradation{Feature: string(IDMappedMount),
				Why: s.Source + ": shown without an id map: only what everybody may read is readable", Remedy: remedies[IDMappedMount]})
			c.Users = nil
			fd, err = c.Do()
		}
		if err != nil && s.Optional && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)) {
			// An optional step still takes a slot: the stage counts them.
			if fd, err = emptySlot(); err == nil {
				fds = append(fds, fd)
				continue
			}
		}
		if err != nil {
			return fds, nil, &StepError{s, err}
		}
		fds = append(fds, fd)
	}
	return fds, degraded, nil
}

// emptySlot is a descriptor that the stage takes for "nothing here": a socket.
func emptySlot() (int, error) {
	return syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}
