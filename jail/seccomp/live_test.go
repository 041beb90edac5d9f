package seccomp

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"cellblock/jail/internal/require"
)

// underVariable makes the test binary a launcher: it installs the named
// profile's filters on itself and runs the command in its arguments.
const underVariable = "SECCOMP_TEST_UNDER"

func TestMain(m *testing.M) {
	if name := os.Getenv(underVariable); name != "" {
		fmt.Fprintln(os.Stderr, "under", name+":", runUnder(name, os.Args[1:]))
		os.Exit(125)
	}
	os.Exit(m.Run())
}

// runUnder does not return when it succeeds.
func runUnder(name string, argv []string) error {
	document, err := os.ReadFile(os.Getenv("SECCOMP_TEST_PROFILE"))
	if err != nil {
		return err
	}
	filter, err := Load(name, document)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	// The new program takes the filters of the thread that starts it.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for _, program := range filter.Programs {
		fprog := unix.SockFprog{Len: uint16(len(program)), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
		if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
			return fmt.Errorf("install: %w", errno)
		}
	}
	return syscall.Exec(path, argv, os.Environ())
}

// under runs a command with a profile's filters and gives its output.
func under(t *testing.T, name string, argv ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", argv...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), underVariable+"="+name, "SECCOMP_TEST_PROFILE="+profilePath(t, name),
		"MPLCONFIGDIR="+t.TempDir(), "HOME="+t.TempDir(), "OPENBLAS_NUM_THREADS=2")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func profilePath(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir + "/" + sources + "/" + name + ".json"
}

// work is what people do in a session, each with the output that shows that it
// was done. Needs names a module or program that has to be there.
var work = []struct{ name, needs, code, want string }{
	{"threads", "", "import threading; s=[]; ts=[threading.Thread(target=s.append,args=(i,)) for i in range(32)]; [t.start() for t in ts]; [t.join() for t in ts]; print(len(s))", "32"},
	{"refused calls are errors", "", "import ctypes\nl=ctypes.CDLL(None,use_errno=True)\nfor a in ((9999,),(272 if __import__('platform').machine()=='x86_64' else 97,0x20000)):\n  r=l.syscall(*a); print(r,ctypes.get_errno())", "-1 38\n-1 1"},
	{"subprocess and shell", "", "import subprocess; print(subprocess.run('echo a | tr a b; exit 3',shell=True,capture_output=True,text=True))", "returncode=3, stdout='b\\n'"},
	{"posix_spawn", "", "import os; p=os.posix_spawn('/bin/true',['true'],{}); print(os.waitpid(p,0)[1])", "0"},
	{"multiprocessing fork", "", "import multiprocessing as mp\nmp.set_start_method('fork')\nl=mp.Lock(); q=mp.Queue()\nwith l: q.put('through')\nprint(q.get(timeout=5), mp.Pool(2).map(abs,[-1,-2]))", "through [1, 2]"},
	{"asyncio", "", "import asyncio\nasync def m():\n  p=await asyncio.create_subprocess_exec('echo','hi',stdout=-1)\n  return (await p.communicate())[0], await asyncio.to_thread(abs,-3)\nprint(asyncio.run(m()))", "(b'hi\\n', 3)"},
	{"sockets", "", "import socket,threading\ns=socket.create_server(('127.0.0.1',0)); threading.Thread(target=lambda: s.accept()[0].sendall(b'pong')).start()\nprint(socket.create_connection(s.getsockname()).recv(9), socket.getaddrinfo('127.0.0.1',80)[0][4], len(socket.if_nameindex())>0)", "b'pong' ('127.0.0.1', 80) True"},
	{"ssl", "", "import ssl,hashlib; c=ssl.create_default_context(); print(bool(c), hashlib.sha256(b'').hexdigest()[:8])", "True e3b0c442"},
	{"sqlite3", "", "import sqlite3; d=sqlite3.connect('a.db'); d.execute('pragma journal_mode=wal'); d.execute('create table t(x)'); d.execute('insert into t values (7)'); d.commit(); print(d.execute('select * from t').fetchall())", "[(7,)]"},
	{"files", "", "import os,shutil,tempfile,mmap\nopen('f','w').write('x'*5000); os.chmod('f',0o640); shutil.copy2('f','g'); os.rename('g','h'); os.mkfifo('p'); os.symlink('f','l'); shutil.copytree('.', tempfile.mkdtemp()+'/c', symlinks=True, ignore=shutil.ignore_patterns('p')); f=open('f','r+b'); m=mmap.mmap(f.fileno(),0); print(len(m), oct(os.stat('h').st_mode))", "5000 0o100640"},
	{"pty", "", "import pty,os\npid,fd=pty.fork()\nif pid==0: os.execvp('stty',['stty','size'])\nprint(os.read(fd,99)); os.waitpid(pid,0)", "b'0 0"},
	{"signals and timers", "", "import signal,time\nsignal.signal(signal.SIGALRM,lambda *a: print('rang'))\nsignal.setitimer(signal.ITIMER_REAL,0.05); time.sleep(0.2); print(signal.sigtimedwait([signal.SIGUSR1],0.01))", "rang\nNone"},
	{"numpy", "python:numpy", "import numpy as n; a=n.random.rand(300,300); print((a@n.linalg.inv(a)).trace().round())", "300.0"},
	{"pandas", "python:pandas", "import pandas as p; print(p.DataFrame({'a':[1,2]}).a.sum())", "3"},
	{"matplotlib", "python:matplotlib", "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as p; p.plot([1,2]); p.savefig('p.png'); import os; print(os.path.getsize('p.png')>1000)", "True"},
	{"git", "git", "import subprocess as s; s.run('git init -q r && cd r && git -c user.name=n -c user.email=e@x commit -q --allow-empty -m m && git worktree add -q ../w && git log --oneline | wc -l',shell=True,check=True)", "1"},
	{"make", "make", "open('Makefile','w').write('all: a b\\na b:\\n\\t@echo $@\\n'); import subprocess as s; s.run(['make','-s','-j2'],check=True)", "a"},
}

func TestUsualWorkRunsUnderEveryProfile(t *testing.T) {
	for _, name := range sourceNames(t) {
		for _, w := range work {
			t.Run(name+"/"+w.name, func(t *testing.T) {
				have(t, w.needs)
				out, err := under(t, name, "python3", "-c", w.code)
				if err != nil || !strings.Contains(out, w.want) {
					t.Errorf("%v, output %q, want %q in it", err, out, w.want)
				}
			})
		}
	}
}

func have(t *testing.T, needs string) {
	t.Helper()
	if module, ok := strings.CutPrefix(needs, "python:"); ok {
		if err := exec.Command("python3", "-c", "import "+module).Run(); err != nil {
			require.Skip(t, module, "python3 cannot import it")
		}
	} else if needs != "" {
		if _, err := exec.LookPath(needs); err != nil {
			require.Skip(t, needs, err.Error())
		}
	}
}

// hostile are acts that must fail in Linux itself, not only in the
// interpreter of these tests.
const hostile = `
import ctypes, os, socket, stat
libc = ctypes.CDLL(None, use_errno=True)
def errno(f, *a):
    try: f(*a)
    except OSError as e: return e.errno
    return 0
def c(name, *a):
    ctypes.set_errno(0)
    r = getattr(libc, name)(*a)
    return ctypes.get_errno() if r == -1 else 0
open("f", "w").close()
print("alg", errno(socket.socket, 38, socket.SOCK_SEQPACKET))
print("vsock", errno(socket.socket, 40, socket.SOCK_STREAM))
print("mptcp", errno(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 262))
s = socket.socket()
print("ulp", errno(s.setsockopt, 6, 31, b"tls"))
print("setuid", errno(os.chmod, "f", 0o4755))
print("setuid-open", errno(os.open, "g", os.O_CREAT | os.O_WRONLY, 0o4755))
print("mknod", errno(os.mknod, "d", stat.S_IFCHR | 0o600, os.makedev(1, 3)))
print("unshare", c("unshare", 0x10000000))
print("clone", c("syscall", 56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0))
print("ptrace", c("ptrace", 0, 0, 0, 0))
print("tiocsti", c("ioctl", 0, ctypes.c_ulong(0x5412 | 1 << 32), b"x"))
print("personality", c("personality", 0x0400000))
print("mount", c("mount", b"none", b"/tmp", b"tmpfs", 0, None))
print("bpf", c("syscall", 321 if os.uname().machine == "x86_64" else 280, 0, 0, 0))
`

func TestHostileCallsFailInLinux(t *testing.T) {
	for _, name := range sourceNames(t) {
		t.Run(name, func(t *testing.T) {
			out, err := under(t, name, "python3", "-c", hostile)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if len(lines) != 14 {
				t.Errorf("%d lines:\n%s", len(lines), out)
			}
			for _, line := range lines {
				if !strings.HasSuffix(line, " 1") {
					t.Errorf("%s, want 1 (EPERM)", line)
				}
			}
		})
	}
}

// A 32-bit call by int 0x80 ends the process.
func TestForeignABIKillsTheProcess(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("int 0x80 is amd64's")
	}
	// getpid of i386 from a page of machine code: mov eax,20; int 0x80; ret
	const code = "import ctypes,mmap\nm=mmap.mmap(-1,4096,prot=7); m.write(bytes.fromhex('b814000000cd80c3'))\nprint(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()>0)"
	control, err := exec.Command("python3", "-c", code).CombinedOutput()
	if err != nil || !strings.Contains(string(control), "True") {
		require.Skip(t, "ia32", fmt.Sprintf("int 0x80 does not work outside either: %v %s", err, control))
	}
	for _, name := range sourceNames(t) {
		out, err := under(t, name, "python3", "-c", code)
		if err == nil || !strings.Contains(err.Error(), "bad system call") {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}
