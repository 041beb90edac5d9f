"""Host calls of a worker: many at once, from threads and tasks, and their end."""

import select
import signal
import time
import unittest

from client import Host

TOOLS = "import cellblock, asyncio, threading, time\nfrom cellblock import HostError, ScopeClosed, TurnYield\n"


class Calls(unittest.TestCase):
    def setUp(self):
        self.host = Host()
        self.addCleanup(self.host.close)
        self.host.request("install-tool", name="t.echo", doc="Says it again.", signature="(n: int, word: str = 'x') -> dict",
                          schema={"type": "object", "properties": {"n": {"type": "integer"}, "word": {"type": "string"}}, "required": ["n"]})
        self.host.answer = lambda call: {"value": call["arguments"]}
        self.number = 0

    def cell(self, code, **fields):
        """Run a cell as the launcher does: with a number and a scope."""
        self.number += 1
        return self.host.cell(TOOLS + code, cell=self.number, scope="s/%d" % self.number, **fields)

    def begin(self, code):
        self.number += 1
        return self.host.start("run-block", code=TOOLS + code, cell=self.number, scope="s/%d" % self.number)

    def calls(self, count):
        """The next host calls, not answered."""
        got = []
        while len(got) < count:
            message = self.host.receive()
            self.assertEqual(message.get("op"), "host", message)
            got.append(message)
        return got

    def reply(self, call, **outcome):
        self.host.send(dict(outcome or {"value": call["arguments"]}, id=call["id"], scope=call["scope"]))

    def test_a_call_waits_and_gives_the_value(self):
        reply = self.cell("[t.echo(1), t.echo(n=2, word='y'), cellblock.call('t.echo', n=3)]")
        self.assertEqual(reply["value"], "[{'n': 1}, {'n': 2, 'word': 'y'}, {'n': 3}]")
        self.assertEqual([c["scope"] for c in self.host.hosted], ["s/1"] * 3)
        self.assertEqual([c["id"] for c in self.host.hosted], [1, 2, 3])

    def test_calls_of_tasks_are_in_flight_at_once(self):
        cell = self.begin("await asyncio.gather(*(t.echo(n) for n in range(5)))")
        for call in reversed(self.calls(5)):
            self.reply(call)
        self.assertEqual(self.host.wait(cell)["value"]["value"], str([{"n": n} for n in range(5)]))
        reply = self.cell("await asyncio.create_task(t.echo(1)), await t.echo(2), t.echo.sync(3)")
        self.assertEqual(reply["value"], "({'n': 1}, {'n': 2}, {'n': 3})")

    def test_calls_beyond_those_in_flight_wait_in_the_worker(self):
        cell = self.begin("sum(r['n'] for r in await asyncio.gather(*(t.echo(n) for n in range(100))))")
        open_calls = self.calls(32)
        self.assertFalse(select.select([self.host.sock], [], [], 0.2)[0] or self.host.buffer)
        done = 0
        while open_calls:
            self.reply(open_calls.pop())
            done += 1
            if done + len(open_calls) < 100:
                open_calls += self.calls(1)
        self.assertEqual(self.host.wait(cell)["value"]["value"], "4950")

    def test_threads_call_beside_each_other(self):
        reply = self.cell("""
found = []
def work(n):
    for i in range(40): found.append(t.echo(n * 100 + i)["n"])
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for x in threads: x.start()
for i in range(40): t.echo(-1)
for x in threads: x.join()
sorted(found) == sorted(n * 100 + i for n in range(8) for i in range(40))""")
        self.assertEqual(reply.get("value"), "True", reply)

    def test_threads_tasks_and_the_main_thread_at_once(self):
        reply = self.cell("""
found = []
def work(n):
    for i in range(20): found.append(t.echo(n)["n"])
def loop(n):
    async def all():
        found.extend(r["n"] for r in await asyncio.gather(*(t.echo(n) for i in range(20))))
    asyncio.run(all())
threads = [threading.Thread(target=f, args=(n,)) for n, f in enumerate([work, loop, work, loop])]
for x in threads: x.start()
for r in await asyncio.gather(*(t.echo(9) for i in range(50))): found.append(r["n"])
while any(x.is_alive() for x in threads): await asyncio.sleep(0.01)
sorted(found) == sorted([0, 1, 2, 3] * 20 + [9] * 50)""")
        self.assertEqual(reply.get("value"), "True", reply)

    def test_errors_keep_code_message_type_and_fields(self):
        self.host.answer = lambda call: {"error": {"type": "NotFound", "code": "missing", "message": "no row", "fields": {"id": 7}}}
        reply = self.cell("""
try: t.echo(1)
except HostError as err: told = (err.code, err.message, err.type, err.fields, str(err), type(err) is HostError)
told""")
        self.assertEqual(reply["value"], "('missing', 'no row', 'NotFound', {'id': 7}, 'missing: NotFound: no row', True)")
        reply = self.cell("await t.echo(1)")
        self.assertEqual((reply["error"]["ename"], reply["error"]["evalue"]), ("HostError", "missing: NotFound: no row"))
        self.assertIn("\ncellblock.HostError: missing", reply["error"]["traceback"])
        self.assertNotIn("calls.py", reply["error"]["traceback"])

    def test_what_is_not_json_is_not_sent(self):
        for argument, kind in {"{1, 2}": "TypeError", "object()": "TypeError", "float('nan')": "ValueError", "'\\ud800'": "ValueError", "{1: 2}": "TypeError",
                               "b'x'": "TypeError", "(lambda f: f(f, 99))(lambda f, n: [f(f, n - 1)] if n else 0)": "ValueError",
                               "{str(n): 0 for n in range(5000)}": "ValueError", "'x' * (1 << 20)": "HostError"}.items():
            reply = self.cell("t.echo(n=%s)" % argument)
            self.assertEqual(reply["error"]["ename"], kind, argument)
        self.assertEqual(self.cell("t.echo(1, 2, 3)")["error"]["ename"], "TypeError")
        self.assertEqual(self.cell("t.echo(1, n=3)")["error"]["ename"], "TypeError")
        self.assertEqual(self.host.hosted, [])
        self.assertEqual(self.cell("t.echo(n=[1, (2, {'a': None}), 10**30])")["value"], "{'n': [1, [2, {'a': None}], 1000000000000000000000000000000]}")

    def test_what_the_wire_does_not_take_is_not_sent(self):
        for code in ("cellblock.call('')", "cellblock.call('\\ud800')", "cellblock.call('n' * 4097)", "cellblock.call('\u20ac' * 1366)", "cellblock.call('host.cancel', call=1.0)",
                     "cellblock.call('t.echo', **{'k' * 100000: 1})", "cellblock.call('t.echo', a={'b': [{'k' * 4097: 1}]})", "cellblock.call('t.echo', n=10**4299 * 10)", "t.echo(1, word={'\\ud800': 1})"):
            for form in (code, "await " + code):
                self.assertIn(self.cell(form)["error"]["ename"], ("InvalidArguments", "ValueError"), form)
        self.assertEqual(self.host.hosted, [])
        for code in ("cellblock.call('n' * 4096)", "cellblock.call('t.echo', **{'k' * 4096: 1, '\u20ac' * 1365: 2})", "cellblock.call('t.echo', n=2**14279)"):
            self.assertEqual(self.cell(code)["status"], "ok", code)
        self.assertEqual(len(self.host.hosted), 3)

    def test_a_call_that_nobody_awaits_any_more_is_cancelled(self):
        cell = self.begin("""
try: await asyncio.wait_for(t.echo(1), 0.05)
except asyncio.TimeoutError: pass
await t.echo(2)""")
        first, cancel, second = self.calls(3)
        self.assertEqual((cancel["name"], cancel["arguments"], cancel["scope"]), ("host.cancel", {"call": first["id"]}, first["scope"]))
        self.reply(first, value="too late")
        self.reply(cancel, value=True)
        self.reply(first, error={"type": "HostError", "code": "cancelled", "message": "again"})
        self.reply(second)
        self.assertEqual(self.host.wait(cell)["value"]["value"], "{'n': 2}")

    def test_answers_of_another_scope_are_ignored(self):
        cell = self.begin("t.echo(1)")
        call, = self.calls(1)
        self.host.send({"id": call["id"], "scope": "s/99", "value": "not mine"})
        self.reply(call)
        self.assertEqual(self.host.wait(cell)["value"]["value"], "{'n': 1}")

    def test_answers_that_are_none_end_the_worker(self):
        for bad in ({"value": 1, "error": {"code": "x", "message": "y"}}, {}, {"value": 1, "extra": 2}, {"error": "text"}, {"error": {"code": 1}}, {"id": 99, "value": 1}, b"{]\n"):
            with Host() as host:
                host.start("run-block", code="import cellblock\ntry: cellblock.call('t.echo')\nexcept BaseException: pass")
                call = host.receive()
                if isinstance(bad, bytes):
                    host.sock.sendall(bad)
                else:
                    host.send(dict({"id": call["id"]}, **bad))
                self.assertEqual(host.process.wait(10), 70, bad)
                self.assertIn("protocol error", host.drain(host.err))

    def test_what_outlives_its_cell_has_no_authority(self):
        self.cell("""
go = threading.Event(); told = []
def late():
    go.wait()
    try: t.echo(1)
    except ScopeClosed as err: told.append(err.code)
async def task():
    await asyncio.sleep(0)
    while not go.is_set(): await asyncio.sleep(0.01)
    try: await t.echo(2)
    except ScopeClosed as err: told.append(err.code)
thread = threading.Thread(target=late); thread.start()
kept = asyncio.get_running_loop().create_task(task()); await asyncio.sleep(0)""")
        reply = self.cell("go.set(); thread.join(); await kept; told, await t.echo(3)")
        self.assertEqual(reply["value"], "(['scope-closed', 'scope-closed'], {'n': 3})")
        self.assertEqual(len(self.host.hosted), 1)

    def test_calls_in_flight_when_the_cell_ends_are_closed(self):
        cell = self.begin("""
told = []
def wait():
    try: t.echo(1)
    except ScopeClosed as err: told.append('thread')
async def task():
    try: await t.echo(2)
    except ScopeClosed as err: told.append('task')
thread = threading.Thread(target=wait); thread.start()
kept = asyncio.get_running_loop().create_task(task())
await asyncio.sleep(0.1)""")
        calls = self.calls(2)
        self.assertEqual(self.host.wait(cell)["value"]["status"], "ok")
        # The host says nothing at all: the thread sees by itself that its cell has ended.
        self.assertEqual(self.cell("thread.join(); await kept; sorted(told)")["value"], "['task', 'thread']")
        for call in calls:
            self.reply(call, error={"type": "HostError", "code": "cancelled", "message": ""})
        self.assertEqual(self.cell("t.echo(3)")["value"], "{'n': 3}")

    def interrupted(self, code, parked):
        """Interrupt a cell whose calls are in flight; its reply."""
        cell = self.begin(code)
        calls = self.calls(parked)
        control = self.host.start("interrupt", target=cell)
        got, end = {}, time.time() + 20
        while not (cell in got and control in got) and time.time() < end:
            if control not in got:
                self.host.process.send_signal(signal.SIGINT)
            if not self.host.buffer and not select.select([self.host.sock], [], [], 0.05)[0]:
                continue
            message = self.host.receive()
            if message.get("op") == "host":
                calls.append(message)
            else:
                got[message["id"]] = message["value"]
        self.assertIs(got[control], True)
        for call in calls:
            if call["name"] == "host.cancel":
                self.reply(call, value=True)
            else:
                self.reply(call, error={"type": "HostError", "code": "cancelled", "message": ""})
        return got[cell], calls

    def test_an_interrupt_reaches_a_cell_that_waits_for_the_host(self):
        reply, calls = self.interrupted("x = 5\nt.echo(1)", 1)
        self.assertEqual(reply["error"]["ename"], "KeyboardInterrupt")
        self.assertEqual([c["name"] for c in calls], ["t.echo", "host.cancel"])
        reply, calls = self.interrupted("await t.echo(1)", 1)
        self.assertEqual(reply["error"]["ename"], "KeyboardInterrupt")
        self.assertEqual([c["name"] for c in calls], ["t.echo", "host.cancel"])
        reply, _ = self.interrupted("await asyncio.gather(*(t.echo(n) for n in range(5)))", 5)
        self.assertEqual(reply["error"]["ename"], "KeyboardInterrupt")
        self.assertEqual(self.cell("x, t.echo(2)")["value"], "(5, {'n': 2})")

    def test_an_interrupt_reaches_the_main_thread_while_another_waits(self):
        # The thread waits until it has been started: an interrupt within Thread.start
        # can come out as an error of threading's own lock.
        threads = ("gate = threading.Lock(); gate.acquire()\n"
                   "threading.Thread(target=lambda: (gate.acquire(), t.echo(1)), daemon=True).start()\n"
                   "gate.release()\n")
        for code, parked in (("while True: pass", 1), ("time.sleep(60)", 1), ("time.sleep(0.2); t.echo(2)", 2), ("await asyncio.sleep(60)", 1), ("await asyncio.sleep(0.1); await t.echo(2)", 2)):
            reply, _ = self.interrupted("threading.excepthook = lambda _: None\n" + threads + code, parked)
            self.assertEqual(reply["error"]["ename"], "KeyboardInterrupt", code)
            self.assertEqual(self.cell("t.echo(2)")["value"], "{'n': 2}")

    def test_a_turn_is_yielded(self):
        reply = self.cell("""
try: raise TurnYield("wait for the review")
finally:
    try: t.echo(1)
    except ScopeClosed as err: print(err.code)""")
        self.assertEqual((reply["status"], reply["yielded"], reply["value"], reply["stdout"]), ("ok", True, "wait for the review", "scope-closed\n"))
        self.assertEqual(self.host.hosted, [])
        reply = self.cell("async def f(): raise TurnYield\nawait asyncio.gather(f(), asyncio.sleep(0))")
        self.assertEqual((reply["status"], reply["yielded"]), ("ok", True))
        self.host.answer = lambda call: {"error": {"type": "HostError", "code": "turn-yield", "message": "later"}}
        reply = self.cell("""
try: t.echo(1)
except TurnYield: pass
try: t.echo(2)
except ScopeClosed as err: print(err.code)""")
        self.assertEqual((reply["status"], reply["yielded"], reply["stdout"]), ("ok", True, "scope-closed\n"))
        self.host.answer = lambda call: {"value": 1}
        reply = self.cell("t.echo(1)")
        self.assertEqual((reply["value"], reply.get("yielded")), ("1", None))

    def test_help_shows_what_a_tool_takes(self):
        self.host.request("install-tool", name="t.plain", schema={"type": "object", "properties": {"a": {}, "b": {"default": 3}}, "required": ["a"]})
        self.host.request("install-tool", name="t.odd", signature="(a=nowhere)", schema={"type": "object"})
        reply = self.cell("import inspect\nprint([str(inspect.signature(f)) for f in (t.echo, t.echo.sync, t.plain)])\nhelp(t.echo)\nhelp(cellblock)")
        self.assertIn("[\"(n: 'int', word: 'str' = 'x') -> 'dict'\", \"(n: 'int', word: 'str' = 'x') -> 'dict'\", '(a, b=3)']", reply["stdout"])
        self.assertIn("Says it again.", reply["stdout"])
        self.assertIn("maintenance_assess(", reply["stdout"])
        self.host.request("install-tool", name="t.later", signature="(z)")
        self.assertEqual(self.cell("str(inspect.signature(t.later))")["value"], "'(z)'")

    def test_the_rules_of_assessments_are_checked_before_anything_is_sent(self):
        for call, say in {
            "maintenance_assess('w', 'done')": "no-change, needs-evidence, deferred, candidate-failed, activated",
            "maintenance_assess('w', 'no-change')": "needs a reason",
            "maintenance_assess('w', 'deferred', reason=' ')": "needs a reason",
            "maintenance_assess('w', 'candidate-failed')": "needs a reason",
            "maintenance_assess('w', 'needs-evidence', reason='r')": "missing_refs or revisit_deadline_ms",
            "maintenance_assess('w', 'activated', reason='r')": "candidate_revision",
            "maintenance_assess('', 'no-change', reason='r')": "work_item_id",
            "maintenance_assess('w', 'deferred', reason='r', trigger_ms=-1)": "trigger_ms",
            "maintenance_originate('', 'r')": "purpose",
            "maintenance_originate('p', '')": "reason",
            "maintenance_originate('p', 'r', 'ref')": "evidence_refs",
            "evidence_resolve('ref')": "refs",
        }.items():
            reply = self.cell("cellblock." + call)
            self.assertEqual(reply["error"]["ename"], "InvalidArguments", call)
            self.assertIn(say, reply["error"]["evalue"], call)
        self.assertEqual(self.host.hosted, [])
        for call, sent in {
            "workspace_info()": ("workspace.info", {}),
            "evidence_resolve(['a'])": ("evidence.resolve", {"refs": ["a"]}),
            "maintenance_originate('p', 'r', ['e'], {'n': 1})": ("maintenance.originate", {"purpose": "p", "reason": "r", "evidence_refs": ["e"], "impact": {"n": 1}}),
            "maintenance_assess('w', 'needs-evidence', revisit_deadline_ms=5)": ("maintenance.assess", {"work_item_id": "w", "outcome": "needs-evidence", "missing_refs": [], "revisit_deadline_ms": 5, "check_receipts": []}),
            "maintenance_assess('w', 'activated', candidate_revision='c')": ("maintenance.assess", {"work_item_id": "w", "outcome": "activated", "missing_refs": [], "candidate_revision": "c", "check_receipts": []}),
        }.items():
            self.assertEqual(self.cell("cellblock." + call)["status"], "ok", call)
            self.assertEqual((self.host.hosted[-1]["name"], self.host.hosted[-1]["arguments"]), sent)

    def test_a_forked_child_has_no_authority(self):
        reply = self.cell("""
pid = os.fork()
if pid == 0:
    try: t.echo(1)
    except ScopeClosed: os._exit(7)
    os._exit(1)
os.waitpid(pid, 0)[1] >> 8, t.echo(2)""")
        self.assertEqual(reply["value"], "(7, {'n': 2})")

    def test_large_answers_wait_until_the_cell_reads_them(self):
        cell = self.begin("async def f(): return len(await t.echo(1))\ntask = asyncio.ensure_future(f()); await asyncio.sleep(0.05)\ntime.sleep(0.5)\nawait task")
        call, = self.calls(1)
        self.reply(call, value="x" * (4 << 20))
        self.assertEqual(self.host.wait(cell)["value"]["value"], str(4 << 20))


if __name__ == "__main__":
    unittest.main()
