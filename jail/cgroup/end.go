package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// killTime bounds how long Kill follows processes that fork on without
// cgroup.kill, and how long Close waits for the dead to be reaped.
const killTime = 2 * time.Second

// Kill ends every process of the group with SIGKILL. With cgroup.kill that is
// one write; without it no more forks are allowed and the processes are
// signalled until none is left.
func (g *Group) Kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	return killAll(g.v2, g.tasks, g.Paths())
}

func killAll(v2 string, tasks seat, dirs []string) error {
	if v2 != "" && cgroups.WriteFile(v2, "cgroup.kill", "1") == nil {
		return nil
	}
	if tasks.dir != "" {
		_ = cgroups.WriteFile(tasks.dir, "pids.max", "0")
	}
	for deadline := time.Now().Add(killTime); ; time.Sleep(time.Millisecond) {
		alive := 0
		for _, dir := range dirs {
			pids, err := cgroups.GetPids(dir)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("kill cgroup %s: %w", dir, err)
			}
			for _, pid := range pids {
				if unix.Kill(pid, unix.SIGKILL) == nil {
					alive++
				}
			}
		}
		if alive == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill cgroup %s: %d processes are left", strings.Join(dirs, ", "), alive)
		}
	}
}

// Close kills what is left and removes the group, and the directory that the
// groups stand in when this was the last one.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	err := errors.Join(killAll(g.v2, g.tasks, g.Paths()), remove(g.Paths()))
	g.closed = true
	g.release()
	return err
}

// release gives back what is not a directory of the group itself.
func (g *Group) release() {
	if g.v2file != nil {
		_ = g.v2file.Close()
		g.v2file = nil
	}
	for _, f := range g.counters {
		if f != nil {
			_ = f.Close()
		}
	}
	g.counters = nil
	g.leaf.back()
	g.leaf = nil
}

// remove removes group directories, waiting for dead processes to go.
func remove(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if err := cgroups.RemovePath(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		// The directory of all groups: fails, rightly, while others stand in it.
		_ = os.Remove(filepath.Dir(dir))
	}
	return errors.Join(errs...)
}

// Sweep ends and removes the groups of this user's launchers that are gone. It
// returns how many directories it removed. Another user's are left to his next
// start: an ordinary user may not touch root's.
func Sweep() (int, error) { return sweep(detectOnce(), os.Geteuid()) }

func sweep(h host, uid int) (int, error) {
	trees := slices.Clone(h.v1)
	if h.v2 != nil {
		trees = append(trees, *h.v2)
	}
	removed := 0
	var errs []error
	for _, tree := range trees {
		for _, home := range homes(tree) {
			entries, err := os.ReadDir(home)
			if err != nil {
				continue
			}
			for _, entry := range entries {
				dir := filepath.Join(home, entry.Name())
				if !entry.IsDir() || !orphaned(entry.Name()) || !ownedBy(dir, uid) {
					continue
				}
				if err := errors.Join(killAll(dir, seat{dir: dir}, []string{dir}), remove([]string{dir})); err != nil {
					errs = append(errs, err)
					continue
				}
				removed++
			}
			_ = os.Remove(home)
		}
	}
	return removed, errors.Join(errs...)
}

// homes lists the directories that may hold groups of earlier launchers: below
// the launcher's own cgroup, below those above it, and one step beside these,
// since the earlier launcher may have run in another shell's scope.
func homes(tree hierarchy) []string {
	var list []string
	for _, dir := range ancestors(tree) {
		beside, _ := filepath.Glob(filepath.Join(dir, "*", directory))
		list = append(list, append(beside, filepath.Join(dir, directory))...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func ownedBy(dir string, uid int) bool {
	var stat unix.Stat_t
	return unix.Lstat(dir, &stat) == nil && int(stat.Uid) == uid
}

// orphaned reports whether a group's name says that its launcher has ended.
// Groups of another pid namespace are not ours to judge.
func orphaned(name string) bool {
	parts := strings.SplitN(name, "-", 5)
	if len(parts) != 5 || parts[0] != pidNamespace() {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil {
		return false
	}
	return startTime(pid) != parts[2]
}
