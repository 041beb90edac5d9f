package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/kernel"
	"cellblock/policy"
)

// row is one operation in one place by one actor.
type row struct {
	number int
	place  place
	op     operation
	actor  string
	code   string
}

func (r row) prefix() string { return fmt.Sprintf("r%04d", r.number) }

func (r row) String() string { return r.op.name + ", " + r.place.name + ", by " + r.actor }

// actors do what a session can: Python in the worker, a system call by its number,
// a fork of the worker, and a program of its own, which no hook of Python's watches.
var actors = []string{"the worker", "native code", "a fork", "a program", "a program's native code"}

func native(actor string) bool { return strings.HasSuffix(actor, "native code") }

// table is every operation in every place by every actor.
func table(places []place) (rows []row) {
	for _, p := range places {
		for _, actor := range actors {
			for _, o := range operations {
				code := o.python
				if native(actor) {
					code = o.native
				}
				if code != "" {
					rows = append(rows, row{len(rows), p, o, actor, code})
				}
			}
		}
	}
	return rows
}

// outcome is what became of a row.
type outcome struct {
	Result string `json:"result"` // done, or an error's name
	Seen   string `json:"seen"`   // what its names are afterwards, from inside
	told   []string
	denied bool // what was told says that Linux refuses it
}

// program is what runs in the worker and, a second time, in a program of its own.
const program = `
import ctypes, errno, json, mmap, os, shutil, socket, sqlite3, stat, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
AT, OPENS, CONNECT, b, kept = -100, OPENERS, CONNECTS, os.fsencode, []
def at(path, use):
    fd = os.open(path, os.O_RDONLY)
    try:
        return use(fd)
    finally:
        os.close(fd)
def mapped(fd):
    libc.mmap.restype = ctypes.c_void_p
    return ctypes.c_void_p(libc.mmap(None, 4096, 1, 2, fd, 0))
def reach(path):
    kept.append(socket.socket(socket.AF_UNIX).detach())
    return CONNECT, kept[-1], b"\x01\0" + b(path) + b"\0", 3 + len(b(path))
def keep(fd):
    kept.append(os.dup(fd))
    return kept[-1]
def call(number, *rest):
    done = libc.syscall(ctypes.c_long(number), *rest)
    while kept:
        os.close(kept.pop())
    if done < 0:
        raise OSError(ctypes.get_errno(), "")
    if number in OPENS:
        os.close(done)
def database(path):
    made = sqlite3.connect(path, isolation_level=None)
    made.execute("pragma journal_mode=off"), made.execute("pragma synchronous=off")
    made.execute("create table t (x)")
    made.close()
def seen(p):
    names = []
    for end in ".d", ".f", ".g", ".l", ".n", ".x":
        try:
            s = os.lstat(p + end)
        except OSError:
            continue
        size = 0 if stat.S_ISDIR(s.st_mode) else s.st_size
        mark = []
        if s.st_mtime == 1:
            mark.append("at the epoch")
        try:
            mark += sorted(x for x in os.listxattr(p + end, follow_symlinks=False) if x.startswith("user."))
        except OSError:
            pass
        names.append("%s %s %d %s" % (end, stat.filemode(s.st_mode), size, " ".join(mark)))
    return ", ".join(names)
def act(native, code, p):
    try:
        if native:
            call(*eval("(" + code + ",)", globals(), {"p": p}))
        else:
            exec(code, globals(), {"p": p})
        result = "done"
    except OSError as problem:
        result = errno.errorcode.get(problem.errno, str(problem.errno))
    except subprocess.CalledProcessError:
        result = "EXIT"
    except sqlite3.Error as problem:
        result = "SQLITE"
    return {"result": result, "seen": seen(p)}
def forked(rows):
    come, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(go, json.dumps([act(*r) for r in rows]).encode())
        finally:
            os._exit(0)
    os.close(go)
    with open(come, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)
def serve():
    for line in sys.stdin:
        print(json.dumps([act(*r) for r in json.loads(line)]), flush=True)
`

// side starts the program of the session's own, and how it is asked.
const side = `
other = subprocess.Popen([sys.executable, "-I", "-S", "-c", PROGRAM + "\nserve()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(rows):
    other.stdin.write(json.dumps(rows) + "\n")
    other.stdin.flush()
    return json.loads(other.stdout.readline())
`

func python() string {
	if bin := os.Getenv("CELLBLOCK_TEST_PYTHON"); bin != "" {
		return bin
	}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		return "/usr/bin/python3"
	}
	return "python3"
}

// session is one of a mode, with the places made for it.
type session struct {
	t      *testing.T
	base   string
	kernel *kernel.Session
}

func open(t *testing.T, mode policy.Mode, rules string, rows []row) *session {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "cellblock-test-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	must(t, os.Chmod(base, 0o755))
	furnish(t, base, rows)
	doc, err := policy.Parse("parity.yaml", []byte(strings.ReplaceAll(rules, "BASE", base)))
	must(t, err)
	state := newState(t)
	k, err := kernel.Open(kernel.Options{PythonBin: python(), SessionDir: base + "/work", Mode: mode, Policy: &doc,
		Tier: kernel.TierJail, State: []string{state}, Shadow: filepath.Join(state, "shadow")})
	must(t, err)
	t.Cleanup(func() { k.Close() })
	s := &session{t, base, k}
	openers := []int{unix.SYS_OPENAT}
	if len(oldCalls()) > 0 {
		openers = append(openers, 2, 85)
	}
	numbers, err := json.Marshal(openers)
	must(t, err)
	text := strings.NewReplacer("OPENERS", string(numbers), "CONNECTS", strconv.Itoa(unix.SYS_CONNECT)).Replace(program)
	s.run(text + "\nPROGRAM = " + quote(text) + side)
	return s
}

func newState(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cellblock-test-state-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// quote is a text as a literal of Python's, of which JSON's strings are a part.
func quote(text string) string {
	literal, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(literal)
}

// run runs a cell that must work.
func (s *session) run(code string) kernel.Result {
	s.t.Helper()
	r := s.kernel.Call(context.Background(), kernel.Call{Code: code})
	if r.IsError {
		s.t.Fatalf("%+v\n%s", r.Details.Error, r.Details.Stderr)
	}
	return r
}

// do runs rows of one place by one actor, and returns what became of each.
func (s *session) do(rows []row) []outcome {
	s.t.Helper()
	var asked [][3]any
	for _, r := range rows {
		asked = append(asked, [3]any{native(r.actor), r.code, r.place.path(s.base) + "/" + r.prefix()})
	}
	text, err := json.Marshal(asked)
	must(s.t, err)
	how := map[string]string{"the worker": "[act(*r) for r in rows]", "native code": "[act(*r) for r in rows]", "a fork": "forked(rows)",
		"a program": "ask(rows)", "a program's native code": "ask(rows)"}[rows[0].actor]
	r := s.run("rows = json.loads(" + quote(string(text)) + ")\nprint(json.dumps(" + how + "))")
	var out []outcome
	if err := json.Unmarshal([]byte(r.Details.Stdout), &out); err != nil || len(out) != len(rows) {
		s.t.Fatalf("%v: %v: %q", rows[0], err, r.Details.Stdout)
	}
	for _, v := range r.Details.Policy.Violations {
		at := slices.IndexFunc(rows, func(r row) bool {
			return strings.HasPrefix(filepath.Base(v.Path), r.prefix()) || strings.Contains(v.Path, "/"+r.prefix()+".")
		})
		if at < 0 {
			s.t.Errorf("%v: told of %s %s, which no row does", rows[0], v.Op, v.Path)
			continue
		}
		if v.Count != 1 {
			s.t.Errorf("%v: told of %s %s %d times", rows[at], v.Op, v.Path, v.Count)
		}
		path := strings.TrimPrefix(v.Path, s.base+"/")
		if hidden[rows[at].place.dir] {
			path = "(hidden)" // nobody inside can tell where a link there leads
		}
		out[at].told = append(out[at].told, v.Op+" "+path+" ("+v.Rule+")")
		out[at].denied = out[at].denied || v.Decision == "denied"
	}
	return out
}

// all runs the whole table.
func (s *session) all(rows []row) (out []outcome) {
	s.t.Helper()
	for begin := 0; begin < len(rows); {
		end := begin
		for end < len(rows) && rows[end].place == rows[begin].place && rows[end].actor == rows[begin].actor {
			end++
		}
		out = append(out, s.do(rows[begin:end])...)
		begin = end
	}
	return out
}
