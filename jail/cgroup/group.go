package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"
)

// Limits are what a group is held to. Zero means no limit.
type Limits struct {
	// MemoryBytes bounds memory, page cache and private file systems
	// included. Swap is not given on top.
	MemoryBytes int64
	// Tasks bounds the number of processes and threads.
	Tasks int64
}

// Unenforced is a limit, or an ability, that the group does not have.
type Unenforced struct {
	// What is "memory", "tasks", "kill" or "cpu".
	What string
	// Why says what stood in the way.
	Why error
}

// ErrUnavailable says that no cgroup could be made at all.
var ErrUnavailable = errors.New("no cgroup can be made here")

// Group is the cgroup of one jail, in every hierarchy that serves. Its methods
// may be called from several goroutines.
type Group struct {
	mu     sync.Mutex
	mode   Mode
	id     string
	v1     []member
	v2     string   // directory, "" without
	v2file *os.File // open for CLONE_INTO_CGROUP
	memory seat
	tasks  seat
	leaf   *leaf
	lacks  []Unenforced
	closed bool

	counters map[counterFile]*os.File // that are asked for often; nil for one that is not there
	text     []byte                   // of the newest one read
}

// member is the group's directory in one v1 hierarchy, and the launcher's own.
type member struct {
	controllers []string
	dir, own    string
}

// seat says where one limit is kept: a directory and which dialect it speaks.
type seat struct {
	dir string
	v2  bool
}

// New makes the cgroup of a jail and sets its limits. When some limit cannot be
// had the group is returned all the same and Unenforced names it. The error is
// ErrUnavailable, wrapped, when there is no group at all.
func New(name string, limits Limits) (*Group, error) {
	return newIn(detectOnce(), name, limits)
}

func newIn(h host, name string, limits Limits) (*Group, error) {
	group := &Group{mode: h.mode(), id: newID(name)}
	var errs []error
	wanted := map[string]bool{"memory": limits.MemoryBytes > 0, "pids": limits.Tasks > 0}
	// v2 first: in hybrid mode it needs no controllers, on a pure v2 host the
	// two that the limits need.
	if h.v2 != nil {
		var controllers []string
		for _, controller := range []string{"memory", "pids"} {
			if _, bound := h.find(controller); !bound && wanted[controller] {
				controllers = append(controllers, controller)
			}
		}
		if err := group.joinV2(*h.v2, controllers); err != nil {
			errs = append(errs, err)
		}
	}
	for _, controller := range []string{"memory", "pids", "cpuacct"} {
		tree, bound := h.find(controller)
		if !bound || (controller == "cpuacct" && group.v2 != "") {
			continue
		}
		if err := group.joinV1(tree); err != nil {
			errs = append(errs, err)
		}
	}
	if group.v2 == "" && len(group.v1) == 0 {
		group.release()
		if len(errs) == 0 {
			errs = append(errs, errors.New("no cgroup file system is mounted"))
		}
		return nil, fmt.Errorf("cgroup %s: %w: %w", name, ErrUnavailable, errors.Join(errs...))
	}
	group.limit(limits, errors.Join(errs...))
	return group, nil
}

// joinV1 makes the group's directory in one v1 hierarchy.
func (g *Group) joinV1(tree hierarchy) error {
	for _, m := range g.v1 {
		if m.own == tree.own {
			return nil
		}
	}
	dir, err := makeBelow(tree.own, g.id)
	if err != nil {
		return err
	}
	g.v1 = append(g.v1, member{controllers: tree.controllers, dir: dir, own: tree.own})
	return nil
}

// limit writes the limits and notes those that found no place.
func (g *Group) limit(limits Limits, cause error) {
	g.memory = g.seatOf("memory", "memory.max")
	g.tasks = g.seatOf("pids", "pids.max")
	if limits.MemoryBytes > 0 {
		g.note("memory", g.limitMemory(limits.MemoryBytes), cause)
	}
	if limits.Tasks > 0 {
		g.note("tasks", g.limitTasks(limits.Tasks), cause)
	}
	if g.v2 == "" || !exists(g.v2, "cgroup.kill") {
		g.lacks = append(g.lacks, Unenforced{"kill", errors.New("no cgroup.kill: processes are signalled one by one")})
	}
}

func (g *Group) note(what string, err, cause error) {
	if err == nil {
		return
	}
	if cause != nil {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	g.lacks = append(g.lacks, Unenforced{what, err})
}

// seatOf finds the directory that keeps a controller's files.
func (g *Group) seatOf(controller, v2file string) seat {
	for _, m := range g.v1 {
		for _, name := range m.controllers {
			if name == controller {
				return seat{dir: m.dir}
			}
		}
	}
	if g.v2 != "" && exists(g.v2, v2file) {
		return seat{dir: g.v2, v2: true}
	}
	return seat{}
}

func (g *Group) limitMemory(bytes int64) error {
	if g.memory.dir == "" {
		return errors.New("memory controller: not available to this process")
	}
	resources := &cgroups.Resources{Memory: bytes, MemorySwap: bytes, SkipDevices: true}
	if g.memory.v2 {
		return setV2(g.memory.dir, resources)
	}
	if !exists(g.memory.dir, "memory.memsw.limit_in_bytes") {
		resources.MemorySwap = 0 // Linux without swap accounting
	}
	return new(fs.MemoryGroup).Set(g.memory.dir, resources)
}

func (g *Group) limitTasks(tasks int64) error {
	if g.tasks.dir == "" {
		return errors.New("pids controller: not available to this process")
	}
	resources := &cgroups.Resources{PidsLimit: &tasks, SkipDevices: true}
	if g.tasks.v2 {
		return setV2(g.tasks.dir, resources)
	}
	return new(fs.PidsGroup).Set(g.tasks.dir, resources)
}

func setV2(dir string, resources *cgroups.Resources) error {
	control, err := fs2.NewManager(&cgroups.Cgroup{Resources: resources}, dir)
	if err != nil {
		return err
	}
	return control.Set(resources)
}

// Mode says which kind of hierarchies the group stands in.
func (g *Group) Mode() Mode { return g.mode }

// Unenforced lists what this group does not do. Empty means that every limit
// asked for is kept and that Kill is one write.
func (g *Group) Unenforced() []Unenforced { return g.lacks }

// Keeps says which hierarchy keeps a limit, "memory" or "tasks": "v1" or "v2", or
// "" for none.
func (g *Group) Keeps(what string) string {
	s := map[string]seat{"memory": g.memory, "tasks": g.tasks}[what]
	switch {
	case s.dir == "":
		return ""
	case s.v2:
		return "v2"
	}
	return "v1"
}

// Paths lists the group's directories, for doctor and tests.
func (g *Group) Paths() []string {
	var paths []string
	if g.v2 != "" {
		paths = append(paths, g.v2)
	}
	for _, m := range g.v1 {
		paths = append(paths, m.dir)
	}
	return paths
}

// Fd is a descriptor of the group's v2 directory for CLONE_INTO_CGROUP (Linux
// 5.7), or -1 when it has none. It stays valid until Close.
func (g *Group) Fd() int {
	if g.v2file == nil {
		return -1
	}
	return int(g.v2file.Fd())
}

// Enter moves the calling thread, which the caller has locked, into the group's
// v1 directories, so that a child cloned from it is born inside. Leave moves it
// back. Moving a thread to `tasks` by itself, and not a process to
// cgroup.procs, spares a wait of some 4 ms for every processor (RCU). Without v1
// both do nothing. On an error the thread may stand in the group: leave must be
// called, or the thread be given up.
func (g *Group) Enter() (leave func() error, err error) {
	entered := 0
	leave = func() error {
		var errs []error
		for _, m := range g.v1[:entered] {
			errs = append(errs, cgroups.WriteFile(m.own, "tasks", "0"))
		}
		return errors.Join(errs...)
	}
	for _, m := range g.v1 {
		if err := cgroups.WriteFile(m.dir, "tasks", "0"); err != nil {
			return leave, fmt.Errorf("enter cgroup %s: %w", m.dir, err)
		}
		entered++
	}
	return leave, nil
}

// Entrances are the files by which a process that has one thread moves itself into the
// group, and so is spared the wait of Enter: it writes "0" to each.
func (g *Group) Entrances() []string {
	var files []string
	if g.v2 != "" {
		files = append(files, filepath.Join(g.v2, "cgroup.procs"))
	}
	for _, m := range g.v1 {
		files = append(files, filepath.Join(m.dir, "tasks"))
	}
	return files
}

// newID names a group so that Sweep can tell whose it is.
func newID(name string) string {
	return fmt.Sprintf("%s-%d-%s-%d-%s", pidNamespace(), os.Getpid(), startTime(os.Getpid()), sequence.Add(1), plain(name))
}

// plain keeps of a name what may stand in a directory's name.
func plain(name string) string {
	kept := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, name)
	return kept[:min(len(kept), 64)]
}

// pidNamespace is the inode number of this process's pid namespace: a pid says
// nothing outside its namespace.
func pidNamespace() string {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "0"
	}
	return strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]")
}

// startTime is field 22 of /proc/PID/stat, clock ticks after boot, or "" when
// there is no such process.
func startTime(pid int) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The second field is in parentheses and may hold anything.
	rest := raw[strings.LastIndexByte(string(raw), ')')+1:]
	fields := strings.Fields(string(rest))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

func exists(dir, file string) bool {
	var stat unix.Stat_t
	return unix.Stat(filepath.Join(dir, file), &stat) == nil
}

// makeBelow makes parent/cellblock/id. Another launcher may remove the middle
// directory in between, when it was empty: then once more.
func makeBelow(parent, id string) (string, error) {
	middle := filepath.Join(parent, directory)
	dir := filepath.Join(middle, id)
	for try := 0; ; try++ {
		if err := os.Mkdir(middle, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrNotExist) || try == 10 {
			return "", err
		}
		time.Sleep(time.Millisecond)
	}
}
