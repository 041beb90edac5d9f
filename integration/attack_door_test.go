package integration

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"cellblock/kernel"
	"cellblock/kernel/host"
	"cellblock/policy"
	"cellblock/policy/audit"
)

// doorPrelude finds what stands between a cell and the wire: our objects, the wire
// itself, and Linux's own calls.
const doorPrelude = `
import cellblock, ctypes, gc, json, os, socket, stat, sys, threading, time
serve = sys.modules["_cellblock.serve"]
worker = next(o for o in gc.get_objects() if type(o) is serve.Worker)
wire = [n for n in range(3, 64) if os.path.exists(f"/proc/self/fd/{n}") and stat.S_ISSOCK(os.fstat(n).st_mode)][0]
libc = ctypes.CDLL(None)
heard = b""
def raw(line): os.write(wire, (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
def hear():
    global heard
    while b"\n" not in heard: heard += os.read(wire, 65536)
    line, _, heard = heard.partition(b"\n")
    return json.loads(line)
def host(id, name="door.echo", **more): return dict({"id": id, "op": "host", "name": name, "arguments": {"n": id}, "scope": worker.scope}, **more)
def ask(*args, **more): raw(host(*args, **more)); return hear()
def code(answer): return answer["error"]["code"] if "error" in answer else "done" if "value" in answer else "a request"
`

// doorAttack is what a cell does to get at more than the host gave it.
type doorAttack struct {
	name string
	code string // after the prelude
	then string // a second cell, where the first one left something behind
	// says is what the last cell prints; ends is the rule of the wire that ends the
	// worker instead. Neither: either is good, and nothing is gained.
	says, ends string
	ran        int // tools that are carried out, at most
}

var doorAttacks = []doorAttack{
	{name: doorControl, code: `print(code(ask(1)), ask(2)["value"])`, says: "done {'n': 2}", ran: 2},
	// What a message says of itself.
	{name: "the scope of another session", code: `print(code(ask(1, scope="other/1")))`, says: "scope-closed"},
	{name: "the scope of a cell to come", code: `print(code(ask(1, scope=worker.scope[:-1] + "99")))`, says: "scope-closed"},
	{name: "no scope", code: `line = host(1); del line["scope"]; raw(line); print(code(hear()))`, says: "scope-closed"},
	{name: "a role beside the arguments", code: `raw(host(1, role="extension")); time.sleep(60)`, ends: "unknown-field"},
	{name: "a role and a purpose in the arguments", code: `
who = ask(1, name="door.who", arguments={"role": "extension", "purpose": "maintenance", "session": "other", "scope": "other/1"})["value"]
print(who["role"], who["purpose"], who["scope"] == worker.scope)`, says: "sandbox interactive True", ran: 1},
	{name: "what the policy denies", code: `print(code(ask(1, name="forbidden.run")))`, says: "denied"},
	{name: "a tool of another purpose", code: `print(code(ask(1, name="door.maintain")))`, says: "denied"},
	{name: "a tool of another role", code: `print(code(ask(1, name="door.nested")))`, says: "denied"},
	{name: "a tool that is not there", code: `print(code(ask(1, name="door.__class__")), code(ask(2, name="door.echo\x00")), code(ask(3, name="../door.echo")))`, says: "unknown unknown denied"},
	{name: "another's calls cancelled", code: `print([ask(n, name="host.cancel", arguments={"call": 10 ** 6 + n})["value"] for n in range(1, 4)])`, says: "[False, False, False]"},
	{name: "arguments of another shape", code: `
bad = [{}, {"n": "1"}, {"n": 1.5}, {"n": True}, {"n": None}, {"n": 1, "m": 2}, {"N": 1}, {"n": [1]}, {"n": 10 ** 400}]
print("done" in {code(ask(i + 1, arguments=a)) for i, a in enumerate(bad)})`, says: "False"},
	{name: "arguments that are no object", code: `raw(host(1, arguments=[1])); time.sleep(60)`, ends: "wrong-type"},
	// Replies and lines that are none.
	{name: "an answer to nobody's question", code: `raw({"id": 77, "value": "forged"}); time.sleep(60)`, ends: "unknown-reply"},
	{name: "a request of the launcher's", code: `raw({"id": 1, "op": "run-block", "session": "other", "code": "1"}); time.sleep(60)`, ends: "unknown-op"},
	{name: "one number twice", code: `ask(5); raw(host(5)); time.sleep(60)`, ends: "duplicate-id", ran: 1},
	{name: "the last number there is", code: `print(code(ask(2 ** 63 - 1))); raw(host(1)); time.sleep(60)`, ends: "duplicate-id", ran: 1},
	{name: "a number beyond it", code: `raw(host(2 ** 63)); time.sleep(60)`, ends: "wrong-type"},
	{name: "NaN", code: `raw(b'{"id":1,"op":"host","name":"door.echo","arguments":{"n":NaN}}'); time.sleep(60)`, ends: "not-json"},
	{name: "a key twice", code: `raw(b'{"id":1,"op":"host","name":"door.echo","name":"forbidden.run","arguments":{}}'); time.sleep(60)`, ends: "duplicate-field"},
	{name: "half a surrogate pair", code: `raw(b'{"id":1,"op":"host","name":"door.echo","arguments":{"n":"\\ud800"}}'); time.sleep(60)`, ends: "not-text"},
	{name: "a zero byte", code: `raw(b'{"id":1,"op":"host","name":"door.echo\x00","arguments":{}}'); time.sleep(60)`, ends: "not-json"},
	{name: "nesting", code: `raw(b'{"id":1,"op":"host","name":"door.echo","arguments":{"n":' + b"[" * 100000); time.sleep(60)`, ends: "too-deep"},
	{name: "a line without end", code: "while True: os.write(wire, b'x' * (1 << 20))", ends: "line-too-long"},
	{name: "half a line, then death", code: `os.write(wire, b'{"id":1,"op":"host",'); os._exit(0)`, ends: "truncated-line"},
	{name: "calls that nobody reads the answers of", code: "for n in range(1, 10 ** 6): raw(host(n, name='door.none'))", ends: "too-many"},
	{name: "a flood of calls", code: `print({code(ask(n, name="forbidden.run")) for n in range(1, 5001)})`, says: "{'denied'}"},
	{name: "the wire shut down", code: `socket.socket(fileno=os.dup(wire)).shutdown(2); time.sleep(60)`},
	{name: "the wire closed", code: `os.close(wire); print(1)`},
	{name: "the reply of its own cell", code: `
raw({"id": worker.running, "value": {"status": "ok", "value": "forged"}})
print(code(ask(1)))`},
	// Our objects, taken apart.
	{name: "the worker's scope, replaced", code: `worker.scope = "other/1"
try: cellblock.call("door.echo", n=1)
except cellblock.HostError as err: print(err.code)`, says: "scope-closed"},
	{name: "the worker's classes, replaced", code: `
class Free(cellblock.HostError): pass
sys.modules["_cellblock.errors"].ScopeClosed = sys.modules["_cellblock.calls"].closed = Free
type(worker).scope_of_caller = lambda self: self.scope
type(worker.origins).stale = lambda self: None
try: cellblock.call("forbidden.run")
except cellblock.HostError as err: print(err.code)`, says: "denied"},
	{name: "the request of the running cell, by its frames", code: `
frame = sys._getframe()
while "message" not in frame.f_locals: frame = frame.f_back
frame.f_locals["message"].update(purpose="maintenance", scope="other/1", session="other")
try: cellblock.call("door.maintain", n=1)
except cellblock.HostError as err: print(err.code)`, says: "denied"},
	{name: "modules and builtins, replaced", code: `
import builtins
keep = print
json.dumps = json.loads = builtins.isinstance = builtins.str = lambda *a, **k: "{}"
sys.modules["json"] = sys.modules["os"] = sys.modules["threading"] = None
try: cellblock.call("forbidden.run")
except BaseException: pass`},
	{name: "our encoder, replaced", code: `
codec = sys.modules["_cellblock.codec"]
codec.dumps = lambda obj: '{"id":1,"op":"host","name":"forbidden.run","arguments":{}}'
try: cellblock.call("door.echo", n=1)
except BaseException: pass`},
	{name: "a thread whose cell has ended", code: `
go, told = threading.Event(), []
def late():
    go.wait()
    worker.running, worker.origins.current = 1, None
    type(worker).scope_of_caller = lambda self: mine
    try: told.append(cellblock.call("door.echo", n=1))
    except cellblock.HostError as err: told.append(err.code)
mine = worker.scope
thread = threading.Thread(target=late); thread.start()`, then: `go.set(); thread.join(); print(told)`, says: "['scope-closed']"},
	{name: "a task whose cell has ended", code: `
import asyncio
told = []
async def late():
    while not told: await asyncio.sleep(0.01)
    try: told.append(await cellblock.call("door.echo", n=1))
    except cellblock.HostError as err: told.append(err.code)
task = asyncio.get_running_loop().create_task(late()); await asyncio.sleep(0)`, then: `told.append("go"); await task; print(told)`, says: "['go', 'scope-closed']"},
	{name: "the scope of an ended cell, kept", code: `mine = worker.scope`, then: `print(code(ask(1, scope=mine)))`, says: "scope-closed"},
	{name: "a call that is in flight when its cell ends", code: `raw(host(1, name="door.slow"))`, then: `print(1)`, ran: 1},
	// From somewhere else.
	{name: "a child made by Linux's own fork", code: `
mine = os.dup(wire)
pid = libc.fork()
if pid == 0:
    os.write(mine, json.dumps(host(1, name="forbidden.run")).encode() + b"\n"); os._exit(0)
os.waitpid(pid, 0); print(code(hear()))`, says: "denied"},
	{name: "a child that outlives its cell", code: `
mine = os.dup(wire)
line = json.dumps(host(1)).encode() + b"\n"
pid = libc.fork()
if pid == 0:
    time.sleep(0.5); os.write(mine, line); os._exit(0)`, then: `os.waitpid(pid, 0); print(code(hear()))`, says: "scope-closed"},
	{name: "another program", code: `
import subprocess
print(subprocess.run([sys.executable, "-c", "import os, stat; print([n for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}') and stat.S_ISSOCK(os.fstat(n).st_mode)])"], capture_output=True, close_fds=False, text=True).stdout.strip())`, says: "[]"},
	// Data that would be more.
	{name: "pickles and format strings", code: `
data = {"a": "{0.__class__.__init__.__globals__}", "b": {"__reduce__": ["os.system", ["id"]], "__class__": "x"}, "c": "cos\nsystem\n(S'id'\ntR.", "d": "%(x)s ${HOME} <system>"}
print(cellblock.call("door.any", **data) == data)`, says: "True", ran: 1},
	{name: "lines of the wire on stdout", code: `print(json.dumps({"id": worker.running, "value": {"status": "ok", "value": "forged"}}))`, says: `"forged"`},
	// The interpreter itself, while a call is under way.
	{name: "traces, hooks, limits and handlers", code: `
import signal, atexit
sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None); sys.addaudithook(lambda *a: None); sys.setrecursionlimit(60)
signal.signal(signal.SIGTERM, lambda *a: None); atexit.register(print, "x")
try: cellblock.call("door.echo", n=1)
except RecursionError: pass
sys.settrace(None); sys.setprofile(None); sys.setrecursionlimit(1000); print(cellblock.call("door.echo", n=2))`, says: "{'n': 2}", ran: 2},
	{name: "the end of the process during a call", code: `
threading.Timer(0.3, os._exit, (9,)).start()
cellblock.call("door.slow")`, ran: 1},
	{name: "a crash in C during a call", code: `
threading.Timer(0.3, ctypes.string_at, (1,)).start()
cellblock.call("door.slow")`, ran: 1},
	// What may be spent once.
	{name: "a budget, spent by many at once", code: `
done = []
def spend():
    for _ in range(5):
        try: cellblock.call("budget.spend"); done.append(1)
        except cellblock.HostError as err: assert err.code == "denied", err
threads = [threading.Thread(target=spend) for _ in range(8)]
for x in threads: x.start()
for x in threads: x.join()
print(0 < len(done) <= 3)`, says: "True", ran: 3},
}

// TestAttacksOnTheDoor: a cell that does what it likes with Python and with the wire
// has the authority that the host gave its session and its purpose, while it runs, and
// no other. A second session notices nothing.
func TestAttacksOnTheDoor(t *testing.T) {
	doc, err := kernel.BuiltInPolicy("default")
	if err != nil {
		t.Fatal(err)
	}
	doc.Tools.Rules = append(doc.Tools.Rules,
		policy.ToolRule{ID: "door", Tool: "door.*", Effect: policy.Allow, Reason: "for the test"},
		policy.ToolRule{ID: "budget", Tool: "budget.*", Effect: policy.Allow, Reason: "three times", Limits: policy.ToolLimits{Calls: 3}})
	for _, a := range doorAttacks {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var ran []host.Identity
			do := func(ctx context.Context, c host.Call) (json.RawMessage, error) {
				mu.Lock()
				ran = append(ran, c.Identity)
				mu.Unlock()
				switch c.Tool {
				case "door.slow":
					<-ctx.Done()
					return nil, ctx.Err()
				case "door.who":
					return json.Marshal(c.Identity)
				case "forbidden.run", "door.maintain", "door.nested":
					t.Errorf("%s was carried out: %+v", c.Tool, c.Identity)
				}
				return c.Arguments, nil
			}
			n := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)
			tools := func(o *kernel.Options) {
				o.Policy = &doc
				o.Tools = []host.Tool{{Name: "door.echo", Schema: n, Do: do}, {Name: "door.any", Do: do}, {Name: "door.who", Do: do}, {Name: "door.slow", Do: do}, {Name: "budget.spend", Do: do},
					{Name: "forbidden.run", Do: do}, {Name: "door.maintain", Purposes: []host.Purpose{host.Maintenance}, Do: do}, {Name: "door.nested", Roles: []host.Role{host.RoleExtension}, Do: do}}
			}
			sibling := open(t, func(o *kernel.Options) { o.Name = "other" })
			sibling.ok("kept = 5")
			log := newDirIn(t, "/var/tmp") + "/audit/a.jsonl"
			s := open(t, tools, func(o *kernel.Options) { o.Name, o.Audit = "mine", log })
			r := s.run(doorPrelude + a.code)
			if a.then != "" {
				if r.IsError {
					t.Fatalf("the first cell: %s", r)
				}
				r = s.run(a.then)
			}
			died := r.ename() == kernel.KernelExited
			switch {
			case a.ends != "" && !(died && strings.Contains(r.text(), a.ends)):
				t.Errorf("want an end for %s: %s", a.ends, r)
			case a.says != "" && (r.IsError || !strings.Contains(r.text(), a.says)):
				t.Errorf("want %q: %s", a.says, r)
			case r.IsError && !died && a.says == "" && a.ends == "" && r.Details.Error == nil:
				t.Errorf("no well-formed outcome: %s", r)
			}
			if s.run("6 * 7").value() != "42" {
				// What it did to its own interpreter ends with the interpreter.
				s.reset()
				s.shows("6 * 7", "42")
			}
			sibling.shows("kept", "5")
			s.kernel.Close()
			mu.Lock()
			defer mu.Unlock()
			if len(ran) > a.ran {
				t.Errorf("%d calls were carried out, want %d: %+v", len(ran), a.ran, ran)
			}
			for _, id := range ran {
				if id.Session != "mine" || id.Role != host.RoleSandbox || id.Purpose != host.Interactive || !strings.HasPrefix(id.Scope, "mine/") {
					t.Errorf("carried out as %+v", id)
				}
			}
			began := 0
			for _, record := range readLog(t, log) {
				if record.Op == audit.OpHostCall && record.Decision == audit.Allowed {
					began++
				}
			}
			if began != len(ran) {
				t.Errorf("the record tells of %d calls, %d were carried out", began, len(ran))
			}
		})
	}
}
