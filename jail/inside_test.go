package jail

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"cellblock/jail/internal/require"
	"cellblock/jail/plan"
	"cellblock/jail/seccomp"
	"cellblock/profiles"
)

// What a user's program relies on inside, in both trees.
func TestProgramsWorkInside(t *testing.T) {
	cases := []struct{ name, code, want string }{
		{"pty", `import os, pty
m, s = os.openpty(); os.write(s, b"x\n"); print(os.read(m, 9), os.ttyname(s).startswith("/dev/pts/"))`, `b'x\r\n' True`},
		{"pty spawn", `import pty, os
pid, fd = pty.fork()
if pid == 0: os.execv("/bin/sh", ["sh", "-c", "tty > /dev/null && echo on a terminal"])
print(os.read(fd, 100).decode().strip())`, "on a terminal"},
		{"multiprocessing", `import multiprocessing as mp
q = mp.Queue(); lock = mp.Lock()
with lock: q.put("through")
print(q.get(timeout=5), mp.Pool(2).map(abs, [-1, -2]))`, "through [1, 2]"},
		{"threads", `import threading
seen = []
ts = [threading.Thread(target=seen.append, args=(i,)) for i in range(32)]
[t.start() for t in ts]; [t.join() for t in ts]; print(len(seen))`, "32"},
		{"tempfile", `import tempfile, os
with tempfile.TemporaryDirectory() as d: print(d.startswith("/tmp/"), os.path.isdir(d))`, "True True"},
		{"home", `import pathlib
p = pathlib.Path.home() / ".cache" / "probe"; p.parent.mkdir(parents=True); p.write_text("x"); print(p.read_text())`, "x"},
		{"subprocess", `import subprocess
print(subprocess.run("echo hi > /dev/null && echo ok", shell=True, capture_output=True, text=True).stdout.strip())`, "ok"},
		{"asyncio", `import asyncio, time
async def main(): return await asyncio.to_thread(lambda: "woke")
print(asyncio.run(main()))`, "woke"},
		{"loopback", `import socket
a = socket.create_server(("127.0.0.1", 0)); b = socket.create_connection(a.getsockname()); print(a.accept()[1] == b.getsockname())`, "True"},
		{"git", `import subprocess
sh = lambda c: subprocess.run(c, shell=True, capture_output=True, text=True)
sh("git init -q r && cd r && git -c user.name=n -c user.email=e@x commit -q --allow-empty -m m")
r = sh("cd r && git status --porcelain"); print(r.returncode, r.stderr)
print(sh("cd r && git worktree add -q ../w && cd ../w && git log --oneline | wc -l").stdout.strip())`, "0 \n1"},
		{"rename between directories", `import os
os.makedirs("a"); os.makedirs("b"); open("a/f", "w").write("1"); os.rename("a/f", "b/f"); os.link("b/f", "a/g"); os.truncate("a/g", 0); print(os.stat("b/f").st_size)`, "0"},
		{"shared memory", `from multiprocessing import shared_memory
s = shared_memory.SharedMemory(create=True, size=4096); s.buf[0] = 7; o = shared_memory.SharedMemory(s.name); print(o.buf[0]); o.close(); s.close(); s.unlink()`, "7"},
		{"descriptors", `import os
fds = []
for n in os.listdir("/proc/self/fd"):
    try: os.readlink("/proc/self/fd/" + n); fds.append(int(n))
    except OSError: pass
print(sorted(fds))`, "[0, 1, 2]"},
		{"zombies", `import subprocess, os, time
for _ in range(50): subprocess.run(["sh", "-c", "(sleep 0.05 &) ; exit 0"])
time.sleep(0.5)
print(sum(open(f"/proc/{d}/stat").read().rsplit(")", 1)[1].split()[0] == "Z" for d in os.listdir("/proc") if d.isdigit()))`, "0"},
		{"killing pid 1", `import os, signal, time
for _ in range(300):
    for s in range(1, 65):
        try: os.kill(1, s)
        except OSError: pass
time.sleep(0.2); print("alive")`, "alive"},
		{"processor count", `import os; print(os.path.exists("/sys/devices/system/cpu/online"), os.cpu_count() > 0)`, "True True"},
	}
	for _, tree := range []TreeAccess{TreeReadOnly, TreeWritable} {
		for _, c := range cases {
			t.Run(string(tree)+"/"+c.name, func(t *testing.T) {
				if got := py(t, tree, c.code); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		}
	}
}

const tryWrite = `import errno, os
try: open("/etc/cellblock-probe", "w").close(); print("written"); os.unlink("/etc/cellblock-probe")
except OSError as e: print(errno.errorcode[e.errno])`

func TestReadOnlyTreeRefusesWithEROFS(t *testing.T) {
	if got := py(t, TreeReadOnly, tryWrite); got != "EROFS" {
		t.Errorf("write to /etc: %s, want EROFS", got)
	}
}

// The rights of the user on the host decide, also for root, whose files belong
// to the worker's id inside.
func TestWritableTreeFollowsRights(t *testing.T) {
	want := "EACCES"
	if os.Geteuid() == 0 {
		want = "written"
	}
	if got := py(t, TreeWritable, tryWrite); got != want {
		t.Errorf("write to /etc: %s, want %s", got, want)
	}
}

func TestMetadataOfTheTreeIsRefused(t *testing.T) {
	got := py(t, TreeReadOnly, `import errno, os
for f in (lambda: os.chmod("/etc/hostname", 0o777), lambda: os.utime("/etc/hostname"), lambda: os.chown("/etc/hostname", os.getuid(), -1),
          lambda: os.setxattr("/etc/hostname", "user.x", b"1")):
    try: f(); print("done")
    except OSError as e: print(errno.errorcode[e.errno])`)
	for _, line := range strings.Fields(got) {
		if line != "EROFS" && line != "EPERM" {
			t.Errorf("changing metadata: %s, want a refusal", line)
		}
	}
}

func TestHiddenFilesAndBinds(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home dir ü")
	secret := filepath.Join(home, "secret")
	session := filepath.Join(home, "state", "sessions", "s1")
	for _, d := range []string{filepath.Join(home, "keys"), session} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{secret, filepath.Join(home, "keys", "id"), filepath.Join(home, "state", "token")} {
		if err := os.WriteFile(f, []byte("canary"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec := testSpec(t, TreeWritable, python, "-I", "-c", `import os, sys
home, session = sys.argv[1:]
for ask in lambda: open(home + "/secret").read(), lambda: os.listdir(home + "/keys"), lambda: os.listdir(home + "/state"), lambda: open(home + "/keys/id"), lambda: os.chmod(home + "/secret", 0o777):
    try: print(ask())
    except OSError as problem: print(problem.errno, end=" ")
print()
open(session + "/made", "w").write("1")
print(open("/etc/passwd").read().strip(), open("/run/given").read())`, home, session)
	// The test's own directory lies in /tmp, which is private: show it as a bind.
	spec.Binds = append(spec.Binds, Bind{Source: home, Target: home, OwnerUID: os.Geteuid(), OwnerGID: os.Getegid(), Reason: "the test's files"},
		Bind{Source: session, Target: session, Write: true, OwnerUID: os.Geteuid(), OwnerGID: os.Getegid(), Reason: "session"})
	spec.Hide = []Hide{{Path: secret, Reason: "secret"}, {Path: filepath.Join(home, "keys"), Reason: "keys"},
		{Path: filepath.Join(home, "state"), Reason: "the launcher's state"}, {Path: filepath.Join(home, "missing"), Reason: "nothing there"}}
	spec.Files = []File{{Path: "/etc/passwd", Content: []byte("me:x:1:1::/tmp/home:/bin/sh\n"), Reason: "account"}, {Path: "/run/given", Content: []byte("given"), Reason: "given"}}
	got := runSpec(t, spec)
	want := "13 13 13 2 30 \nme:x:1:1::/tmp/home:/bin/sh given\n"
	if got.out != want {
		t.Fatalf("%s: got %q, want %q; %s", got.exit.Cause(), got.out, want, got.err)
	}
	if _, err := os.Stat(filepath.Join(session, "made")); err != nil {
		t.Error(err)
	}
}

// A privileged launcher runs sessions of other people: what the worker makes in
// the session directory belongs to its owner.
func TestSessionOfAnotherOwner(t *testing.T) {
	if !Probe().Privileged {
		require.Skip(t, string(Root), "needs to give a directory to another owner")
	}
	spec := testSpec(t, TreeReadOnly, python, "-I", "-c", `import os
open("old", "a").write("2"); open("made", "w").write("1"); print(os.stat("old").st_uid == os.getuid())`)
	old := filepath.Join(spec.Dir, "old")
	if err := os.WriteFile(old, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{old, spec.Dir} {
		if err := os.Chown(p, 1234, 4321); err != nil {
			t.Fatal(err)
		}
	}
	spec.Binds[0].OwnerUID, spec.Binds[0].OwnerGID = 1234, 4321
	if got := runSpec(t, spec); strings.TrimSpace(got.out) != "True" {
		t.Fatalf("%s: %s %s", got.exit.Cause(), got.out, got.err)
	}
	info, err := os.Stat(filepath.Join(spec.Dir, "made"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(info); uid != 1234 {
		t.Errorf("made belongs to %d, want 1234", uid)
	}
}

// The session directory may lie on another file system and have any name.
func TestSessionOnAnotherFileSystem(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "ein Ordner – 文件 ")
	if err != nil {
		require.Skip(t, "shm", err.Error())
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	spec := testSpecIn(dir, TreeReadOnly, python, "-I", "-c", `open("f", "w").write("1"); import os; print(os.getcwd())`)
	if got := runSpec(t, spec); strings.TrimSpace(got.out) != dir {
		t.Fatalf("%s: %s %s", got.exit.Cause(), got.out, got.err)
	}
	if _, err := os.Stat(filepath.Join(dir, "f")); err != nil {
		t.Error(err)
	}
}

// A symbolic link put where the session directory was must not be followed.
func TestSwappedSessionDirectoryIsRefused(t *testing.T) {
	spec := testSpec(t, TreeReadOnly, "/bin/true")
	real := spec.Dir + "-real"
	if err := os.Rename(spec.Dir, real); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", spec.Dir); err != nil {
		t.Fatal(err)
	}
	p, err := Compile(spec, Probe())
	if err != nil {
		t.Fatal(err)
	}
	process, err := Start(context.Background(), p, StartOptions{})
	if err == nil {
		process.Wait()
		t.Fatal("started in a directory that was swapped for a link to /etc")
	}
	var step *StepError
	if !errors.As(err, &step) || !errors.Is(err, syscall.ELOOP) {
		t.Errorf("%v, want a step error with ELOOP", err)
	}
}

// A witness that sees a forbidden act come through ends the start.
func TestFailingWitnessEndsTheStart(t *testing.T) {
	spec := testSpec(t, TreeWritable, "/bin/sh", "-c", "echo ran > ran")
	p, err := Compile(spec, Probe())
	if err != nil {
		t.Fatal(err)
	}
	p.Witness = append(p.Witness, plan.Check{Name: "canary", Act: "create", Arg: "/tmp/canary", Want: []string{"EROFS"}, Reason: "a writable place taken for a forbidden one"})
	_, err = Start(context.Background(), p, StartOptions{})
	var witness *WitnessError
	if !errors.As(err, &witness) || witness.Check.Name != "canary" || witness.Got != "done" {
		t.Errorf("%v, want the canary's witness error", err)
	}
	if _, err := os.Stat(filepath.Join(spec.Dir, "ran")); err == nil {
		t.Error("the worker ran although the witness failed")
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	spec := testSpec(t, TreeReadOnly, "/bin/sh", "-c", "echo ran > ran")
	p, err := Compile(spec, Probe())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Start(ctx, p, StartOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if _, err := os.Stat(filepath.Join(spec.Dir, "ran")); err == nil {
		t.Error("the worker ran although the start was cancelled")
	}
}

func TestMissingCommandIsAStepError(t *testing.T) {
	p, err := Compile(testSpec(t, TreeReadOnly, "/no/such/python"), Probe())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(context.Background(), p, StartOptions{})
	var step *StepError
	if !errors.As(err, &step) || step.Step.Op != plan.OpWorker || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v, want the worker's step with ENOENT", err)
	}
}

// Stage, witness and an ordinary program live under the strict filter too.
func TestStrictProfileStarts(t *testing.T) {
	document, err := profiles.Seccomp("strict")
	if err != nil {
		t.Fatal(err)
	}
	spec := testSpec(t, TreeReadOnly, python, "-I", "-c", `import subprocess, threading, sqlite3, ssl
threading.Thread(target=print, args=("thread",)).start()
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())`)
	if spec.Seccomp, err = seccomp.Load("strict", document); err != nil {
		t.Fatal(err)
	}
	got := runSpec(t, spec)
	if got.exit.Cause() != "exit code 0" || !strings.Contains(got.out, "child") || !strings.Contains(got.out, "thread") {
		t.Errorf("%s: %s %s", got.exit.Cause(), got.out, got.err)
	}
}

// With the host's network the jail still reaches no abstract socket of the host,
// where Landlock can scope them.
func TestHostNetwork(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	name := "@cellblock-test-" + strconv.Itoa(os.Getpid())
	abstract, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	spec := testSpec(t, TreeWritable, python, "-I", "-c", `import socket, sys, errno
socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5); print("tcp")
s = socket.socket(socket.AF_UNIX)
try: s.connect("\0" + sys.argv[2][1:]); print("connected")
except OSError as e: print(errno.errorcode[e.errno])`, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), name)
	spec.Network = NetHost
	want := "tcp\nEPERM\n"
	if Probe().LandlockABI < 6 {
		require.Skip(t, string(Landlock), "abstract sockets cannot be scoped before ABI 6")
	}
	if got := runSpec(t, spec); got.out != want {
		t.Errorf("got %q, want %q (%s)", got.out, want, got.err)
	}
}
