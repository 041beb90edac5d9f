package jail

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestEveryFeatureIsAnsweredWithItsSource(t *testing.T) {
	for when, f := range map[string]Features{"Probe": Probe(), "ProbeAll": ProbeAll()} {
		for name := range remedies {
			found, ok := f.Findings[name]
			if !ok {
				t.Errorf("%s: %s has no finding", when, name)
				continue
			}
			if found.Why == "" {
				t.Errorf("%s: %s: %s, found how?", when, name, found.Answer)
			}
			if found.Answer != Yes && found.Remedy == "" {
				t.Errorf("%s: %s: %s without a remedy", when, name, found.Answer)
			}
		}
		t.Logf("%s:\n%s", when, f)
	}
}

func TestProbeAllLeavesTheHostAsItWas(t *testing.T) {
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	probeAll()
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("mounts changed:\n%s", diff)
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err == nil && pid > 0 {
		t.Errorf("child %d is left", pid)
	}
}

// TestOverlayIsTriedTheLaunchersWay: the finding is what a start will meet, and a
// place where no layer can lie is a No that says which call refused.
func TestOverlayIsTriedTheLaunchersWay(t *testing.T) {
	f := ProbeAll()
	way := "user namespace"
	if f.Privileged {
		way = "detached mounts"
	}
	if why := f.Get(Overlay).Why; !strings.Contains(why, way) {
		t.Errorf("%s: %s, want it tried by %s", f.Get(Overlay).Answer, why, way)
	}
	if !f.Privileged || !f.Has(Overlay) {
		return
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	none := Features{Findings: map[Feature]Finding{}}
	for _, name := range []string{"upper", "work"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if none.tryOverlayIn(dir, nil); none.Get(Overlay).Answer != Unknown {
		t.Errorf("with files in the way: %+v", none.Get(Overlay))
	}
	for _, name := range []string{"lower", "upper", "work"} {
		_ = os.RemoveAll(filepath.Join(dir, name))
	}
	file, err := os.Open("/proc/self/ns/user") // maps everything to itself, which no id map may
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if none.tryOverlayIn(dir, file); none.Get(Overlay).Answer != No || none.Get(Overlay).Remedy == "" {
		t.Errorf("with a map that Linux refuses: %+v", none.Get(Overlay))
	}
}

func TestTrialReportsTheCallThatFailed(t *testing.T) {
	inner := &trial{}
	inner.writeFile("/dev/null", "x")
	inner.mkdir("/proc/nothing-can-be-made-here")
	if err := inner.run(0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v, want ENOENT", err)
	}
	if err := (&trial{}).run(0); err != nil {
		t.Errorf("a trial of nothing: %v", err)
	}
}

func TestAbsenceCanBeSimulated(t *testing.T) {
	host := Probe()
	bare := host.Without(Landlock, Cgroup, UserNamespace)
	for _, name := range []Feature{Landlock, Cgroup, CgroupMemory, CgroupTasks, UserNamespace} {
		if !bare.Lacks(name) || bare.Get(name).Remedy == "" {
			t.Errorf("%s: %+v", name, bare.Get(name))
		}
	}
	if bare.LandlockABI != 0 || bare.CgroupMode != "none" {
		t.Errorf("ABI %d, cgroup %s", bare.LandlockABI, bare.CgroupMode)
	}
	now := Probe()
	now.Mounts = host.Mounts // the host may have others by now
	if diff := cmp.Diff(host, now); diff != "" {
		t.Errorf("the host's own features changed:\n%s", diff)
	}
}

func TestUserNamespaceRefusalNamesTheSetting(t *testing.T) {
	found := userNamespaceRefusal(1000, unix.EPERM)
	if !found.No() || !strings.Contains(found.Why, "operation not permitted") || found.Remedy == "" {
		t.Errorf("%+v", found)
	}
	for _, setting := range []string{"user.max_user_namespaces", "kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns"} {
		if !strings.Contains(remedies[UserNamespace]+apparmorRemedy, setting) {
			t.Errorf("no remedy names %s", setting)
		}
	}
}

func TestFeaturesSurviveJSON(t *testing.T) {
	text, err := json.Marshal(Probe())
	if err != nil {
		t.Fatal(err)
	}
	var back Features
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Probe(), back); diff != "" {
		t.Error(diff)
	}
}

func TestMountTableLeavesOutWhatIsCovered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	text := `26 1 254:0 / / rw,relatime - ext4 /dev/vda rw
21 26 0:20 / /proc rw,relatime - proc proc rw
23 26 0:6 / /srv rw - tmpfs tmpfs rw
24 23 0:22 / /srv/a\040b ro,nosuid - xfs /dev/vdb rw
25 26 0:23 / /srv rw - nfs4 host:/srv rw
27 26 0:24 / /srvother rw - btrfs /dev/vdc rw
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []MountPoint{
		{Path: "/", FSType: "ext4", Source: "/dev/vda", IDMap: Yes},
		{Path: "/proc", FSType: "proc", Source: "proc", IDMap: No},
		{Path: "/srv", FSType: "nfs4", Source: "host:/srv", IDMap: Unknown},
		{Path: "/srvother", FSType: "btrfs", Source: "/dev/vdc", IDMap: Yes},
	}
	if diff := cmp.Diff(want, mountTable(file, release{6, 1})); diff != "" {
		t.Error(diff)
	}
	if got := mountTable(file, release{5, 4})[0].IDMap; got != No {
		t.Errorf("ext4 on Linux 5.4: %s", got)
	}
}

func TestReleaseIsRead(t *testing.T) {
	for text, want := range map[string]release{
		"6.18.44-fc-v782": {6, 18}, "5.15.0-91-generic": {5, 15}, "4.18.0-513.el8.x86_64": {4, 18}, "": {}, "odd": {},
	} {
		if got := parseRelease(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func BenchmarkProbe(b *testing.B) {
	for b.Loop() {
		probe()
	}
}

func BenchmarkProbeAll(b *testing.B) {
	for b.Loop() {
		probeAll()
	}
}
