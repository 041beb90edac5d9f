package integration

import "testing"

// betweenAttacks have one session leave something under a name that everybody knows, and
// another one of the same user look for it. look is an expression that comes to True
// where it is found: in the session that left it, which is the control, and nowhere else.
var betweenAttacks = []struct{ name, leave, look string }{
	{"shared memory of System V", `assert linux.shmget(0x5e11b10c, 4096, 0o1600) >= 0`, `linux.shmget(0x5e11b10c, 4096, 0) >= 0`},
	{"semaphores of System V", `assert linux.semget(0x5e11b10d, 1, 0o1600) >= 0`, `linux.semget(0x5e11b10d, 0, 0) >= 0`},
	{"messages of System V", `assert linux.msgget(0x5e11b10e, 0o1600) >= 0`, `linux.msgget(0x5e11b10e, 0) >= 0`},
	{"shared memory of POSIX", `import multiprocessing.shared_memory as sm; block = sm.SharedMemory("canary-block", create=True, size=16)`, `os.path.exists("/dev/shm/canary-block")`},
	{"a file in /tmp", `open("/tmp/canary-file", "w").close()`, `os.path.exists("/tmp/canary-file")`},
	{"a pipe in /tmp", `os.mkfifo("/tmp/canary-pipe")`, `os.path.exists("/tmp/canary-pipe")`},
	{"a Unix socket in /tmp", `heard = socket.socket(socket.AF_UNIX); heard.bind("/tmp/canary-socket"); heard.listen()`,
		`attempt(socket.socket(socket.AF_UNIX).connect, "/tmp/canary-socket") == "done"`},
	{"a file in the home directory", `open(os.path.expanduser("~/canary-home"), "w").close()`, `os.path.exists(os.path.expanduser("~/canary-home"))`},
	{"a process by its arguments", "import subprocess\nchild = subprocess.Popen(['sleep', '4321.5'])\nwhile b'4321.5' not in open(f'/proc/{child.pid}/cmdline', 'rb').read(): pass",
		`any(b"4321.5" in open(f"/proc/{p}/cmdline", "rb").read() for p in os.listdir("/proc") if p.isdigit())`},
}

// TestAttacksBetweenSessions: what a session leaves under a name is found by no other, in
// no mode. The control finds it in the session itself.
func TestAttacksBetweenSessions(t *testing.T) {
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			first, second := open(t, inMode(t, m)), open(t, inMode(t, m))
			first.ok(attackTools)
			second.ok(attackTools)
			for _, a := range betweenAttacks {
				t.Run(a.name, func(t *testing.T) {
					first.t, second.t = t, t
					first.ok(a.leave)
					first.shows(a.look, "True")
					second.shows(a.look, "False")
				})
			}
			first.t, second.t = t, t
		})
	}
}
