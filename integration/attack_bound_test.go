package integration

import (
	"strings"
	"testing"
	"time"

	"cellblock/integration/need"
	"cellblock/jail"
	"cellblock/kernel"
)

// boundAttack is an attempt to use up what all share, to run for ever, or to leave the
// launcher with something that it cannot deal with.
type boundAttack struct {
	name   string
	within string   // the control: the same act, within the bounds; its value is 'fine'
	code   string   // the attempt
	ends   []string // of which its reply tells one
	brief  bool     // the cell has a limit of a second, which is what ends it
	cgroup bool     // only a control group counts what it takes
}

// boundTools are what the attempts call. until does something until it fails, and says
// with what; it gives up where nothing stops it.
const boundTools = attackTools + `
import threading, time
kept = []
def until(act, most):
    try:
        for n in range(most): kept.append(act(n))
    except OSError as problem: return errno.errorcode[problem.errno]
    except (MemoryError, RuntimeError) as problem: return type(problem).__name__
    return "unbounded"
def fine(act, times=3):
    said = until(act, times)
    kept.clear()
    return "fine" if said == "unbounded" else said
MIB = 1 << 20
def fill(path):
    with open(path, "ab", 0) as f: f.write(bytes(MIB)); return None
def child(act=lambda: time.sleep(60)):
    pid = os.fork()
    if pid == 0:
        try: act()
        finally: os._exit(0)
    return pid
def reaped(pid): os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
def thread(_):
    t = threading.Thread(target=time.sleep, args=(0.2 if _ < 3 else 60,), daemon=True); t.start(); return t
def lengthen(f):
    f.write(bytes(MIB))
`

// outOfMemory are the ends of a session that wants more than its limit.
var outOfMemory = []string{"MemoryError", "memory limit", "ENOMEM"}

var boundAttacks = []boundAttack{
	// What all share.
	{name: "memory", within: `fine(lambda n: bytearray(b"x") * MIB)`, code: `until(lambda n: bytearray(b"x") * (16 * MIB), 200)`, ends: outOfMemory},
	{name: "memory of files without a name", cgroup: true, within: `fine(lambda n: os.write(os.memfd_create("a"), bytes(MIB)))`,
		code: `until(lambda n: (lambda fd: [os.write(fd, bytes(MIB)) for _ in range(30)])(os.memfd_create("a")), 100)`, ends: outOfMemory},
	{name: "memory that is shared", cgroup: true, within: `fine(lambda n: __import__("mmap").mmap(-1, MIB).write(bytes(MIB)))`,
		code: "import mmap\ndef take(n):\n    m = mmap.mmap(-1, 16 * MIB); m.write(b'x' * 16 * MIB); return m\nuntil(take, 200)", ends: outOfMemory},
	{name: "memory of many children", cgroup: true, within: `fine(lambda n: reaped(child(lambda: bytearray(MIB))))`,
		code: "def hog():\n    block = bytearray(b'x') * (32 * MIB); time.sleep(60)\nborn = [child(hog) for n in range(16)]; said = 'unbounded'\nfor n in range(200):\n    time.sleep(0.05)\n    if any(os.waitpid(p, os.WNOHANG)[0] for p in born): said = 'bounded'; break\nsaid", ends: append([]string{"'bounded'", "EAGAIN"}, outOfMemory...)},
	{name: "buffers of pipes", within: `fine(lambda n: os.pipe())`, code: "import fcntl\ndef pipe(n):\n    r, w = os.pipe(); fcntl.fcntl(w, 1031, MIB); os.set_blocking(w, False); os.write(w, bytes(MIB)); return r\nuntil(pipe, 5000)", ends: append([]string{"EMFILE", "EPERM"}, outOfMemory...)},
	{name: "buffers of sockets", within: `fine(lambda n: socket.socketpair())`, code: "def pair(n):\n    a, b = socket.socketpair(); a.setblocking(False); a.send(bytes(200000)); return a, b\nuntil(pair, 5000)", ends: append([]string{"EMFILE"}, outOfMemory...)},
	{name: "the space of /tmp", within: `fine(lambda n: fill("/tmp/a"))`, code: `until(lambda n: fill("/tmp/a"), 100)`, ends: []string{"ENOSPC", "short"}},
	{name: "the space of /dev/shm", within: `fine(lambda n: fill("/dev/shm/a"))`, code: `until(lambda n: fill("/dev/shm/a"), 100)`, ends: []string{"ENOSPC", "short"}},
	{name: "the space of /run", within: `fine(lambda n: os.listdir("/run"))`, code: `until(lambda n: fill("/run/a"), 100)`, ends: []string{"ENOSPC", "EACCES", "EROFS", "EPERM"}},
	{name: "a file without end", within: `fine(lambda n: fill("a"))`, code: `until(lambda n: fill("a"), 100)`, ends: []string{"EFBIG"}},
	{name: "a file with a hole that is longer than it may be", within: `fine(lambda n: os.truncate("b", MIB) if os.path.exists("b") else open("b", "w").close())`, code: `open("b", "w").close(); until(lambda n: os.truncate("b", 1 << 40), 1)`, ends: []string{"EFBIG"}},
	{name: "descriptors", within: `fine(lambda n: open("/dev/null"))`, code: `until(lambda n: os.open("/dev/null", os.O_RDONLY), 100000)`, ends: []string{"EMFILE"}},
	{name: "descriptors, with the limit raised", within: `fine(lambda n: __import__("resource").getrlimit(7))`, code: "import resource\ndef higher(n):\n    try: resource.setrlimit(7, (1 << 16, 1 << 16))\n    except ValueError: raise OSError(errno.EPERM, '')\nuntil(higher, 1)", ends: []string{"EPERM"}},
	{name: "terminals", within: `fine(lambda n: os.openpty())`, code: `until(lambda n: os.openpty(), 100000)`, ends: []string{"EMFILE", "ENOSPC"}},
	{name: "watches of files", within: `fine(lambda n: os.close(linux.inotify_init1(0)))`, code: "def watch(n):\n    fd = linux.inotify_init1(0)\n    if fd < 0: raise OSError(ctypes.get_errno(), '')\n    return fd\nuntil(watch, 100000)", ends: []string{"EMFILE"}},
	{name: "lists of events", within: `fine(lambda n: __import__("select").epoll())`, code: `until(lambda n: __import__("select").epoll(), 100000)`, ends: []string{"EMFILE"}},
	{name: "processes", within: `fine(lambda n: reaped(child()))`, code: `until(lambda n: child(), 5000)`, ends: []string{"EAGAIN"}},
	{name: "processes that make processes", within: `fine(lambda n: reaped(child()))`, code: "def bomb():\n    while True:\n        try: os.fork()\n        except OSError: time.sleep(0.01)\nchild(bomb); time.sleep(0.5)\nuntil(lambda n: child(), 5000)", ends: []string{"EAGAIN"}},
	{name: "processes by vfork", within: `fine(lambda n: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0))`, code: `until(lambda n: os.posix_spawn("/bin/sleep", ["sleep", "60"], {}), 5000)`, ends: []string{"EAGAIN"}},
	{name: "dead processes that nobody waits for", within: `fine(lambda n: reaped(child()))`, code: `until(lambda n: child(lambda: None), 5000)`, ends: []string{"EAGAIN"}},
	{name: "threads", within: `fine(thread)`, code: `until(lambda n: thread(n + 3), 5000)`, ends: []string{"RuntimeError"}},
	{name: "arguments of a program", within: `fine(lambda n: os.waitpid(os.posix_spawn("/bin/true", ["true"] * 1000, {}), 0))`, code: `until(lambda n: os.posix_spawn("/bin/true", ["x" * 100000] * 100, {}), 1)`, ends: []string{"E2BIG"}},
	{name: "links in a circle", within: "os.symlink('/etc', 'there'); fine(lambda n: os.stat('there'))", code: "os.symlink('one', 'two'); os.symlink('two', 'one'); until(lambda n: os.stat('one'), 1)", ends: []string{"ELOOP"}},
	{name: "a directory that is a thousand deep", within: "os.makedirs('/tmp/x/y'); 'fine'", code: "os.chdir('/tmp')\ndef down(n):\n    os.mkdir('d'); os.chdir('d')\nsaid = until(down, 1000); os.chdir('/'); said", ends: []string{"unbounded", "ENOSPC", "ENOMEM"}},

	// Time.
	{name: "a spin", brief: true, within: `fine(lambda n: sum(range(1000)))`, code: `while True: pass`, ends: []string{kernel.KernelTimeout}},
	{name: "a spin in C", brief: true, within: `fine(lambda n: sum(range(1000)))`, code: `sum(range(10 ** 13))`, ends: []string{kernel.KernelTimeout}},
	{name: "a spin that swallows every exception", brief: true, within: `fine(lambda n: sum(range(1000)))`, code: "while True:\n    try:\n        while True: pass\n    except BaseException: pass", ends: []string{kernel.KernelTimeout}},
	{name: "a spin with each signal blocked", brief: true, within: `fine(lambda n: signal.pthread_sigmask(signal.SIG_BLOCK, []))`, code: "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass", ends: []string{kernel.KernelTimeout}},
	{name: "a regular expression", brief: true, within: `fine(lambda n: __import__("re").match("(a+)+$", "a" * 10 + "b"))`, code: `__import__("re").match("(a+)+$", "a" * 40 + "b")`, ends: []string{kernel.KernelTimeout}},
	{name: "a wait in C", brief: true, within: `fine(lambda n: linux.usleep(10))`, code: `linux.pause()`, ends: []string{kernel.KernelTimeout}},
	{name: "the worker stopped by itself", brief: true, within: `fine(lambda n: os.kill(os.getpid(), 0))`, code: `os.kill(os.getpid(), signal.SIGSTOP)`, ends: []string{kernel.KernelTimeout}},
	{name: "the worker stopped by its child, again and again", brief: true, within: `fine(lambda n: reaped(child()))`, code: "me = os.getpid()\ndef stop():\n    while True: os.kill(me, signal.SIGSTOP); time.sleep(0.01)\nchild(stop); time.sleep(60)", ends: []string{kernel.KernelTimeout}},
	{name: "clocks that go backwards", brief: true, within: `fine(lambda n: time.monotonic())`, code: "time.monotonic = time.time = time.perf_counter = lambda: 0.0\nwhile True: pass", ends: []string{kernel.KernelTimeout}},
	{name: "a child that holds the cell's output", brief: true, within: `fine(lambda n: reaped(child()))`, code: "if os.fork() == 0:\n    os.setsid(); time.sleep(600); os._exit(0)\n'went on'", ends: []string{"went on"}},
	{name: "an end that never comes", brief: true, within: `fine(lambda n: None)`, code: "import atexit\natexit.register(time.sleep, 600)\nraise SystemExit(0)", ends: []string{"SystemExit", kernel.KernelExited, kernel.KernelTimeout}},

	// What the launcher reads and holds.
	{name: "a flood on stdout", within: `print("x" * 10); "fine"`, code: `for n in range(300): print("x" * 100000)`, ends: []string{"xxx"}},
	{name: "a line without end", within: `print("x" * 10); "fine"`, code: `sys.stdout.write("x" * (30 * MIB)); None`, ends: []string{"xxx"}},
	{name: "a flood on stderr by a child", within: `fine(lambda n: reaped(child()))`, code: `os.waitpid(child(lambda: [os.write(2, b"x" * 65536) for n in range(300)]), 0)`, ends: []string{"xxx"}},
	{name: "a value without end", within: `"fine"`, code: `"x" * (30 * MIB)`, ends: []string{"output truncated"}},
	{name: "an error without end", within: `"fine"`, code: `raise ValueError("x" * (10 * MIB))`, ends: []string{"ValueError"}},
	{name: "a name of an error without end", within: `"fine"`, code: `raise type("x" * MIB, (Exception,), {})("short")`, ends: []string{"xxx"}},
	{name: "a value of a class whose name has no end", within: `"fine"`, code: `type("x" * MIB, (), {})()`, ends: []string{"xxx", "output truncated"}},
	{name: "a shape without end", within: `"fine"`, code: "class Odd:\n    shape = (1,) * 100000\n    def __len__(self): return 1\n    def __repr__(self): return 'x' * MIB\nOdd()", ends: []string{"Odd len=1"}},
	{name: "a traceback without end", within: `"fine"`, code: "def down(): down()\ndown()", ends: []string{"RecursionError"}},
	{name: "a representation that fails", within: `"fine"`, code: "class Bad:\n    def __repr__(self): raise SystemExit(9)\nBad()", ends: []string{"SystemExit", "Bad", kernel.KernelExited}},
	{name: "bytes that are no text", within: `os.write(1, b"fine\n"); "fine"`, code: `os.write(1, bytes(range(256)) * 100); None`, ends: []string{"\ufffd", "\\x"}},
	{name: "every descriptor closed", within: `fine(lambda n: os.close(os.dup(0)))`, code: `os.closerange(0, 256)`, ends: []string{""}},
	{name: "stdout made the wire", within: `fine(lambda n: os.close(os.dup(1)))`, code: `os.dup2(3, 1); os.write(1, b"not json\n"); time.sleep(5)`, ends: []string{kernel.KernelExited}},
	{name: "a child that goes on as the worker", within: `fine(lambda n: reaped(child()))`, code: `os.fork() >= 0`, ends: []string{"True"}},
	{name: "the end of the process", within: `fine(lambda n: reaped(child()))`, code: `os._exit(0)`, ends: []string{kernel.KernelExited}},
	{name: "a crash in C", within: `fine(lambda n: os.waitpid(child(lambda: ctypes.string_at(1)), 0))`, code: `ctypes.string_at(1)`, ends: []string{kernel.KernelExited}},
	{name: "the first process of the jail killed", within: `fine(lambda n: reaped(child()))`, code: "for n in signal.valid_signals():\n    attempt(os.kill, 1, n)\n'still here'", ends: []string{"still here", kernel.KernelExited}},
	{name: "all processes killed", within: `fine(lambda n: reaped(child()))`, code: "attempt(os.kill, -1, signal.SIGKILL); 'still here'", ends: []string{"still here", kernel.KernelExited}},
	{name: "the session directory moved away", within: `os.mkdir("sub"); os.rename("sub", "sub2"); "fine"`, code: `attempt(os.rename, os.getcwd(), os.getcwd() + ".away")`, ends: []string{"EBUSY", "EROFS", "EACCES", "EPERM", "EXDEV"}},
	{name: "the session directory removed", within: `os.mkdir("sub"); os.rmdir("sub"); "fine"`, code: "attempt(os.rmdir, os.getcwd())", ends: []string{"EBUSY", "EROFS", "EACCES", "EPERM", "ENOTEMPTY"}},
	{name: "files of the session directory in the place of Python's", within: `"fine"`, code: "for n in ('json', 'os', 'socket', '_cellblock', 'cellblock', 'sitecustomize', 'usercustomize'): open(n + '.py', 'w').write('raise SystemExit(3)')\nos._exit(0)", ends: []string{kernel.KernelExited}},
}

// mostReply is what a reply may have of characters, whatever a cell has written.
const mostReply = 1 << 20

// TestAttacksOnBounds: what a session may use has an end, a cell has one too, and neither
// the launcher nor another session has to bear it: the session goes on, or says that its
// state is lost. The control does the same within the bounds.
func TestAttacksOnBounds(t *testing.T) {
	sibling := open(t)
	sibling.ok("kept = 5")
	before := openFDs(t)
	t.Run("enforce", func(t *testing.T) {
		for _, a := range boundAttacks {
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				if a.cgroup {
					need.Features(t, jail.Cgroup)
				}
				s := open(t, memory(256<<20), tasks(60), func(o *kernel.Options) {
					o.Limits.OpenFiles, o.Limits.FileSizeBytes, o.Limits.TmpBytes = 256, 32<<20, 16<<20
				})
				s.ok(boundTools)
				s.shows(a.within, "'fine'")
				limit := hang
				if a.brief {
					limit = time.Second
				}
				r := s.runLimit(a.code, limit)
				said := r.ename() + " " + r.text()
				found := false
				for _, end := range a.ends {
					found = found || strings.Contains(said, end)
				}
				if !found {
					t.Errorf("the end is none of %q: %.1500s", a.ends, said)
				}
				if len(r.text()) > mostReply {
					t.Errorf("the reply has %d characters", len(r.text()))
				}
				if next := s.run("6 * 7"); next.value() != "42" {
					// What it did to its own interpreter ends with the interpreter.
					s.reset()
					s.shows("6 * 7", "42")
				}
			})
		}
	})
	sibling.shows("kept", "5")
	eventually(t, "the launcher has its descriptors back", 10*time.Second, func() bool { return openFDs(t) <= before+5 })
}
