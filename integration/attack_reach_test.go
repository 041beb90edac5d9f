package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAttacksOnSockets: families and options that reach code in Linux which no
// session needs.
func TestAttacksOnSockets(t *testing.T) { runAttacks(t, socketAttacks(), everyMode) }

func socketAttacks() []attack {
	family := func(name string, number, kind, protocol int, where control) attack {
		return attack{name: name, where: where, refused: []string{"EPERM", "EACCES", "EAFNOSUPPORT"},
			code: fmt.Sprintf("verdict = attempt(raw, %d, %d, %d, %d)", unix.SYS_SOCKET, number, kind, protocol)}
	}
	return []attack{
		family("AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0, plain),
		family("AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0, plain),
		family("AF_PACKET", unix.AF_PACKET, unix.SOCK_RAW, 0, namespaced),
		family("AF_KEY", unix.AF_KEY, unix.SOCK_RAW, 2, namespaced),
		family("AF_RXRPC", unix.AF_RXRPC, unix.SOCK_DGRAM, 2, plain),
		family("AF_XDP", unix.AF_XDP, unix.SOCK_RAW, 0, namespaced),
		family("AF_TIPC", unix.AF_TIPC, unix.SOCK_STREAM, 0, plain),
		family("AF_BLUETOOTH", unix.AF_BLUETOOTH, unix.SOCK_RAW, 0, plain),
		family("AF_CAN", unix.AF_CAN, unix.SOCK_RAW, 1, namespaced),
		family("AF_SMC", unix.AF_SMC, unix.SOCK_STREAM, 0, plain),
		family("netlink xfrm", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM, plain),
		family("netlink netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, plain),
		family("netlink audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT, plain),
		family("AF_RDS", unix.AF_RDS, unix.SOCK_SEQPACKET, 0, plain),
		family("AF_KCM", unix.AF_KCM, unix.SOCK_DGRAM, 0, plain),
		family("AF_QIPCRTR", unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0, plain),
		family("AF_NFC", unix.AF_NFC, unix.SOCK_SEQPACKET, 1, plain),
		family("netlink uevents", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_KOBJECT_UEVENT, plain),
		family("netlink connector", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_CONNECTOR, plain),
		family("netlink generic", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_GENERIC, plain),
		family("raw ICMP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, namespaced),
		family("raw ICMPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, namespaced),
		family("MPTCP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, plain),
		family("SCTP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP, plain),
		family("DCCP", unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP, plain),
		family("UDP-Lite", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, plain),
		{name: "every other family that there is", where: namespaced, refused: no, code: fmt.Sprintf(`
def go():
    for family in set(range(47)) - {1, 2, 10, 16}:
        for kind in (1, 2, 3, 5):
            if attempt(raw, %d, family, kind, 0) == "done": return
    raise OSError(errno.EPERM, "none")
verdict = attempt(go)`, unix.SYS_SOCKET)},
		{name: "TCP_ULP", refused: no, code: `verdict = attempt(socket.socket().setsockopt, 6, 31, b"tls")`},
		{name: "UDP_ENCAP", refused: no, code: `verdict = attempt(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt, 17, 100, struct.pack("i", 2))`},
	}
}

// TestAttacksOnProc: what /proc and /sys must not show or take.
func TestAttacksOnProc(t *testing.T) { runAttacks(t, procAttacks(), everyMode) }

func procAttacks() []attack {
	hidden := []string{"EACCES", "EPERM", "ENOENT", "EROFS"}
	open := func(path, how string, where control) attack {
		return attack{name: how + " " + path, where: where, refused: hidden,
			code: fmt.Sprintf("verdict = attempt(os.open, %q, os.%s)", path, how)}
	}
	// What is covered by an empty file opens, and tells nothing.
	told := func(path string) attack {
		return attack{name: "what is in " + path, where: asRoot, refused: append([]string{"nothing"}, hidden...), code: fmt.Sprintf(`
said = []
def go():
    try: said.append(os.read(os.open(%q, os.O_RDONLY | os.O_NONBLOCK), 100))
    except BlockingIOError: said.append(b"later")
verdict = attempt(go)
if said == [b""]: verdict = "nothing"`, path)}
	}
	return []attack{
		open("/proc/sys/kernel/core_pattern", "O_WRONLY", asRoot),
		open("/proc/sys/kernel/hostname", "O_WRONLY", asRoot),
		open("/proc/sys/vm/overcommit_memory", "O_WRONLY", asRoot),
		open("/proc/sysrq-trigger", "O_WRONLY", asRoot),
		open("/proc/kcore", "O_RDONLY", asRoot),
		told("/proc/kmsg"),
		open("/proc/sys/kernel/modprobe", "O_WRONLY", asRoot),
		open("/proc/sys/fs/binfmt_misc/register", "O_WRONLY", asRoot),
		open("/proc/sys/kernel/ns_last_pid", "O_WRONLY", asRoot),
		open("/proc/sys/vm/drop_caches", "O_WRONLY", asRoot),
		open("/proc/sys/net/ipv4/ip_forward", "O_WRONLY", asRoot),
		open("/sys/kernel/uevent_helper", "O_WRONLY", asRoot),
		open("/sys/fs/cgroup/cgroup.procs", "O_WRONLY", asRoot),
		open("/sys/power/state", "O_WRONLY", asRoot),
		open("/sys/firmware", "O_RDONLY", plain),
		open("/sys/kernel/debug", "O_RDONLY", asRoot),
		open("/sys/class/net", "O_RDONLY", plain),
		told("/proc/timer_list"),
		told("/proc/sched_debug"),
		told("/proc/modules"),
		told("/proc/interrupts"),
		{name: "memory of the parent", refused: hidden, code: `verdict = attempt(os.open, f"/proc/{os.getppid()}/mem", os.O_RDONLY)`},
		{name: "environment of the parent", refused: hidden, code: `verdict = attempt(os.open, f"/proc/{os.getppid()}/environ", os.O_RDONLY)`},
		{name: "the program of the parent", refused: hidden, code: `verdict = attempt(os.open, f"/proc/{os.getppid()}/exe", os.O_RDONLY)`},
		{name: "mappings of the parent", refused: hidden, code: `verdict = attempt(lambda: os.listdir(f"/proc/{os.getppid()}/map_files"))`},
		{name: "the parent's namespaces", refused: hidden, code: `verdict = attempt(os.open, f"/proc/{os.getppid()}/ns/mnt", os.O_RDONLY)`},
		{name: "descriptors of the parent", refused: hidden, code: `verdict = attempt(os.listdir, f"/proc/{os.getppid()}/fd")`},
		open("/dev/kmsg", "O_RDONLY", asRoot),
		open("/dev/mem", "O_RDONLY", asRoot),
		open("/sys/kernel/mm", "O_RDONLY", plain),
		open("/sys/fs/cgroup", "O_RDONLY", plain),
		{name: "kernel addresses", where: asRoot, refused: []string{"none"}, code: `
try:
    seen = [line for line in open("/proc/kallsyms").read(4000).splitlines() if not line.startswith("0" * 16)]
except OSError: seen = []
verdict = "seen" if seen else "none"`},
		{name: "oom score lowered", where: asRoot, needs: []string{needResource}, refused: hidden, code: `
def lower():
    with open("/proc/self/oom_score_adj", "w") as f: f.write("-500")
verdict = in_child(lower)`},
	}
}

// needResource asks for CAP_SYS_RESOURCE, which a root in a container may lack.
var needResource = register("cap-sys-resource", func() string {
	set, err := strconv.ParseUint(statusField(os.Getpid(), "CapEff"), 16, 64)
	if err != nil || set&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return "the tests run without CAP_SYS_RESOURCE"
	}
	return ""
})

// reachAttacks look for what lives on the host beside a session. Each is an expression
// of Python, after reachTools, and what it comes to inside; outside of the jail, in a
// process that the tests start with a descriptor too many, it must come to something else.
var reachAttacks = []struct {
	name, code, want string
	where            control
}{
	{"the launcher's environment", `"canary" in str(dict(os.environ))`, "False", plain},
	{"environments in /proc", `any("canary-in-the" in read(f"/proc/{p}/environ") for p in os.listdir("/proc") if p.isdigit())`, "False", plain},
	{"ssh keys", `"canary" in read(HOME + "/.ssh/id_canary")`, "False", plain},
	{"cloud credentials", `"canary" in read(HOME + "/.aws/credentials")`, "False", plain},
	{"netrc", `"canary" in read(HOME + "/.netrc")`, "False", plain},
	{"shadow", `read("/etc/shadow") in ("PermissionError", "FileNotFoundError", "")`, "True", asRoot},
	{"shared memory", `[n for n in os.listdir("/dev/shm") if "canary" in n]`, "[]", plain},
	{"abstract socket", `knock(socket.AF_UNIX, ABSTRACT)`, "'refused'", plain},
	{"path socket", `knock(socket.AF_UNIX, SOCKET)`, "'refused'", plain},
	{"docker, bus and agent sockets", `[p for p in (RUN, "/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify", "/run/systemd/journal/socket", "/dev/log", "/run/nscd/socket", "/run/containerd/containerd.sock", "/run/podman/podman.sock") if os.path.exists(p)]`, "[]", asRoot},
	{"the launcher's process", `attempt(os.kill, PID, 0)`, "'ESRCH'", plain},
	{"raw disks", `[d for d in os.listdir("/dev") if d.startswith(("vd", "sd", "nvme", "mem", "kmsg", "kvm", "fuse", "mapper", "net"))]`, "[]", plain},
	{"descriptors", `sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + n))`, "[0, 1, 2, 3]", plain},
	{"core dumps", `__import__("resource").getrlimit(4)`, "(0, 0)", plain},
	{"keyrings in /proc", `read("/proc/keys") in ("", "PermissionError", "FileNotFoundError")`, "True", asRoot},
	{"powers of a child", `subprocess.run(["grep", "Eff", "/proc/self/status"], capture_output=True, text=True).stdout.split()[1]`, "'0000000000000000'", asRoot},
}

// needDisks is that the host has devices that a session is not to see.
var needDisks = register("disks", func() string {
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		for _, kind := range []string{"vd", "sd", "nvme"} {
			if strings.HasPrefix(e.Name(), kind) {
				return ""
			}
		}
	}
	return "/dev has no disks"
})

// TestReachOfASession: what lives on the host beside a session, with a canary of
// each kind that the test itself reaches, and the session must not.
func TestReachOfASession(t *testing.T) {
	tools, hits := reachTools(t)
	t.Run("control", func(t *testing.T) {
		for _, a := range reachAttacks {
			t.Run(a.name, func(t *testing.T) {
				if a.where == asRoot {
					require(t, needRoot)
				}
				cmd := exec.Command("bash", "-c", `exec 9</dev/null "$@"`, "bash", pythonBin(), "-c", attackTools+tools+"\nprint(repr("+a.code+"))")
				cmd.Dir = newDir(t)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("control: %v\n%s", err, out)
				}
				if got := strings.TrimSpace(string(out)); got == a.want {
					if a.name == "raw disks" {
						require(t, needDisks)
					}
					t.Errorf("outside the jail it comes to %s too", got)
				}
			})
		}
	})
	reached := hits.Load()
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			s := open(t, inMode(t, m))
			s.ok(attackTools + tools)
			for _, a := range reachAttacks {
				t.Run(a.name, func(t *testing.T) { s.t = t; s.shows(a.code, a.want) })
			}
			if m == "enforce" {
				t.Run("services on the host's loopback", func(t *testing.T) {
					s.t = t
					s.shows(`[knock(socket.AF_INET, ("127.0.0.1", PORT)), knock(socket.AF_INET, ("127.0.0.1", PORT), protocol=262), knock(socket.AF_INET6, ("::ffff:127.0.0.1", PORT)), knock(socket.AF_INET, ("0.0.0.0", PORT))]`,
						"['refused', 'refused', 'refused', 'refused']")
					s.shows(`[knock(socket.AF_INET, (a, 80)) for a in ("192.0.2.1", "169.254.169.254", "10.0.0.1")]`, "['refused', 'refused', 'refused']")
				})
			}
			if hits.Load() != reached {
				t.Errorf("%d connections from inside arrived", hits.Load()-reached)
			}
		})
	}
}

// reachTools puts canaries of each kind on the host, sees that this process reaches those
// that listen, and returns what the attempts need to know, with the number of connections.
func reachTools(t *testing.T) (tools string, hits *atomic.Int64) {
	t.Helper()
	home := newDirIn(t, "/var/tmp")
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("CANARY_TOKEN", "canary-in-the-environment")
	write(t, home+"/.ssh/id_canary", "canary-key")
	write(t, home+"/.aws/credentials", "canary-cloud")
	write(t, home+"/.netrc", "canary-netrc")
	write(t, "/dev/shm/cellblock-canary-"+strconv.Itoa(os.Getpid()), "canary-shm")
	t.Cleanup(func() { os.Remove("/dev/shm/cellblock-canary-" + strconv.Itoa(os.Getpid())) })

	abstract := fmt.Sprintf("@cellblock-canary-%d", os.Getpid())
	path, service := newDir(t)+"/s", fmt.Sprintf("/run/cellblock-canary-%d.sock", os.Getpid())
	hits = new(atomic.Int64)
	at := [][2]string{{"unix", abstract}, {"unix", path}, {"tcp", "127.0.0.1:0"}}
	if os.Geteuid() == 0 {
		at = append(at, [2]string{"unix", service})
	}
	for i := range at {
		address := serving(t, at[i][0], at[i][1], func(c net.Conn) {
			if data, _ := io.ReadAll(io.LimitReader(c, 6)); string(data) == "inside" {
				hits.Add(1)
			}
		})
		if at[i][0] == "tcp" {
			at[i][1] = address
		}
	}
	// Control: this process reaches each of them.
	for _, a := range at {
		c, err := net.Dial(a[0], a[1])
		if err != nil {
			t.Fatalf("control: %v", err)
		}
		io.WriteString(c, "inside")
		c.Close()
	}
	eventually(t, "control: every connection arrives", 5*time.Second, func() bool { return hits.Load() == int64(len(at)) })
	return fmt.Sprintf(`
import os, socket, subprocess
HOME, PID, PORT, ABSTRACT, SOCKET, RUN = %q, %d, %s, "\0" + %q, %q, %q
def read(path):
    try: return open(path, errors="replace").read()
    except OSError as problem: return type(problem).__name__
def knock(family, address, kind=socket.SOCK_STREAM, protocol=0):
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(2); s.connect(address); s.sendall(b"inside")
        return "reached"
    except OSError: return "refused"`, home, os.Getpid(), strings.TrimPrefix(at[2][1], "127.0.0.1:"), abstract[1:], path, service), hits
}

// TestSetUIDProgram: a set-uid program in the session directory runs without
// its owner's id.
func TestSetUIDProgram(t *testing.T) {
	require(t, needRoot)
	dir := newDirIn(t, "/var/tmp")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	idProgram, err := exec.LookPath("id")
	if err != nil {
		t.Skipf("no program id: %v", err)
	}
	data, err := os.ReadFile(idProgram)
	if err != nil {
		t.Fatal(err)
	}
	path := dir + "/id-as-root"
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("setpriv", "--reuid=65534", "--clear-groups", path, "-u").Output()
	if err != nil || strings.TrimSpace(string(out)) != "0" {
		t.Fatalf("control: outside it gives %q, %v", out, err)
	}
	for _, m := range everyMode {
		s := open(t, inMode(t, m), at(dir))
		s.shows(`subprocess.run(["./id-as-root", "-u"], capture_output=True, text=True).stdout.strip() == str(os.getuid())`, "True")
	}
}
