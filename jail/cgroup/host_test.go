package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestDetectFindsOwnCgroups(t *testing.T) {
	cases := map[string]struct {
		mountinfo, self string
		mode            Mode
		memory, v2      string
	}{
		"pure v2": {
			"30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
			"0::/user.slice/user-1000.slice/session-2.scope\n",
			ModeV2, "", "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope",
		},
		"v1 with joint controllers": {
			"31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
			"4:cpu,cpuacct:/a\n3:memory:/b c\n",
			ModeV1, "/sys/fs/cgroup/memory/b c", "",
		},
		"hybrid": {
			"34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n40 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"4:memory:/x\n0::/y\n",
			ModeHybrid, "/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/unified/y",
		},
		"container that sees its part of v1 only": {
			"34 30 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"4:memory:/docker/abc/inner\n",
			ModeV1, "/sys/fs/cgroup/memory/inner", "",
		},
		"nothing mounted": {"21 26 0:20 / /proc rw - proc proc rw\n", "0::/\n", ModeNone, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mountinfo, self := filepath.Join(dir, "mountinfo"), filepath.Join(dir, "cgroup")
			write(t, mountinfo, c.mountinfo)
			write(t, self, c.self)
			h := detect(mountinfo, self)
			memory, _ := h.find("memory")
			v2 := ""
			if h.v2 != nil {
				v2 = h.v2.own
			}
			if diff := cmp.Diff([]string{string(c.mode), c.memory, c.v2}, []string{string(h.mode()), memory.own, v2}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNameTellsWhoseAGroupIs(t *testing.T) {
	mine := newID("a/../b\n")
	if orphaned(mine) {
		t.Errorf("%q: a living launcher's group counts as orphaned", mine)
	}
	if filepath.Base(mine) != mine {
		t.Errorf("%q is not one path component", mine)
	}
	for name, want := range map[string]bool{
		pidNamespace() + "-" + itoa(os.Getpid()) + "-1-1-reused_pid": true,
		pidNamespace() + "-999999999-5-1-x":                          true,
		"1-999999999-5-1-other_pid_namespace":                        false,
		"user.slice":                                                 false,
		"":                                                           false,
	} {
		if got := orphaned(name); got != want {
			t.Errorf("orphaned(%q) = %v, want %v", name, got, want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSweepLeavesTheGroupsOfOtherUsers(t *testing.T) {
	tree := t.TempDir()
	left := filepath.Join(tree, directory, pidNamespace()+"-"+itoa(os.Getpid())+"-0-1-left")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	h := host{v1: []hierarchy{{controllers: []string{"pids"}, mount: tree, own: tree}}}
	if n, err := sweep(h, os.Geteuid()+1); n != 0 || err != nil {
		t.Errorf("swept %d of another user's groups, %v", n, err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Error(err)
	}
	if n, err := sweep(h, os.Geteuid()); n != 1 || err != nil {
		t.Errorf("swept %d of our groups, %v", n, err)
	}
}
