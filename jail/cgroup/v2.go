package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// directory is what our groups stand in, below the chosen parent.
const directory = "cellblock"

// leafName is where the launcher moves itself when it has to clear its own
// cgroup.
const leafName = "cellblock.launcher"

var sequence atomic.Uint64

// joinV2 makes the group's directory on v2, below the nearest ancestor of the
// launcher's cgroup, itself included, that can hand out the controllers. When
// none can, the group is made without them wherever a directory can be made.
func (g *Group) joinV2(tree hierarchy, controllers []string) error {
	var reasons []error
	for _, parent := range ancestors(tree) {
		moved, err := g.handOut(parent, parent == tree.own, controllers)
		if err == nil {
			err = g.makeV2(parent, controllers)
		}
		if err == nil {
			g.leaf = moved
			return nil
		}
		moved.back()
		reasons = append(reasons, err)
	}
	if len(controllers) == 0 {
		return errors.Join(reasons...)
	}
	for _, parent := range ancestors(tree) {
		if g.makeV2(parent, nil) == nil {
			return errors.Join(reasons...)
		}
	}
	return errors.Join(reasons...)
}

// ancestors lists the launcher's cgroup and those above it, nearest first.
func ancestors(tree hierarchy) []string {
	list := []string{tree.own}
	for dir := tree.own; dir != tree.mount && strings.HasPrefix(dir, tree.mount+"/"); {
		dir = filepath.Dir(dir)
		list = append(list, dir)
	}
	return list
}

// handOut sees to it that children of parent get the controllers.
func (g *Group) handOut(parent string, own bool, controllers []string) (*leaf, error) {
	if len(controllers) == 0 {
		return nil, nil
	}
	if moved := shareLeaf(parent); moved != nil {
		return moved, nil
	}
	if contains(parent, "cgroup.subtree_control", controllers) {
		return nil, nil
	}
	if !contains(parent, "cgroup.controllers", controllers) {
		return nil, fmt.Errorf("%s: does not have the controllers %s", parent, strings.Join(controllers, ", "))
	}
	err := enable(parent, controllers)
	if !errors.Is(err, unix.EBUSY) || !own {
		return nil, err
	}
	// EBUSY: it has processes. Clear it when we are the only one.
	pids, readErr := cgroups.GetPids(parent)
	if readErr != nil {
		return nil, readErr
	}
	if len(pids) != 1 || pids[0] != os.Getpid() {
		return nil, fmt.Errorf("%s: has %d processes beside this one and cannot hand out controllers", parent, len(pids)-1)
	}
	moved, err := moveToLeaf(parent, controllers)
	if err != nil {
		return nil, err
	}
	return moved, nil
}

// makeV2 makes and opens the directory, and lets it have the controllers.
func (g *Group) makeV2(parent string, controllers []string) error {
	dir, err := makeBelow(parent, g.id)
	if err != nil {
		return err
	}
	undo := func(err error) error {
		_ = os.Remove(dir)
		_ = os.Remove(filepath.Dir(dir))
		return err
	}
	if len(controllers) > 0 {
		if err := enable(filepath.Dir(dir), controllers); err != nil {
			return undo(err)
		}
	}
	file, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return undo(err)
	}
	g.v2, g.v2file = dir, file
	return nil
}

func enable(dir string, controllers []string) error {
	if contains(dir, "cgroup.subtree_control", controllers) {
		return nil
	}
	return cgroups.WriteFile(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +"))
}

func contains(dir, file string, controllers []string) bool {
	text, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return false
	}
	have := strings.Fields(text)
	for _, controller := range controllers {
		if !slices.Contains(have, controller) {
			return false
		}
	}
	return true
}

// leaf is the launcher's own place below a cgroup that it had to clear. All
// groups of this process share it, and the last one moves back.
type leaf struct {
	parent, dir string
	controllers []string
}

var leaves struct {
	sync.Mutex
	current *leaf
	users   int
}

// shareLeaf counts one more group that needs the leaf below parent, if this
// process stands in one.
func shareLeaf(parent string) *leaf {
	leaves.Lock()
	defer leaves.Unlock()
	if leaves.current == nil || leaves.current.parent != parent {
		return nil
	}
	leaves.users++
	return leaves.current
}

func moveToLeaf(parent string, controllers []string) (*leaf, error) {
	leaves.Lock()
	defer leaves.Unlock()
	if leaves.current != nil {
		return nil, fmt.Errorf("%s: this process stands in %s already", parent, leaves.current.dir)
	}
	made := &leaf{parent: parent, dir: filepath.Join(parent, leafName+"."+strconv.Itoa(os.Getpid())), controllers: controllers}
	if err := os.Mkdir(made.dir, 0o755); err != nil {
		return nil, err
	}
	if err := cgroups.WriteCgroupProc(made.dir, os.Getpid()); err != nil {
		_ = os.Remove(made.dir)
		return nil, err
	}
	if err := enable(parent, controllers); err != nil {
		_ = cgroups.WriteCgroupProc(parent, os.Getpid())
		_ = os.Remove(made.dir)
		return nil, err
	}
	leaves.current, leaves.users = made, 1
	return made, nil
}

// back undoes moveToLeaf when the last group that needed it is gone.
func (l *leaf) back() {
	if l == nil {
		return
	}
	leaves.Lock()
	defer leaves.Unlock()
	if leaves.users--; leaves.users > 0 {
		return
	}
	leaves.current = nil
	// Best effort: a launcher that stays in its leaf is limited as before.
	_ = cgroups.WriteFile(l.parent, "cgroup.subtree_control", "-"+strings.Join(l.controllers, " -"))
	if cgroups.WriteCgroupProc(l.parent, os.Getpid()) == nil {
		_ = os.Remove(l.dir)
	}
}
