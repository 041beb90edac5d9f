package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/kernel"
)

// observedCall is one system call made by number, and what the launcher must tell of it.
type observedCall struct {
	name string
	nr   int
	args string   // Python; p(name) is a path in the place, d a descriptor of it, fd one of f
	ops  []string // "kind name", in order; none for a call that the profile has libc do without
}

// observedCalls has a row for each call that the observer reads. In the place lie: f,
// a file; d, a directory; l, a link to f.
var observedCalls = []observedCall{
	{"openat", unix.SYS_OPENAT, `d, b"new", O_WRONLY | O_CREAT, 0o644`, []string{"write new"}},
	{"openat to truncate", unix.SYS_OPENAT, `AT, p("l"), O_RDONLY | O_TRUNC, 0`, []string{"truncate f"}},
	{"openat through a link", unix.SYS_OPENAT, `AT, p("l"), O_RDWR, 0`, []string{"write f"}},
	{"openat to create", unix.SYS_OPENAT, `AT, p("d/../new"), O_RDONLY | O_CREAT, 0o644`, []string{"create new"}},
	{"openat without a name", unix.SYS_OPENAT, `AT, p("d"), O_TMPFILE | O_RDWR, 0o644`, []string{"write d/(without a name)"}},
	{"openat2", unix.SYS_OPENAT2, `AT, p("new"), (c_uint64 * 3)(O_WRONLY | O_CREAT, 0o644, 0), 24`, nil},
	{"mkdirat", unix.SYS_MKDIRAT, `d, b"new", 0o755`, []string{"mkdir new"}},
	{"mknodat", unix.SYS_MKNODAT, `AT, p("new"), 0o10644, 0`, []string{"create new"}},
	{"symlinkat", unix.SYS_SYMLINKAT, `b"/etc/passwd", d, b"new"`, []string{"symlink new"}},
	{"linkat", unix.SYS_LINKAT, `AT, p("f"), d, b"new", 0`, []string{"link new"}},
	{"unlinkat", unix.SYS_UNLINKAT, `d, b"l", 0`, []string{"remove l"}},
	{"unlinkat of a directory", unix.SYS_UNLINKAT, `AT, p("d/"), AT_REMOVEDIR`, []string{"rmdir d"}},
	{"renameat2", unix.SYS_RENAMEAT2, `AT, p("f"), d, b"new", 0`, []string{"rename-from f", "rename-to new"}},
	{"renameat2 to exchange", unix.SYS_RENAMEAT2, `d, b"f", d, b"d", 2`, []string{"rename-from f", "rename-to d"}},
	{"renameat", unix.SYS_RENAMEAT, `AT, p("f"), AT, p("l")`, []string{"rename-from f", "rename-to l"}},
	{"truncate", unix.SYS_TRUNCATE, `p("l"), c_long(3)`, []string{"truncate f"}},
	{"fchmod", unix.SYS_FCHMOD, `fd, 0o600`, []string{"chmod f"}},
	{"fchmodat", unix.SYS_FCHMODAT, `d, b"l", 0o600`, []string{"chmod f"}},
	{"fchmodat2", unix.SYS_FCHMODAT2, `d, b"f", 0o600, NOFOLLOW`, nil},
	{"fchown", unix.SYS_FCHOWN, `fd, uid, gid`, []string{"chown f"}},
	{"fchownat", unix.SYS_FCHOWNAT, `d, b"l", uid, gid, NOFOLLOW`, []string{"chown l"}},
	{"fchownat of a descriptor", unix.SYS_FCHOWNAT, `fd, b"", uid, gid, AT_EMPTY_PATH`, []string{"chown f"}},
	{"utimensat", unix.SYS_UTIMENSAT, `d, b"f", None, 0`, []string{"utime f"}},
	{"utimensat of a descriptor", unix.SYS_UTIMENSAT, `fd, None, None, 0`, []string{"utime f"}},
	{"setxattr", unix.SYS_SETXATTR, `p("l"), b"user.y", b"1", 1, 0`, []string{"xattr f"}},
	{"lsetxattr", unix.SYS_LSETXATTR, `p("f"), b"user.y", b"1", 1, 0`, []string{"xattr f"}},
	{"fsetxattr", unix.SYS_FSETXATTR, `fd, b"user.y", b"1", 1, 0`, []string{"xattr f"}},
	{"removexattr", unix.SYS_REMOVEXATTR, `p("f"), b"user.x"`, []string{"xattr f"}},
	{"lremovexattr", unix.SYS_LREMOVEXATTR, `p("f"), b"user.x"`, []string{"xattr f"}},
	{"fremovexattr", unix.SYS_FREMOVEXATTR, `fd, b"user.x"`, []string{"xattr f"}},
	{"ioctl", unix.SYS_IOCTL, fmt.Sprintf(`fd, %d, byref(c_long(flags(fd) | 0x40))`, unix.FS_IOC_SETFLAGS), []string{"chmod f"}},
	{"bind", unix.SYS_BIND, `socket.socket(socket.AF_UNIX).detach(), b"\x01\x00" + p("new") + b"\0", 3 + len(p("new"))`, []string{"create new"}},
}

// oldCalls are those that arm64 does not have.
func oldCalls() []observedCall {
	if runtime.GOARCH != "amd64" {
		return nil
	}
	return []observedCall{
		{"open", 2, `p("new"), O_WRONLY | O_CREAT, 0o644`, []string{"write new"}},
		{"creat", 85, `p("l"), 0o644`, []string{"write f"}},
		{"mkdir", 83, `p("new"), 0o755`, []string{"mkdir new"}},
		{"mknod", 133, `p("new"), 0o100644, 0`, []string{"create new"}},
		{"symlink", 88, `p("f"), p("new")`, []string{"symlink new"}},
		{"link", 86, `p("f"), p("new")`, []string{"link new"}},
		{"unlink", 87, `p("l")`, []string{"remove l"}},
		{"rmdir", 84, `p("d")`, []string{"rmdir d"}},
		{"rename", 82, `p("f"), p("d/new")`, []string{"rename-from f", "rename-to d/new"}},
		{"chmod", 90, `p("l"), 0o600`, []string{"chmod f"}},
		{"chown", 92, `p("l"), uid, gid`, []string{"chown f"}},
		{"lchown", 94, `p("l"), uid, gid`, []string{"chown l"}},
		{"utime", 132, `p("l"), None`, []string{"utime f"}},
		{"utimes", 235, `p("f"), None`, []string{"utime f"}},
		{"futimesat", 261, `d, b"f", None`, []string{"utime f"}},
	}
}

const observedPrelude = `
import ctypes, os, socket
from ctypes import byref, c_long, c_uint64
from os import O_WRONLY, O_RDWR, O_RDONLY, O_CREAT, O_TRUNC, O_TMPFILE
libc, AT, NOFOLLOW, AT_REMOVEDIR, AT_EMPTY_PATH = ctypes.CDLL(None, use_errno=True), -100, 0x100, 0x200, 0x1000
libc.syscall.restype = c_long
uid, gid = os.getuid(), os.getgid()
def flags(fd):  # those that a file has; no other is taken away
    import fcntl, struct
    return struct.unpack("l", fcntl.ioctl(fd, 0x80086601, bytes(8)))[0]
def make(nr, place, *build):
    global d, fd
    d, fd = os.open(place, os.O_RDONLY), os.open(place + "/f", os.O_RDONLY)
    try:
        done = libc.syscall(c_long(nr), *build[0](lambda name: (place + "/" + name).encode()))
    finally:
        os.close(d), os.close(fd)
    return 0 if done >= 0 else ctypes.get_errno()
`

// outsidePlace makes what the rows of observedCalls work on: files of the launcher's
// user, which a session could change with that user's rights.
func outsidePlace(t *testing.T, parent string) string {
	t.Helper()
	place := newDirIn(t, parent)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(place, "f"), []byte("text of f"), 0o644))
	must(os.Mkdir(filepath.Join(place, "d"), 0o755))
	must(os.Symlink("f", filepath.Join(place, "l")))
	must(unix.Setxattr(filepath.Join(place, "f"), "user.x", []byte("1"), 0))
	return place
}

// TestObserverReadsEachCall makes each system call by its number: in mode report it
// is done, and told as what it does; under enforce it is told in the same words, and
// refused.
func TestObserverReadsEachCall(t *testing.T) {
	require(t, needUserns, needNotify)
	for _, in := range []string{"report", "enforce"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			s := open(t, mode(in))
			s.ok(observedPrelude)
			for _, c := range append(observedCalls, oldCalls()...) {
				place := outsidePlace(t, "/var/tmp")
				r := s.ok(fmt.Sprintf("make(%d, %q, lambda p: (%s,))", c.nr, place, c.args))
				errno := r.value()
				if c.ops == nil {
					if errno != fmt.Sprint(int(unix.ENOSYS)) || len(r.violations()) != 0 {
						t.Errorf("%s: errno %s, told %+v, of a call that the profile does not let through", c.name, errno, r.violations())
					}
					continue
				}
				if in == "report" && errno != "0" {
					t.Errorf("%s: not done, errno %s", c.name, errno)
				}
				if in == "enforce" && errno != fmt.Sprint(int(unix.EROFS)) && errno != fmt.Sprint(int(unix.EACCES)) {
					t.Errorf("%s: errno %s, want a refusal", c.name, errno)
				}
				var got []string
				for _, v := range r.violations() {
					if path, ok := strings.CutPrefix(v.Path, place+"/"); ok && v.Source == "os" && v.Count == 1 {
						got = append(got, v.Op+" "+path)
					} else {
						got = append(got, fmt.Sprintf("%+v", v))
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(c.ops) {
					t.Errorf("%s: told %q, want %q", c.name, got, c.ops)
				}
			}
		})
	}
}

// TestObserverSeesDescendants looks where Python's own hook cannot: at children,
// their children after they have ended, threads, native code, programs, and paths
// by way of descriptors, links and /proc.
func TestObserverSeesDescendants(t *testing.T) {
	require(t, needUserns, needNotify)
	for _, in := range []string{"report", "enforce"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			s := open(t, mode(in))
			place := outsidePlace(t, "/var/tmp")
			s.ok(observedPrelude + fmt.Sprintf("import subprocess, sqlite3, threading, time\nplace = %q", place))
			for _, c := range []struct{ code, want, program string }{
				{`subprocess.run(["sh", "-c", "echo x > " + place + "/by-shell"], stderr=-3);`, "write by-shell", "sh"},
				{`subprocess.run(["cp", "/etc/hostname", place + "/by-cp"], stderr=-3);`, "write by-cp", "cp"},
				{`subprocess.run(["sh", "-c", "(sleep 0.2; mkdir " + place + "/by-orphan) & exit"], stderr=-3); time.sleep(0.6)`, "mkdir by-orphan", "mkdir"},
				{`subprocess.run(["touch", place + "/d/../by-dots"], stderr=-3);`, "write by-dots", "touch"},
				{`subprocess.run(["touch", "by-cwd"], cwd=place, stderr=-3);`, "write by-cwd", "touch"},
				{`subprocess.run(["touch", "/proc/self/cwd/by-proc"], cwd=place, stderr=-3);`, "write by-proc", "touch"},
				{`t = threading.Thread(target=lambda: libc.mkdir((place + "/by-thread").encode(), 0o755)); t.start(); t.join()`, "mkdir by-thread", "python"},
				{`os.symlink(place, "out"); libc.creat(b"out/by-link", 0o644);`, "write by-link", "python"},
			} {
				r := s.ok(c.code)
				path := filepath.Join(place, strings.Fields(c.want)[1])
				found := false
				for _, v := range r.violations() {
					found = found || v.Op+" "+strings.TrimPrefix(v.Path, place+"/") == c.want && strings.Contains(filepath.Base(v.Program), c.program[:2])
				}
				if !found {
					t.Errorf("%s: %+v", c.code, r.violations())
				}
				if _, err := os.Lstat(path); (err == nil) != (in == "report") {
					t.Errorf("%s: %s: %v", c.code, path, err)
				}
			}
		})
	}
}

// TestObserverIsSilent about what the policy allows, about reading, and about what
// cannot come about.
func TestObserverIsSilent(t *testing.T) {
	require(t, needUserns, needNotify)
	for _, in := range []string{"report", "enforce"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			s := open(t, mode(in))
			s.ok("import os, shutil, subprocess, tempfile, socket, sqlite3")
			for _, code := range []string{
				`open("in", "w").write("x"); os.rename("in", "there"); os.unlink("there")`,
				`os.makedirs("/usr/lib", exist_ok=True); os.makedirs("a/b/c"); shutil.rmtree("a")`,
				`with tempfile.TemporaryDirectory() as d: open(d + "/f", "w").write("x")`,
				`subprocess.run("ls -lR /etc >/dev/null 2>&1; cat /etc/passwd > copy; sort copy | uniq > sorted; rm copy sorted; mkdir -p /usr/lib /etc", shell=True);`,
				`sqlite3.connect("db").execute("create table t(x)");`,
				`os.path.exists("/etc/passwd"), open("/etc/hostname").read();`,
				`a, b = socket.socketpair(); a.sendmsg([b"x"]); b.recv(1); u = socket.socket(socket.AF_UNIX); u.bind("sock"); u.close(); os.unlink("sock")`,
				`import pty; pid, fd = pty.fork()` + "\n" + `if pid == 0: os.execvp("true", ["true"])` + "\n" + `os.waitpid(pid, 0); os.close(fd)`,
				`try: os.rmdir("/etc/no-such-directory")` + "\n" + `except OSError: pass`,
				`subprocess.run(["git", "init", "-q", "repo"]); subprocess.run("cd repo && git add . && git status >/dev/null", shell=True); shutil.rmtree("repo")`,
			} {
				if r := s.ok(code); len(r.violations()) != 0 {
					t.Errorf("%s: %+v", code, r.violations())
				}
			}
		})
	}
}

// TestAConnectionIsNoMutation: it is told of by its address, and does not count among
// the writes outside the session.
func TestAConnectionIsNoMutation(t *testing.T) {
	require(t, needUserns, needNotify)
	s := open(t, mode("enforce"))
	r := s.ok(`import socket
try: socket.create_connection(("192.0.2.1", 80), 1)
except OSError: pass`)
	found := r.violations()
	if len(found) != 1 || found[0].Op != "connect" || found[0].Path != "192.0.2.1:80" || found[0].Source != "os" {
		t.Errorf("%+v", found)
	}
	if got := r.Details.AuditPolicy; got != "allowed 0 mutations" {
		t.Errorf("auditPolicy %q", got)
	}
}

// TestMessagesAreToldOfByWhereTheyGo: Linux takes addresses of messages that are longer than
// any, and without a family, for what they say.
func TestMessagesAreToldOfByWhereTheyGo(t *testing.T) {
	require(t, needUserns, needNotify)
	s := open(t, mode("report"), document(t, "version: 1\nname: alone\nfs: {}\nnet: {mode: none, reason: nobody}\n"))
	s.ok(`import ctypes, socket, struct
libc = ctypes.CDLL(None)
class IOV(ctypes.Structure): _fields_ = [("base", ctypes.c_char_p), ("length", ctypes.c_size_t)]
class Message(ctypes.Structure): _fields_ = [("name", ctypes.c_void_p), ("length", ctypes.c_uint), ("vector", ctypes.POINTER(IOV)), ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("size", ctypes.c_size_t), ("flags", ctypes.c_int)]
def address(family, last): return ctypes.create_string_buffer(struct.pack("<H", family) + struct.pack(">H", 9) + socket.inet_aton("192.0.2.%d" % last), 300)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def send(kind, family, last, length, s=u, flags=0):
    a = address(family, last)
    if kind == "to": return libc.sendto(s.fileno(), b"x", 1, flags, a, length)
    v = IOV(b"x", 1)
    m = Message(ctypes.addressof(a), length, ctypes.pointer(v), 1, None, 0, 0)
    if kind == "message": return libc.sendmsg(s.fileno(), ctypes.byref(m), flags)
    whole = (ctypes.c_char * 64)(*bytes(m))
    return libc.sendmmsg(s.fileno(), whole, 1, flags)
def fast(kind, last, length):
    with socket.socket() as s:
        s.setblocking(False)
        return send(kind, 2, last, length, s, 0x20000000)
`)
	for i, c := range []struct {
		code string
		told bool
	}{
		{`send("to", 2, %d, 16)`, true},
		{`send("to", 0, %d, 16)`, true}, // AF_UNSPEC
		{`send("message", 2, %d, 16)`, true},
		{`send("message", 0, %d, 16)`, true},
		{`send("message", 2, %d, 300)`, true},
		{`send("several", 2, %d, 300)`, true},
		{`send("to", 2, %d, 300)`, false},     // EINVAL
		{`send("message", 2, %d, -1)`, false}, // EINVAL
		{`fast("to", %d, 16)`, true},
		{`fast("message", %d, 200)`, true},
		{`libc.connect(u.fileno(), address(0, %d), 16)`, false}, // it ends a connection
	} {
		r := s.ok(fmt.Sprintf(c.code, i+1))
		told := r.violations()
		want := fmt.Sprintf("192.0.2.%d:9", i+1)
		if (len(told) == 1 && told[0].Op == "connect" && told[0].Path == want) != c.told || !c.told && len(told) != 0 {
			t.Errorf("%s: told of %+v, want %t", c.code, told, c.told)
		}
	}
}

// TestObserverTellsOfWhatComesLast: what is done after a session's last reply is in
// its record all the same.
func TestObserverTellsOfWhatComesLast(t *testing.T) {
	require(t, needUserns, needNotify)
	log := filepath.Join(newDirIn(t, "/var/tmp"), "log.jsonl")
	s := open(t, mode("enforce"), func(o *kernel.Options) { o.Audit, o.State = log, []string{filepath.Dir(log)} })
	s.ok(`import subprocess; subprocess.Popen("while ! [ -e go ]; do sleep 0.01; done; mkdir /etc/cellblock-late 2>done", shell=True);`)
	write(t, s.dir+"/go", "")
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if text, _ := os.ReadFile(s.dir + "/done"); len(text) > 0 {
			break
		}
		if time.Since(begin) > hang {
			t.Fatal("the child has not come to its end")
		}
	}
	if err := s.kernel.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range readLog(t, log) {
		if r.Denial() && r.Op == "mkdir" && r.Target == "/etc/cellblock-late" && r.Source == "os" {
			return
		}
	}
	t.Errorf("not recorded:\n%s", readFile(t, log))
}

// TestObserverKnowsTheJailsOwnFiles: a version of a host's file that the session has
// for itself is kept by its mount alone, and still has its name.
func TestObserverKnowsTheJailsOwnFiles(t *testing.T) {
	require(t, needUserns, needNotify)
	for _, in := range []string{"report", "enforce"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			s := open(t, mode(in))
			for code, want := range map[string]string{
				`open("/etc/hosts", "r+")`:                               "write /etc/hosts",
				`import os; os.fchmod(os.open("/etc/hosts", 0), 0o777)`:  "chmod /etc/hosts",
				`import os; os.utime("/proc/self/root/etc/./hosts")`:     "utime /etc/hosts",
				`import os; os.chdir("/etc"); os.truncate("hosts", 100)`: "truncate /etc/hosts",
			} {
				r := s.run(code)
				found := r.violations()
				if len(found) != 1 || found[0].Op+" "+found[0].Path != want || found[0].Decision != "denied" || found[0].Rule != "ground.file" {
					t.Errorf("%s: %+v", code, found)
				}
				if r.Details.Error == nil {
					t.Errorf("%s: it was done", code)
				}
			}
		})
	}
}
