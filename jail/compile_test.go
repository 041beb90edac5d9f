package jail

import (
	"bytes"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cellblock/jail/plan"
	"cellblock/jail/seccomp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// handMade is a host by hand: everything there, two mounts beside the root.
func handMade(privileged bool) Features {
	f := Features{Kernel: "6.18", UID: 1000, GID: 1000, LandlockABI: 7, CgroupMode: "v2",
		Mounts: []MountPoint{{Path: "/", FSType: "ext4", IDMap: Yes}, {Path: "/proc", FSType: "proc", IDMap: No},
			{Path: "/dev", FSType: "devtmpfs", IDMap: No}, {Path: "/home", FSType: "xfs", IDMap: Yes}, {Path: "/mnt/share", FSType: "nfs4", IDMap: No}}}
	if privileged {
		f.UID, f.GID, f.Privileged = 0, 0, true
	}
	return f
}

func handMadeSpec(tree TreeAccess) Spec {
	s := Spec{Name: "golden", Argv: []string{"/usr/bin/python3", "-I"}, Env: []string{"SECRET=canary"}, Dir: "/home/u/work", Tree: tree, Network: NetNone,
		Binds: []Bind{{Source: "/home/u/work", Target: "/home/u/work", Write: true, OwnerUID: 1000, OwnerGID: 1000, Reason: "the session directory"}},
		Hide:  []Hide{{Path: "/home/u/.ssh", Reason: "keys"}},
		Files: []File{{Path: "/etc/passwd", Content: []byte("u:x:1000:1000::/tmp/home:/bin/sh\n"), Reason: "the id has an account"}},
		Dirs:  []Dir{{"/tmp/home", 0o700, "home directory"}}, Limits: Limits{MemoryBytes: 1 << 30, Tasks: 64, OpenFiles: 1024, TmpBytes: 1 << 28},
		Observe:  true,
		Hostname: "cellblock", Seccomp: seccomp.Filter{Name: "none", Digest: "sha256:0", Programs: [][]seccomp.Insn{{{Code: 6, K: 0x7fff0000}}}}}
	if tree == TreeWritable {
		s.Network = NetHost
		s.Optional = []Feature{Landlock}
	}
	return s
}

// ruled is a spec in which every kind of rule about paths stands once.
func ruled() Spec {
	s := handMadeSpec(TreeReadOnly)
	s.Listed, s.ExecListed = true, true
	s.Binds = append(s.Binds, Bind{Source: "/usr", Target: "/usr", Reason: "listed"},
		Bind{Source: "/srv/inbox", Target: "/srv/inbox", Write: true, NoExec: true, OwnerUID: 1000, OwnerGID: 1000, Reason: "inbox"})
	s.Hide = append(s.Hide, Hide{Path: "/home/u/work/later", Inside: true, Reason: "made for the session"})
	s.Guards = []Guard{{Path: "/home/u/work/.git", Inside: true, Reason: "on the way"},
		{Path: "/home/u/work/.git/hooks", ReadOnly: true, Inside: true, Reason: "run on the host"}, {Path: "/opt", NoExec: true, Reason: "not ours"}}
	s.Grants = []Grant{{Path: "/srv/inbox", Create: true, Reason: "inbox"}, {Path: "/usr/bin/python3", Exec: true, Reason: "the interpreter"}}
	s.Links = []Link{{Path: "/bin", Target: "usr/bin", Reason: "as on the host"}}
	s.Local = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/16")}
	s.Sockets = socketsOf("udp 127.0.0.1:53", "tcp 127.0.0.1:3128")
	return s
}

// roomed is a spec whose session comes later.
func roomed() Spec {
	s := handMadeSpec(TreeReadOnly)
	s.Binds, s.Dir, s.Room = nil, "/", "/home/u"
	return s
}

// forkedRoom is one whose worker a warm parent forks, besides.
func forkedRoom() Spec {
	s := roomed()
	s.Forked = true
	return s
}

// shadowed is a spec whose changes go to layers.
func shadowed(privileged bool) Spec {
	s := handMadeSpec(TreeShadow)
	layer := "/home/u/.local/state/cellblock/shadow/L/"
	s.Hide = append(s.Hide, Hide{Path: "/home/u/.local/state/cellblock", Reason: "the launcher's own state"})
	if privileged {
		s.Shadow = []Shadow{{"/", layer + "0"}, {"/home", layer + "1"}}
		return s
	}
	s.Shadow = []Shadow{{"/etc", layer + "0"}, {"/home", layer + "1"}, {"/var", layer + "2"}, {"/var/tmp", layer + "3"}}
	s.Unshadowed = []Unshadowed{{"/", "mount points below it"}, {"/mnt", "mount points below it"}}
	return s
}

// TestLayersThatCannotBe: a tree of kind shadow is compiled with layers that take
// every change, or not at all.
func TestLayersThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"a layer without a tree for it": func(s *Spec) { s.Tree = TreeWritable },
		"the whole tree for a user":     func(s *Spec) { s.Shadow[0].Path = "/" },
		"a layer used twice":            func(s *Spec) { s.Shadow[0].Layer = s.Shadow[1].Layer },
		"a directory named twice":       func(s *Spec) { s.Shadow[0].Path = s.Shadow[1].Path },
		"over the jail's own /tmp":      func(s *Spec) { s.Shadow[0].Path = "/tmp" },
		"within the session directory":  func(s *Spec) { s.Shadow[0].Layer = s.Dir + "/layer" },
		"a listed tree":                 func(s *Spec) { s.Listed = true },
		"an unclean path":               func(s *Spec) { s.Shadow[0].Path = "/etc/../etc" },
	} {
		spec := shadowed(false)
		change(&spec)
		var wrong *SpecError
		if _, err := Compile(spec, handMade(false)); !errors.As(err, &wrong) {
			t.Errorf("%s: %v, want a spec error", name, err)
		}
	}
	spec := shadowed(true)
	spec.Shadow = spec.Shadow[1:]
	var wrong *SpecError
	if _, err := Compile(spec, handMade(true)); !errors.As(err, &wrong) {
		t.Errorf("a privileged launcher without a layer for /: %v, want a spec error", err)
	}
	var missing *MissingFeatureError
	if _, err := Compile(shadowed(false), handMade(false).Without(Overlay)); !errors.As(err, &missing) || missing.Feature != Overlay || missing.Remedy == "" {
		t.Errorf("without overlayfs: %v, want a missing feature with a remedy: never a weaker mode", err)
	}
}

func TestGoldenPlans(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		host Features
	}{
		"enforce-root":                {handMadeSpec(TreeReadOnly), handMade(true)},
		"enforce-user":                {handMadeSpec(TreeReadOnly), handMade(false)},
		"report-root":                 {handMadeSpec(TreeWritable), handMade(true)},
		"report-user":                 {handMadeSpec(TreeWritable), handMade(false)},
		"report-no-landlock-nocgroup": {handMadeSpec(TreeWritable), handMade(false).Without(Landlock, Cgroup)},
		"shadow-root":                 {shadowed(true), handMade(true)},
		"shadow-user":                 {shadowed(false), handMade(false)},
		"forked-root":                 {forkedRoom(), handMade(true)},
		"forked-user":                 {forkedRoom(), handMade(false)},
		"room-root":                   {roomed(), handMade(true)},
		"room-user":                   {roomed(), handMade(false)},
		"ruled-root":                  {ruled(), handMade(true)},
		"ruled-user":                  {ruled(), handMade(false)},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Compile(c.spec, c.host)
			if err != nil {
				t.Fatal(err)
			}
			got := p.String()
			if strings.Contains(got, "canary") {
				t.Error("the printed plan shows a value of the environment")
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("plan differs from %s (run go test ./jail -run Golden -update, and read what changed):\n%s", path, diff)
			}
			for _, s := range p.Steps {
				if s.Reason == "" {
					t.Errorf("step %s: no reason", s.Title())
				}
			}
			again, err := plan.Decode(p.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.Encode(), p.Encode()) {
				t.Error("decoding and encoding again changes the plan")
			}
		})
	}
}

func TestMissingFeaturesAreErrorsWithARemedy(t *testing.T) {
	spec := handMadeSpec(TreeReadOnly)
	for _, f := range []Feature{UserNamespace, MountNamespace, PIDNamespace, IPCNamespace, UTSNamespace, NetworkNamespace, CgroupNamespace,
		FreshProc, MountSetattr, MemfdExec, PIDFD, CloseRange, Seccomp, Landlock} {
		_, err := Compile(spec, handMade(false).Without(f))
		var missing *MissingFeatureError
		if !errors.As(err, &missing) || missing.Feature != f || missing.Remedy == "" {
			t.Errorf("without %s: %v, want a missing feature with a remedy", f, err)
		}
	}
	spec.Required = []Feature{CgroupMemory}
	var missing *MissingFeatureError
	if _, err := Compile(spec, handMade(false).Without(Cgroup)); !errors.As(err, &missing) {
		t.Errorf("a required limit without a cgroup: %v, want a missing feature", err)
	}
	spec.Required, spec.Optional = nil, []Feature{UserNamespace}
	if _, err := Compile(spec, handMade(false).Without(UserNamespace)); !errors.As(err, &missing) {
		t.Errorf("user namespaces marked optional: %v, want an error all the same: without them there is no jail", err)
	}
}

// TestWhatLandlockAloneKeeps: parts of changes and lists of programs have no
// second mechanism, so that an optional Landlock does not make them optional.
func TestWhatLandlockAloneKeeps(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"a part of the changes": func(s *Spec) { s.Grants = []Grant{{Path: s.Dir, Modify: true}} },
		"a list of programs":    func(s *Spec) { s.ExecListed = true },
	} {
		spec := handMadeSpec(TreeReadOnly)
		spec.Optional = []Feature{Landlock}
		change(&spec)
		var missing *MissingFeatureError
		if _, err := Compile(spec, handMade(false).Without(Landlock)); !errors.As(err, &missing) || missing.Feature != Landlock {
			t.Errorf("%s without Landlock: %v, want a missing feature", name, err)
		}
	}
}

func TestDegradationIsSaid(t *testing.T) {
	spec := handMadeSpec(TreeWritable)
	p, err := Compile(spec, handMade(false).Without(Landlock, Cgroup))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range p.Degraded {
		names = append(names, d.Feature)
	}
	if got := strings.Join(names, " "); got != "landlock cgroup-memory cgroup-tasks" {
		t.Errorf("degraded: %s", got)
	}
}

func TestSpecsThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"no name":              func(s *Spec) { s.Name = "" },
		"relative command":     func(s *Spec) { s.Argv = []string{"python3"} },
		"no command":           func(s *Spec) { s.Argv = nil },
		"unknown tree":         func(s *Spec) { s.Tree = "" },
		"unknown network":      func(s *Spec) { s.Network = "lan" },
		"bind over /tmp":       func(s *Spec) { s.Binds[0].Target = "/tmp" },
		"bind over root":       func(s *Spec) { s.Binds[0].Target = "/" },
		"bind in /proc":        func(s *Spec) { s.Binds[0].Target = "/proc/1" },
		"bind in /dev":         func(s *Spec) { s.Binds[0].Target = "/dev/x" },
		"unclean path":         func(s *Spec) { s.Binds[0].Source = "/home/../etc" },
		"zero byte":            func(s *Spec) { s.Env = []string{"A=\x00"} },
		"private dir outside":  func(s *Spec) { s.Dirs[0].Path = "/home/u/x" },
		"no filter":            func(s *Spec) { s.Seccomp.Programs = nil },
		"relative working dir": func(s *Spec) { s.Dir = "work" },
	} {
		spec := handMadeSpec(TreeReadOnly)
		change(&spec)
		var wrong *SpecError
		if _, err := Compile(spec, handMade(false)); !errors.As(err, &wrong) {
			t.Errorf("%s: %v, want a spec error", name, err)
		}
	}
}

func TestIDMappingIsOneToOne(t *testing.T) {
	for _, c := range [][2]int{{0, 61184}, {1000, 61184}, {61185, 61184}, {65534, 61184}} {
		inner, outer := map[int]bool{}, map[int]bool{}
		for _, m := range idMapping(c[0], c[1], false) {
			for probe := range map[int]bool{c[0]: true, c[1]: true, 0: true, 1: true, 999: true, 1001: true, 70000: true} {
				if probe >= m.inner && probe < m.inner+m.size {
					if inner[probe] {
						t.Errorf("%v: disk id %d is mapped twice", c, probe)
					}
					inner[probe] = true
				}
				if probe >= m.outer && probe < m.outer+m.size {
					if outer[probe] {
						t.Errorf("%v: host id %d is mapped twice", c, probe)
					}
					outer[probe] = true
				}
			}
		}
		if !outer[c[1]] || !inner[c[0]] || inner[c[1]] {
			t.Errorf("%v: disk %d must become %d, and disk %d nobody", c, c[0], c[1], c[1])
		}
	}
}

func FuzzDecodePlan(f *testing.F) {
	p, err := Compile(handMadeSpec(TreeReadOnly), handMade(true))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := plan.Decode(b); err == nil {
			if _, err := plan.Decode(p.Encode()); err != nil {
				t.Errorf("what decodes once must decode again: %v", err)
			}
		}
	})
}
