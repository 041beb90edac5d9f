package jail

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Answer is what a probe found out. The zero value is "could not tell", so
// that a Features value built by hand claims nothing that it does not say.
type Answer int8

const (
	// Unknown means that the probe could not tell, or did not try.
	Unknown Answer = iota
	// Yes means that it was seen to work, or that the Linux version says so.
	Yes
	// No means that it is known not to work here.
	No
)

// String returns "could not tell", "yes" or "no".
func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	default:
		return "could not tell"
	}
}

// MarshalText renders the answer as String does.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText accepts what MarshalText writes.
func (a *Answer) UnmarshalText(text []byte) error {
	for _, known := range []Answer{Unknown, Yes, No} {
		if known.String() == string(text) {
			*a = known
			return nil
		}
	}
	return fmt.Errorf("answer %q: want yes, no or could not tell", text)
}

// Feature names one ability of the host. The names are the ones that
// JAIL_TEST_REQUIRE, doctor and Spec.Optional use.
type Feature string

// The features that Probe and ProbeAll answer for.
const (
	UserNamespace    Feature = "userns"         // clone(CLONE_NEWUSER) and the rights inside it
	MountNamespace   Feature = "mountns"        // CLONE_NEWNS inside a user namespace
	PIDNamespace     Feature = "pidns"          // CLONE_NEWPID
	IPCNamespace     Feature = "ipcns"          // CLONE_NEWIPC
	UTSNamespace     Feature = "utsns"          // CLONE_NEWUTS
	NetworkNamespace Feature = "netns"          // CLONE_NEWNET
	CgroupNamespace  Feature = "cgroupns"       // CLONE_NEWCGROUP
	FreshProc        Feature = "proc"           // a new proc may be mounted in a new pid namespace
	Overlay          Feature = "overlay"        // overlayfs as this launcher uses it: over detached mounts, or in a user namespace
	Landlock         Feature = "landlock"       // any Landlock ABI
	Seccomp          Feature = "seccomp"        // seccomp filters
	SeccompNotify    Feature = "seccomp-notify" // SECCOMP_RET_USER_NOTIF
	CgroupMemory     Feature = "cgroup-memory"  // a memory limit by cgroup
	CgroupTasks      Feature = "cgroup-tasks"   // a task limit by cgroup
	CgroupKill       Feature = "cgroup-kill"    // cgroup.kill, Linux 5.14
	Cgroup           Feature = "cgroup"         // memory and task limits both by cgroup
	IDMappedMount    Feature = "idmap"          // mount_setattr(MOUNT_ATTR_IDMAP)
	MountSetattr     Feature = "mount-setattr"  // recursive read-only in one call, Linux 5.12
	MemfdExec        Feature = "memfd-exec"     // a program may be started from a memfd
	PIDFD            Feature = "pidfd"          // pidfd_open and pidfd_send_signal, Linux 5.3
	CloseRange       Feature = "close-range"    // close_range, Linux 5.9
	Root             Feature = "root"           // full rights in the initial user namespace
)

// Finding is the answer to one feature.
type Finding struct {
	// Answer is yes, no or could not tell.
	Answer Answer `json:"answer"`
	// Why says how it was found: the call and its errno, the setting read, or
	// the Linux version.
	Why string `json:"why"`
	// Remedy says what a person can do about it. Empty when Answer is Yes.
	Remedy string `json:"remedy,omitempty"`
}

// Yes reports whether the feature is known to work.
func (f Finding) Yes() bool { return f.Answer == Yes }

// No reports whether the feature is known not to work.
func (f Finding) No() bool { return f.Answer == No }

// MountPoint is one mount of the host that the launcher can see.
type MountPoint struct {
	Path     string `json:"path"`
	FSType   string `json:"fsType"`
	Source   string `json:"source"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// IDMap says whether this file system can be id-mapped.
	IDMap Answer `json:"idMap"`
}

// Features is what the host can do, as a value. Probe fills it from the host;
// a test may build one by hand, which is how the absence of a feature is
// simulated. A feature without a finding is Unknown.
type Features struct {
	// Kernel is the Linux release, as uname -r prints it.
	Kernel string `json:"kernel"`
	// UID and GID are the launcher's effective ids.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Privileged is true for full rights in the initial user namespace.
	Privileged bool `json:"privileged"`
	// LandlockABI is the highest Landlock ABI, 0 when there is none.
	LandlockABI int `json:"landlockABI"`
	// CgroupMode is "v1", "v2", "hybrid" or "none".
	CgroupMode string `json:"cgroupMode"`
	// Mounts is the host's mount table in the order of mountinfo, the last of
	// two mounts at one path on top; mounts that are covered are left out.
	Mounts []MountPoint `json:"mounts,omitempty"`
	// Findings has the answers.
	Findings map[Feature]Finding `json:"findings"`
}

// Get returns the finding for one feature; Unknown when nobody asked.
func (f Features) Get(name Feature) Finding {
	if found, ok := f.Findings[name]; ok {
		return found
	}
	return Finding{Why: "not probed"}
}

// Has reports whether the feature is known to work.
func (f Features) Has(name Feature) bool { return f.Get(name).Yes() }

// Lacks reports whether the feature is known not to work.
func (f Features) Lacks(name Feature) bool { return f.Get(name).No() }

// With returns a copy in which the feature has this finding.
func (f Features) With(name Feature, found Finding) Features {
	f.Findings = maps.Clone(f.Findings)
	if f.Findings == nil {
		f.Findings = map[Feature]Finding{}
	}
	f.Findings[name] = found
	return f
}

// Without returns a copy in which the named features are absent. It is how
// a test plays a host that lacks something.
func (f Features) Without(names ...Feature) Features {
	for _, name := range names {
		why := "simulated absence"
		f = f.With(name, Finding{Answer: No, Why: why, Remedy: remedies[name]})
		switch name {
		case Landlock:
			f.LandlockABI = 0
		case Cgroup:
			f.CgroupMode = "none"
			f = f.With(CgroupMemory, Finding{Answer: No, Why: why, Remedy: remedies[CgroupMemory]})
			f = f.With(CgroupTasks, Finding{Answer: No, Why: why, Remedy: remedies[CgroupTasks]})
			f = f.With(CgroupKill, Finding{Answer: No, Why: why, Remedy: remedies[CgroupKill]})
		case Root:
			f.Privileged = false
		}
	}
	return f
}

// Names returns the features that have a finding, in alphabetical order.
func (f Features) Names() []Feature {
	return slices.Sorted(maps.Keys(f.Findings))
}

// String renders the features as a table, one line each.
func (f Features) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Linux %s, uid %d, cgroup %s, Landlock ABI %d\n", f.Kernel, f.UID, f.CgroupMode, f.LandlockABI)
	for _, name := range f.Names() {
		found := f.Findings[name]
		fmt.Fprintf(&b, "%-15s %-14s %s\n", name, found.Answer, found.Why)
		if found.Remedy != "" {
			fmt.Fprintf(&b, "%-15s %-14s remedy: %s\n", "", "", found.Remedy)
		}
	}
	return b.String()
}

// remedies says for each feature what a person can do when it is absent.
var remedies = map[Feature]string{
	UserNamespace:    "let this user make user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or run as root",
	MountNamespace:   "raise sysctl user.max_mnt_namespaces, or let the surrounding container allow mount namespaces",
	PIDNamespace:     "raise sysctl user.max_pid_namespaces, or use a Linux with CONFIG_PID_NS",
	IPCNamespace:     "raise sysctl user.max_ipc_namespaces, or use a Linux with CONFIG_IPC_NS",
	UTSNamespace:     "raise sysctl user.max_uts_namespaces, or use a Linux with CONFIG_UTS_NS",
	NetworkNamespace: "raise sysctl user.max_net_namespaces, or use a Linux with CONFIG_NET_NS",
	CgroupNamespace:  "raise sysctl user.max_cgroup_namespaces, or use Linux 4.6 or later",
	FreshProc:        "run outside a container that masks parts of /proc, or start that container with unmasked /proc",
	Overlay:          "use Linux 5.11 or later with overlayfs (modprobe overlay); for a launcher that is root, 6.15 or later",
	Landlock:         "use Linux 5.13 or later with landlock in the list of lsm= on its command line",
	Seccomp:          "use a Linux with CONFIG_SECCOMP_FILTER",
	SeccompNotify:    "use Linux 5.6 or later, with sysctl kernel.yama.ptrace_scope below 3",
	CgroupMemory:     "delegate the memory controller to this user (systemd: Delegate=yes, or start with systemd-run --user --scope), or run as root",
	CgroupTasks:      "delegate the pids controller to this user (systemd: Delegate=yes, or start with systemd-run --user --scope), or run as root",
	Cgroup:           "delegate the memory and pids controllers to this user (systemd: Delegate=yes, or start with systemd-run --user --scope), or run as root",
	CgroupKill:       "use Linux 5.14 or later with cgroup v2 mounted, and delegated to this user",
	IDMappedMount:    "use Linux 5.12 or later and a file system that supports id-mapped mounts, or run as an ordinary user",
	MountSetattr:     "use Linux 5.12 or later",
	MemfdExec:        "set sysctl vm.memfd_noexec to 0 or 1",
	PIDFD:            "use Linux 5.3 or later",
	CloseRange:       "use Linux 5.9 or later",
	Root:             "run as root in the initial user namespace when files must belong to other users",
}
