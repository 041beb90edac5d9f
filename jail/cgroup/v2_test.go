package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"

	"cellblock/jail/internal/require"
)

// leafVariable makes the test binary a launcher in a cgroup of its own.
const leafVariable = "CGROUP_TEST_LEAF"

// controllerForTest finds a controller that v2 can hand out here. On a hybrid
// host memory and pids are bound to v1 and some other one stands in for them.
func controllerForTest(t *testing.T) (tree hierarchy, controller string) {
	t.Helper()
	h := detectOnce()
	if h.v2 == nil {
		require.Skip(t, "cgroup-v2", "not mounted")
	}
	tree = *h.v2
	text, err := cgroups.ReadFile(tree.mount, "cgroup.controllers")
	if err != nil || len(strings.Fields(text)) == 0 {
		require.Skip(t, "cgroup-v2", "no controller is bound to it")
	}
	controller = strings.Fields(text)[0]
	for _, preferred := range []string{"pids", "memory"} {
		if contains(tree.mount, "cgroup.controllers", []string{preferred}) {
			controller = preferred
		}
	}
	if writable(tree.mount) != nil {
		require.Skip(t, "cgroup-v2", tree.mount+" is not writable")
	}
	if !contains(tree.mount, "cgroup.subtree_control", []string{controller}) {
		if err := enable(tree.mount, []string{controller}); err != nil {
			require.Skip(t, "cgroup-v2", err.Error())
		}
		t.Cleanup(func() { _ = cgroups.WriteFile(tree.mount, "cgroup.subtree_control", "-"+controller) })
	}
	return tree, controller
}

// A launcher that is alone in its cgroup moves to a leaf, so that the cgroup
// can hand out controllers, and moves back when its last group is gone.
func TestLauncherAloneMovesToALeafAndBack(t *testing.T) {
	if controller := os.Getenv(leafVariable); controller != "" {
		launcherInLeaf(t, controller)
		return
	}
	tree, controller := controllerForTest(t)
	own := filepath.Join(tree.mount, "cellblock.test."+itoa(os.Getpid()))
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroups.RemovePath(own); err != nil {
			t.Error(err)
		}
	})
	dir, err := os.Open(own)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	child := exec.Command("/proc/self/exe", "-test.run=^TestLauncherAloneMovesToALeafAndBack$", "-test.v")
	child.Env = append(os.Environ(), leafVariable+"="+controller+":"+own)
	// Through a shell that moves itself first: the child is alone in there.
	child.Args = append([]string{"sh", "-c", `echo $$ > ` + own + `/cgroup.procs && exec "$@"`, "sh", self(t)}, child.Args[1:]...)
	child.Path = "/bin/sh"
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func launcherInLeaf(t *testing.T, setting string) {
	controller, own, _ := strings.Cut(setting, ":")
	tree := hierarchy{mount: filepath.Dir(own), own: own}
	var groups [2]*Group
	for i := range groups {
		groups[i] = &Group{id: newID("leaf")}
		if err := groups[i].joinV2(tree, []string{controller}); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(groups[i].v2, own+"/") {
			t.Errorf("group %d stands in %s, not below %s", i, groups[i].v2, own)
		}
		if !contains(groups[i].v2, "cgroup.controllers", []string{controller}) {
			t.Errorf("group %d did not get the controller %s", i, controller)
		}
	}
	for i, group := range groups {
		if got := ownPaths("/proc/self/cgroup")[""]; !strings.Contains(got, leafName) {
			t.Errorf("before group %d is closed the launcher stands in %s, not in its leaf", i, got)
		}
		if err := group.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := ownPaths("/proc/self/cgroup")[""]; filepath.Base(got) != filepath.Base(own) {
		t.Errorf("at the end the launcher stands in %s, not in %s", got, own)
	}
	entries, err := filepath.Glob(own + "/cellblock*")
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

// With others in its cgroup the launcher goes to the nearest ancestor that can
// hand out controllers and does not move them.
func TestLauncherInCompanyUsesAnAncestor(t *testing.T) {
	tree, controller := controllerForTest(t)
	own := filepath.Join(tree.mount, "cellblock.test."+itoa(os.Getpid()))
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	company := exec.Command("sleep", "60")
	if err := company.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = company.Process.Kill()
		_ = company.Wait()
		if err := cgroups.RemovePath(own); err != nil {
			t.Error(err)
		}
	})
	if err := cgroups.WriteCgroupProc(own, company.Process.Pid); err != nil {
		t.Fatal(err)
	}
	group := &Group{id: newID("company")}
	if err := group.joinV2(hierarchy{mount: tree.mount, own: own}, []string{controller}); err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(filepath.Dir(group.v2)) != tree.mount {
		t.Errorf("the group stands in %s", group.v2)
	}
	if err := group.Close(); err != nil {
		t.Error(err)
	}
	if pids, err := cgroups.GetPids(own); err != nil || len(pids) != 1 {
		t.Errorf("the others were moved: %v %v", pids, err)
	}
}

// A controller that no ancestor has is named in the reasons, and the group is
// made without it.
func TestMissingControllerIsNamed(t *testing.T) {
	tree, _ := controllerForTest(t)
	group := &Group{id: newID("missing")}
	err := group.joinV2(tree, []string{"nosuch"})
	if err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("got %v", err)
	}
	if group.v2 == "" {
		t.Error("no group at all")
	}
	if err := group.Close(); err != nil {
		t.Error(err)
	}
}
