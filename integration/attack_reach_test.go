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
func TestAttacksOnSockets(t *testing.T) {
	family := func(name string, number, kind, protocol int, where control) attack {
		return attack{name: name, where: where, refused: []string{"EPERM", "EACCES", "EAFNOSUPPORT"},
			code: fmt.Sprintf("verdict = attempt(raw, %d, %d, %d, %d)", unix.SYS_SOCKET, number, kind, protocol)}
	}
	rows := []attack{
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
		family("raw ICMP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, namespaced),
		{name: "TCP_ULP", refused: no, code: `verdict = attempt(socket.socket().setsockopt, 6, 31, b"tls")`},
		{name: "UDP_ENCAP", refused: no, code: `verdict = attempt(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt, 17, 100, struct.pack("i", 2))`},
	}
	runAttacks(t, rows, everyMode)
}

// TestAttacksOnProc: what /proc and /sys must not show or take.
func TestAttacksOnProc(t *testing.T) {
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
	runAttacks(t, []attack{
		open("/proc/sys/kernel/core_pattern", "O_WRONLY", asRoot),
		open("/proc/sys/kernel/hostname", "O_WRONLY", asRoot),
		open("/proc/sys/vm/overcommit_memory", "O_WRONLY", asRoot),
		open("/proc/sysrq-trigger", "O_WRONLY", asRoot),
		open("/proc/kcore", "O_RDONLY", asRoot),
		told("/proc/kmsg"),
		open("/proc/sys/kernel/modprobe", "O_WRONLY", asRoot),
		open("/proc/sys/fs/binfmt_misc/register", "O_WRONLY", asRoot),
		open("/sys/kernel/uevent_helper", "O_WRONLY", asRoot),
		open("/sys/fs/cgroup/cgroup.procs", "O_WRONLY", asRoot),
		told("/proc/timer_list"),
		told("/proc/modules"),
		told("/proc/interrupts"),
		{name: "memory of the parent", refused: hidden, code: `verdict = attempt(os.open, f"/proc/{os.getppid()}/mem", os.O_RDONLY)`},
		{name: "environment of the parent", refused: hidden, code: `verdict = attempt(os.open, f"/proc/{os.getppid()}/environ", os.O_RDONLY)`},
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
	}, everyMode)
}

// needResource asks for CAP_SYS_RESOURCE, which a root in a container may lack.
var needResource = register("cap-sys-resource", func() string {
	set, err := strconv.ParseUint(statusField(os.Getpid(), "CapEff"), 16, 64)
	if err != nil || set&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return "the tests run without CAP_SYS_RESOURCE"
	}
	return ""
})

// TestReachOfASession: what lives on the host beside a session, with a canary of
// each kind that the test itself reaches, and the session must not.
func TestReachOfASession(t *testing.T) {
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
	hits := new(atomic.Int64)
	for _, at := range [][2]string{{"unix", abstract}, {"unix", newDir(t) + "/s"}, {"tcp", "127.0.0.1:0"}} {
		address := serving(t, at[0], at[1], func(c net.Conn) {
			if data, _ := io.ReadAll(io.LimitReader(c, 6)); string(data) == "inside" {
				hits.Add(1)
			}
		})
		if at[0] == "tcp" {
			t.Setenv("CANARY_PORT", strings.TrimPrefix(address, "127.0.0.1:"))
		} else if at[1] != abstract {
			t.Setenv("CANARY_SOCKET", at[1])
		}
	}
	// Control: this process reaches each of them.
	for _, at := range [][2]string{{"unix", abstract}, {"unix", os.Getenv("CANARY_SOCKET")}, {"tcp", "127.0.0.1:" + os.Getenv("CANARY_PORT")}} {
		c, err := net.Dial(at[0], at[1])
		if err != nil {
			t.Fatalf("control: %v", err)
		}
		io.WriteString(c, "inside")
		c.Close()
	}
	for end := time.Now().Add(5 * time.Second); hits.Load() < 3 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if hits.Load() != 3 {
		t.Fatalf("control: %d of 3 connections arrived", hits.Load())
	}

	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			s := open(t, inMode(t, m))
			s.ok(attackTools + fmt.Sprintf(`
HOME, PID, PORT, ABSTRACT, SOCKET = %q, %d, %s, "\0" + %q, %q
def read(path):
    try: return open(path).read()
    except OSError as problem: return type(problem).__name__
def knock(family, address, kind=socket.SOCK_STREAM, protocol=0):
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(2); s.connect(address); s.sendall(b"inside")
        return "reached"
    except OSError: return "refused"`, home, os.Getpid(), os.Getenv("CANARY_PORT"), abstract[1:], os.Getenv("CANARY_SOCKET")))
			for _, c := range [][3]string{
				{"the launcher's environment", `"canary" in str(dict(os.environ))`, "False"},
				{"environments in /proc", `any("canary-in-the" in read(f"/proc/{p}/environ") for p in os.listdir("/proc") if p.isdigit())`, "False"},
				{"ssh keys", `"canary" in read(HOME + "/.ssh/id_canary")`, "False"},
				{"cloud credentials", `"canary" in read(HOME + "/.aws/credentials")`, "False"},
				{"netrc", `"canary" in read(HOME + "/.netrc")`, "False"},
				{"shadow", `read("/etc/shadow") in ("PermissionError", "FileNotFoundError", "")`, "True"},
				{"shared memory", `[n for n in os.listdir("/dev/shm") if "canary" in n]`, "[]"},
				{"abstract socket", `knock(socket.AF_UNIX, ABSTRACT)`, "'refused'"},
				{"path socket", `knock(socket.AF_UNIX, SOCKET)`, "'refused'"},
				{"docker, bus and agent sockets", `[p for p in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/containerd/containerd.sock") if os.path.exists(p)]`, "[]"},
				{"the launcher's process", `attempt(os.kill, PID, 0)`, "'ESRCH'"},
				{"every process", `sorted({attempt(os.kill, p, 0) for p in range(500, 33000) if not os.path.exists(f"/proc/{p}")})`, "['ESRCH']"},
				{"raw disks", `[d for d in os.listdir("/dev") if d.startswith(("vd", "sd", "nvme", "mem", "kmsg", "kvm", "fuse", "mapper", "net"))]`, "[]"},
				{"descriptors", `sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1]`, "[0, 1, 2, 3]"},
				{"core dumps", `__import__("resource").getrlimit(4)`, "(0, 0)"},
				{"keyrings in /proc", `read("/proc/keys") in ("", "PermissionError", "FileNotFoundError")`, "True"},
				{"set-uid", `subprocess.run(["grep", "Eff", "/proc/self/status"], capture_output=True, text=True).stdout.split()[1]`, "'0000000000000000'"},
			} {
				t.Run(c[0], func(t *testing.T) { s.t = t; s.shows(c[1], c[2]) })
			}
			if m == "enforce" {
				t.Run("services on the host's loopback", func(t *testing.T) {
					s.t = t
					s.shows(`[knock(socket.AF_INET, ("127.0.0.1", PORT)), knock(socket.AF_INET, ("127.0.0.1", PORT), protocol=262), knock(socket.AF_INET6, ("::ffff:127.0.0.1", PORT)), knock(socket.AF_INET, ("0.0.0.0", PORT))]`,
						"['refused', 'refused', 'refused', 'refused']")
					s.shows(`[knock(socket.AF_INET, (a, 80)) for a in ("192.0.2.1", "169.254.169.254", "10.0.0.1")]`, "['refused', 'refused', 'refused']")
				})
				if hits.Load() != 3 {
					t.Errorf("%d connections from inside arrived", hits.Load()-3)
				}
			}
		})
	}
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

// TestSharedMemoryBetweenSessions: System V and POSIX objects by name stay in
// their session.
func TestSharedMemoryBetweenSessions(t *testing.T) {
	first, second := open(t), open(t)
	const make = attackTools + `
shmget = lambda flags: linux.shmget(0x5e11b10c, 4096, flags)
made = (shmget(0o1600) >= 0)
import multiprocessing.shared_memory as sm
block = sm.SharedMemory("canary-block", create=True, size=16)
made`
	first.shows(make, "True")
	second.shows(attackTools+`
found = linux.shmget(0x5e11b10c, 4096, 0) >= 0
found, os.path.exists("/dev/shm/canary-block")`, "(False, False)")
	first.shows(`(shmget(0) >= 0, os.path.exists("/dev/shm/canary-block"))`, "(True, True)")
}
