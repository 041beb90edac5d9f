package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cellblock/kernel"
)

// bothWays are those in which a stock makes workers.
var bothWays = []kernel.StockWay{kernel.WayExec, kernel.WayFork}

// fromStock opens sessions below a room of which a stock keeps workers. Each call waits
// until there is one.
func fromStock(t *testing.T, way kernel.StockWay, opts ...option) func() *session {
	t.Helper()
	room := newDirIn(t, "/var/tmp")
	if err := os.Chmod(room, 0o755); err != nil {
		t.Fatal(err)
	}
	stock, err := kernel.OpenStock(kernel.StockOptions{Sessions: room, Way: way})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stock.Close() })
	return func() *session {
		t.Helper()
		dir := newDirIn(t, room)
		all := append([]option{at(dir), func(o *kernel.Options) { o.Stock = stock }}, opts...)
		o := kernel.Options{PythonBin: pythonBin(), CellTimeout: hang}
		mode("enforce")(&o)
		for _, opt := range all {
			opt(&o)
		}
		if err := stock.Prepare(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		s := open(t, all...)
		s.ok("1")
		if !s.kernel.Info().Stock {
			t.Fatalf("the session had to start a worker: %+v", stock.Stats())
		}
		return s
	}
}

// TestPostureFromStock: a worker from stock is confined as one that was started for its
// session, line by line.
func TestPostureFromStock(t *testing.T) {
	who := "user"
	if os.Geteuid() == 0 {
		who = "root"
	}
	for _, way := range bothWays {
		for _, m := range bothModes {
			t.Run(string(way)+"/"+m, func(t *testing.T) {
				golden := filepath.Join("testdata", "posture", "default-"+m+"-"+who+".txt")
				next := fromStock(t, way, profile("default"), mode(m))
				for range 2 {
					s := next()
					if got, want := posture(t, workerOf(t, s.dir), s.dir), readFile(t, golden); got != want {
						t.Errorf("the posture is not that of %s:\n%s", golden, diffLines(want, got))
					}
				}
			})
		}
	}
}

// fingerprint is what a process is and has, as it sees itself. Its number depends on
// how many threads the first process had, in every jail.
const fingerprint = `
import gc, locale, os, resource, signal, sys, threading, time
def read(path):
    try: return open(path).read()
    except OSError as e: return str(e)
mask = os.umask(0); os.umask(mask)
status = [l for l in read("/proc/self/status").splitlines() if l.split(":")[0] in (
    "Umask", "State", "Ngid", "PPid", "TracerPid", "Uid", "Gid", "Groups", "Threads", "SigQ", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt",
    "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Cpus_allowed", "Mems_allowed")]
print("\n".join(str(x) for x in [status, mask, sorted(os.environ.items()), os.getcwd(), sys.argv, sys.path, sorted(globals()),
    locale.setlocale(locale.LC_ALL), time.tzname, signal.pthread_sigmask(signal.SIG_BLOCK, []), [(n, resource.getrlimit(n)) for n in range(16)],
    [(s, str(signal.getsignal(s)).split(" at ")[0]) for s in range(1, 32)], threading.active_count(), os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0),
    sorted((fd, os.path.basename(os.readlink("/proc/self/fd/" + fd)).split(":")[0]) for fd in os.listdir("/proc/self/fd") if fd < "4"),
    ["own" if p == str(os.getpid()) else p for p in sorted(os.listdir("/proc")) if p.isdigit()], sorted(n for n in os.listdir("/tmp") if not n.startswith("pi-py")), os.listdir("/tmp/home"), os.listdir("/dev/shm"), os.listdir("/run"), os.listdir("."), read("/proc/self/oom_score_adj"),
    read("/proc/self/cgroup").count("/"), read("/proc/self/net/route"), gc.get_threshold(), sys.getrecursionlimit(), os.uname().nodename]))
print("MODULES", *sorted(sys.modules))
`

// TestFingerprintFromStock: from inside nothing tells a session from stock apart from
// one that was started afresh, and nothing in it tells of those before. One that was
// forked has more modules in its interpreter, and a parent outside of its jail.
func TestFingerprintFromStock(t *testing.T) {
	for _, way := range bothWays {
		for _, m := range bothModes {
			t.Run(string(way)+"/"+m, func(t *testing.T) {
				of := func(s *session) (text string, modules string) {
					text = strings.ReplaceAll(s.ok(fingerprint).text(), s.dir, "SESSION")
					text, modules, _ = strings.Cut(text, "MODULES")
					return text, modules
				}
				next := fromStock(t, way, mode(m), capped(200000))
				used := next()
				used.ok("import os, resource, sys, signal, json; os.umask(0o77); os.environ['A'] = 'b'; sys.path.append('/x'); resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); signal.signal(15, signal.SIG_IGN); open('/tmp/left', 'w').close(); open('/dev/shm/left', 'w').close(); x = 1")
				used.ok("import wave")
				got, has := of(next())
				dir := newDirIn(t, "/var/tmp")
				want, needs := of(open(t, at(dir), mode(m), capped(200000)))
				// As root a session may change the interpreter in mode report: none is forked.
				if way == kernel.WayFork && (m == "enforce" || os.Geteuid() != 0) {
					want = strings.Replace(want, `'PPid:\t1'`, `'PPid:\t0'`, 1)
					for module := range strings.FieldsSeq(needs) {
						if !strings.Contains(has+" ", " "+module+" ") {
							t.Errorf("module %s is missing", module)
						}
					}
					if strings.Contains(has, " wave ") {
						t.Error("a module of the session before is there")
					}
				} else if has != needs {
					t.Errorf("modules from stock and fresh differ:\n%s", diffLines(needs, has))
				}
				if got != want {
					t.Errorf("from stock and fresh differ:\n%s", diffLines(want, got))
				}
				if n := strings.Count(got, "SESSION"); n == 0 {
					t.Errorf("the fingerprint says nothing of its directory: %.300s", got)
				}
			})
		}
	}
}
