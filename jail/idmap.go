package jail

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"cellblock/jail/holder"
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
	var f *os.File
	err := holder.With(func(pid int) (err error) {
		at := "/proc/" + strconv.Itoa(pid)
		for name, maps := range map[string][]idRange{"/uid_map": idMapping(m.FSUID, m.UID, m.Swap), "/gid_map": idMapping(m.FSGID, m.GID, m.Swap)} {
			// One write: Linux takes a map whole or not at all (user_namespaces(7)).
			if err := os.WriteFile(at+name, []byte(idLines(maps)), 0); err != nil {
				return err
			}
		}
		f, err = os.Open(at + "/ns/user")
		return err
	})
	if err != nil {
		return nil, err
	}
	usersFiles[m] = f
	return f, nil
}

// idMapping is the map of a namespace in which disk reads as inside: all ids
// stay the same, but disk's files belong to inside, and inside's own files on
// disk to nobody, since two owners cannot become one, or with swap to disk.
func idMapping(disk, inside int, swap bool) []idRange {
	cuts := []int{disk, inside}
	sort.Ints(cuts)
	maps := []idRange{{disk, inside, 1}}
	if swap {
		maps = append(maps, idRange{inside, disk, 1})
	}
	next := 0
	for _, cut := range append(cuts, 1<<32-1) {
		if cut > next {
			maps = append(maps, idRange{next, next, cut - next})
		}
		if cut >= next {
			next = cut + 1
		}
	}
	return maps
}

// idRange is one line of a map, as in user_namespaces(7).
type idRange struct{ inner, outer, size int }

func idLines(maps []idRange) string {
	var b strings.Builder
	for _, m := range maps {
		fmt.Fprintf(&b, "%d %d %d\n", m.inner, m.outer, m.size)
	}
	return b.String()
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
		if s.Op == plan.OpOverlay {
			fd, notes, err := overlay(s)
			if err != nil {
				return fds, nil, err
			}
			fds, degraded = append(fds, fd), append(degraded, notes...)
			continue
		}
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
