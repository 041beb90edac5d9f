package jail

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"cellblock/jail/cgroup"
)

// Probe returns what this host can do, from settings, versions and calls that
// have no effect, in under a millisecond. What only a try can tell is Unknown
// there unless a setting says No; Start finds out, and ProbeAll tries. The
// answer is kept for the life of the process, but for the mounts, which are
// those of now: a host mounts and unmounts while launchers run.
func Probe() Features {
	f := probeOnce()
	f.Mounts = mountsNow(f.Kernel)
	return f
}

var probeOnce = sync.OnceValue(probe)

func probe() Features {
	release := kernelRelease()
	f := Features{
		Kernel:      release,
		UID:         os.Geteuid(),
		GID:         os.Getegid(),
		Privileged:  privileged(),
		LandlockABI: landlockABI(),
		CgroupMode:  string(cgroup.HostMode()),
		Findings:    map[Feature]Finding{},
	}
	version := parseRelease(release)
	f.set(Root, answer(f.Privileged), privilegedWhy(f.Privileged))
	f.probeNamespaces()
	f.probeLandlock()
	f.probeSeccomp()
	f.probeCalls(version)
	f.probeCgroup()
	return f
}

// set records a finding, with the remedy unless the answer is Yes.
func (f *Features) set(name Feature, a Answer, why string) {
	found := Finding{Answer: a, Why: why}
	if a != Yes {
		found.Remedy = remedies[name]
	}
	f.Findings[name] = found
}

func answer(works bool) Answer {
	if works {
		return Yes
	}
	return No
}

// release is a Linux version, major and minor.
type release struct{ major, minor int }

func (r release) atLeast(major, minor int) bool {
	return r.major > major || r.major == major && r.minor >= minor
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

func parseRelease(text string) release {
	var r release
	// An unparsable release stays 0.0 and claims nothing.
	_, _ = fmt.Sscanf(text, "%d.%d", &r.major, &r.minor)
	return r
}

// privileged reports full rights in the initial user namespace, the only one
// whose id map covers every id.
func privileged() bool {
	if os.Geteuid() != 0 {
		return false
	}
	raw, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || strings.Join(strings.Fields(string(raw)), " ") != "0 0 4294967295" {
		return false
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	need := uint32(1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID)
	return data[0].Effective&need == need
}

func privilegedWhy(yes bool) string {
	if yes {
		return "effective id 0 with CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID in the initial user namespace"
	}
	return "not root with full rights in the initial user namespace; files keep the ordinary user's owner"
}

// namespaces ties each kind to the file that exists when Linux has it, and to
// the setting that bounds their number.
var namespaces = []struct {
	feature       Feature
	file, setting string
	flag          uintptr
}{
	{UserNamespace, "user", "user", unix.CLONE_NEWUSER},
	{MountNamespace, "mnt", "mnt", unix.CLONE_NEWNS},
	{PIDNamespace, "pid", "pid", unix.CLONE_NEWPID},
	{IPCNamespace, "ipc", "ipc", unix.CLONE_NEWIPC},
	{UTSNamespace, "uts", "uts", unix.CLONE_NEWUTS},
	{NetworkNamespace, "net", "net", unix.CLONE_NEWNET},
	{CgroupNamespace, "cgroup", "cgroup", unix.CLONE_NEWCGROUP},
}

func (f *Features) probeNamespaces() {
	for _, ns := range namespaces {
		setting := "/proc/sys/user/max_" + ns.setting + "_namespaces"
		switch {
		case unix.Access("/proc/self/ns/"+ns.file, unix.F_OK) != nil:
			f.set(ns.feature, No, "/proc/self/ns/"+ns.file+" does not exist")
		case sysctl(setting) == "0":
			f.set(ns.feature, No, setting+" is 0")
		default:
			f.set(ns.feature, Unknown, "this Linux has them; not tried yet")
		}
	}
	f.set(FreshProc, Unknown, "not tried yet")
	f.set(Overlay, Unknown, "not tried yet")
	if f.UID == 0 || f.Lacks(UserNamespace) {
		return
	}
	switch {
	case sysctl("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		f.set(UserNamespace, No, "kernel.unprivileged_userns_clone is 0")
		f.remedy(UserNamespace, "sysctl -w kernel.unprivileged_userns_clone=1, or run as root")
	case sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		// A profile for this program may still allow it: only a try can tell.
		f.set(UserNamespace, Unknown, "kernel.apparmor_restrict_unprivileged_userns is 1; not tried yet")
		f.remedy(UserNamespace, apparmorRemedy)
	}
}

const apparmorRemedy = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or load an AppArmor profile for this program that has the rule userns, or run as root"

func (f *Features) remedy(name Feature, text string) {
	found := f.Findings[name]
	found.Remedy = text
	f.Findings[name] = found
}

// sysctl reads a setting; "" when it does not exist or may not be read.
func sysctl(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

func (f *Features) probeLandlock() {
	if f.LandlockABI > 0 {
		f.set(Landlock, Yes, "landlock_create_ruleset says ABI "+strconv.Itoa(f.LandlockABI))
		return
	}
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1)
	f.set(Landlock, No, "landlock_create_ruleset: "+errno.Error())
	if errno == unix.EOPNOTSUPP {
		f.remedy(Landlock, "add landlock to the list of lsm= on Linux's command line; it is built in and switched off")
	}
}

func (f *Features) probeSeccomp() {
	for name, action := range map[Feature]uint32{Seccomp: unix.SECCOMP_RET_KILL_PROCESS, SeccompNotify: unix.SECCOMP_RET_USER_NOTIF} {
		if errno := actionAvailable(action); errno != 0 {
			f.set(name, No, "seccomp(SECCOMP_GET_ACTION_AVAIL): "+errno.Error())
			continue
		}
		f.set(name, Yes, "seccomp(SECCOMP_GET_ACTION_AVAIL) knows its action")
	}
}

func (f *Features) probeCalls(version release) {
	f.try(PIDFD, "pidfd_open of the launcher itself", func() error {
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	})
	f.try(CloseRange, "close_range of no descriptor", func() error {
		const none = 1<<32 - 1
		return unix.CloseRange(none, none, 0)
	})
	f.try(MountSetattr, "mount_setattr exists", func() error {
		err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{})
		if err == unix.ENOSYS {
			return err
		}
		return nil // EBADF, or nothing to do: the call is there
	})
	switch {
	case f.Lacks(MountSetattr):
		f.set(IDMappedMount, No, "mount_setattr: function not implemented")
	case !f.Privileged:
		f.set(IDMappedMount, No, "needs full rights in the initial user namespace")
		f.remedy(IDMappedMount, "nothing to do: only a launcher with root's rights needs it, an ordinary user's files are his own in the jail")
	case version.atLeast(5, 12):
		f.set(IDMappedMount, Unknown, "Linux "+f.Kernel+" has it; depends on the file system")
	default:
		f.set(IDMappedMount, No, "Linux "+f.Kernel+" is older than 5.12")
	}
	// The setting bounds every pid namespace below; 2 refuses executable memfds.
	switch value := sysctl("/proc/sys/vm/memfd_noexec"); value {
	case "2":
		f.set(MemfdExec, No, "vm.memfd_noexec is 2")
	case "":
		f.set(MemfdExec, Yes, "no vm.memfd_noexec on this Linux")
	default:
		f.set(MemfdExec, Yes, "vm.memfd_noexec is "+value)
	}
}

func (f *Features) try(name Feature, what string, call func() error) {
	if err := call(); err != nil {
		f.set(name, No, what+": "+err.Error())
		return
	}
	f.set(name, Yes, what+" works")
}

func (f *Features) probeCgroup() {
	memory, tasks, kill := cgroup.Places()
	for name, place := range map[Feature]cgroup.Place{CgroupMemory: memory, CgroupTasks: tasks, CgroupKill: kill} {
		f.set(name, answer(place.Usable), place.Why)
	}
	if memory.Usable && tasks.Usable {
		f.set(Cgroup, Yes, "memory and task limits both by cgroup")
		return
	}
	var why []string
	for _, place := range []cgroup.Place{memory, tasks} {
		if !place.Usable {
			why = append(why, place.Why)
		}
	}
	f.set(Cgroup, No, strings.Join(why, "; "))
}

// userNamespaceRefusal says why a user namespace was refused: the settings that
// may have done it, with their remedy.
func userNamespaceRefusal(uid int, err error) Finding {
	found := Finding{Answer: No, Why: "clone(CLONE_NEWUSER) and a mount inside: " + err.Error(), Remedy: remedies[UserNamespace]}
	switch {
	case sysctl("/proc/sys/user/max_user_namespaces") == "0":
		found.Why += "; user.max_user_namespaces is 0"
		found.Remedy = "sysctl -w user.max_user_namespaces=15000, or run as root on a Linux that allows them"
	case uid != 0 && sysctl("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		found.Why += "; kernel.unprivileged_userns_clone is 0"
		found.Remedy = "sysctl -w kernel.unprivileged_userns_clone=1, or run as root"
	case uid != 0 && sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		found.Why += "; kernel.apparmor_restrict_unprivileged_userns is 1"
		found.Remedy = apparmorRemedy
	}
	return found
}

// ExplainUserNamespace turns the error of a start that could not enter its
// namespaces into a finding that names the setting behind it and the remedy.
func ExplainUserNamespace(err error) Finding { return userNamespaceRefusal(os.Geteuid(), err) }

// lockThread keeps the calling goroutine's thread to itself while it is in a
// state that no other goroutine may meet.
func lockThread() func() {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
