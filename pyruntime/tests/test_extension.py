"""The extension worker, driven over its wire."""

import textwrap
import time
import unittest

from extension_client import IDENTITY, Worker


class WorkerTest(unittest.TestCase):
    def start(self, body=None, answer=None):
        worker = Worker(answer)
        self.addCleanup(worker.close)
        if body is not None:
            reply = worker.load("import cellblock\n" + textwrap.dedent(body))
            self.assertIn("value", reply, reply)
            worker.described = reply["value"]
        return worker


class Loading(WorkerTest):
    def test_a_file_says_what_it_has(self):
        worker = self.start('''
            def add(a: int, b: int = 1) -> int:
                """Add two numbers."""
                return a + b
            cellblock.register(cellblock.Extension(name="sums", tools=[add], prompt=lambda: "It adds.",
                slash={"sum": lambda text, context: text}, hooks={"before_cell": lambda event, context: None}))
            ''')
        found = worker.described
        self.assertEqual((found["name"], found["prompt"], found["hooks"], found["slash"]), ("sums", "It adds.", ["before_cell"], [{"name": "sum", "doc": ""}]))
        tool = found["tools"][0]
        self.assertEqual((tool["name"], tool["doc"], tool["signature"]), ("add", "Add two numbers.", "(a: int, b: int = 1)"))
        self.assertEqual(tool["schema"], {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}}, "required": ["a"], "additionalProperties": False})

    def test_what_keeps_a_file_from_loading_is_said_with_its_line(self):
        worker = self.start()
        for source, kind, text in (
            ("x = 1\n", "ValueError", "0 calls"),
            ("import cellblock\n1/0\n", "ZeroDivisionError", "line 2"),
            ("def f(:\n", "SyntaxError", "line 1"),
            ("import cellblock\nfor n in 'ab': cellblock.register(cellblock.Extension(name=n))\n", "ValueError", "2 calls"),
            ("import cellblock\ndef f(a: bytes): pass\ncellblock.register(cellblock.Extension(name='x', tools=[f]))\n", "Unsupported", "bytes"),
            ("import sys\nsys.exit(3)\n", "SystemExit", "3"),
            ("import cellblock\ncellblock.register(cellblock.Extension(name='a b'))\n", "ValueError", "no name"),
        ):
            error = worker.load(source)["error"]
            self.assertIn(text, error["message"])
            self.assertEqual(error["type"], "NotLoaded")
            self.assertIn(kind, error["fields"]["traceback"])
        self.assertIn("value", worker.load("import cellblock\ncellblock.register(cellblock.Extension(name='x'))\n"))

    def test_an_exception_that_cannot_be_told_keeps_no_load_from_its_answer(self):
        worker = self.start()
        for body in ("def __str__(self): raise SystemExit(1)", "__notes__ = property(lambda self: 1 / 0)", "lineno = property(lambda self: 1 / 0)", "__cause__ = property(lambda self: 1 / 0)"):
            for base in ("Exception", "SyntaxError", "cellblock.HostError"):
                reply = worker.load("import cellblock\nclass E(%s):\n    def __init__(self): pass\n    %s\nraise E()\n" % (base, body))
                self.assertEqual(reply["error"]["type"], "NotLoaded", body)
                self.assertIn("line 5", reply["error"]["message"])
        self.assertIn("value", worker.load("import cellblock\ncellblock.register(cellblock.Extension(name='x'))\n"))

    def test_an_unknown_request_is_refused_and_the_worker_lives_on(self):
        worker = self.start("cellblock.register(cellblock.Extension(name='x', tools=[]))")
        self.assertIn("unknown op", worker.request("eval", code="1")["error"]["message"])
        self.assertIn("unknown field", worker.request("close", now=True)["error"]["message"])
        self.assertIn("no tool", worker.call("absent")["error"]["message"])
        self.assertIn("not loaded", worker.call("f", name="other")["error"]["message"])
        self.assertEqual(worker.request("close"), {"id": worker.number, "value": True})


class Calls(WorkerTest):
    def test_arguments_come_as_the_hints_say(self):
        worker = self.start('''
            import dataclasses, enum, typing
            class Color(enum.Enum):
                RED = "red"
            @dataclasses.dataclass
            class Point:
                x: int
                y: float = 0.0
            class Options(typing.TypedDict, total=False):
                deep: bool
            def f(point: Point, color: Color, pair: typing.Tuple[int, str], many: typing.List[Point], options: Options, maybe: typing.Optional[int] = None,
                  mode: typing.Literal["a", 1] = "a", table: typing.Dict[str, Point] = {}, either: typing.Union[int, str] = 0):
                return [type(v).__name__ for v in (point, point.y, color, pair, many[0], options, table["k"], either)]
            cellblock.register(cellblock.Extension(name="x", tools=[f]))
            ''')
        given = {"point": {"x": 1.0, "y": 2}, "color": "red", "pair": [1, "a"], "many": [{"x": 1}], "options": {"deep": True}, "mode": 1, "table": {"k": {"x": 2}}, "either": "s"}
        self.assertEqual(worker.call("f", given).get("value"), ["Point", "float", "Color", "tuple", "Point", "dict", "Point", "str"])
        for broken in ({"point": {"x": "1"}}, {"color": "blue"}, {"pair": [1]}, {"mode": True}, {"table": {"k": 1}}, {"either": 1.5}, {"more": 1}, {"point": {"x": 1, "z": 1}}, {"point": {"x": True}}):
            error = worker.call("f", dict(given, **broken))["error"]
            self.assertEqual(error["code"], "invalid-arguments", broken)

    def test_a_handler_gets_arguments_and_context(self):
        worker = self.start('''
            def f(arguments, context):
                return [arguments, context.session_id, context.workspace, context.purpose, context.scope, round(context.deadline), context.identity.cell]
            cellblock.register(cellblock.Extension(name="x", tools=[f]))
            ''')
        self.assertEqual(worker.call("f", {"b": 1, "a": 2}, deadline=5)["value"], [{"b": 1, "a": 2}, "s1", "/srv/s1", "interactive", "s1.1.3", 5, 3])

    def test_a_deadline_outlasts_the_wall_clock(self):
        worker = self.start('''
            import time
            def f(arguments, context):
                before, real = context.remaining(), time.time
                time.time = lambda: real() + 3600  # the clock is set forth
                try:
                    return [before - context.remaining() < 5, abs(context.deadline - time.time() - before) < 5, before]
                finally:
                    time.time = real
            cellblock.register(cellblock.Extension(name="x", tools=[f]))
            ''')
        kept, told, before = worker.call("f", {}, deadline=time.time() + 100)["value"]
        self.assertTrue(kept and told and 50 < before <= 100, (kept, told, before))

    def test_a_context_expires_with_its_call(self):
        worker = self.start('''
            kept = []
            def keep(context):
                kept.append((context, context.host))
            def use(context):
                found = []
                for use in (lambda: kept[0][0].session_id, lambda: kept[0][0].host, lambda: kept[0][1].call("x.y")):
                    try:
                        found.append(use())
                    except cellblock.ContextExpired as err:
                        found.append("expired")
                return found
            cellblock.register(cellblock.Extension(name="x", tools=[keep, use]))
            ''')
        worker.call("keep")
        self.assertEqual(worker.call("use")["value"], ["expired"] * 3)
        self.assertEqual(worker.hosted, [])

    def test_results_keep_their_order_and_what_is_no_data_is_an_error(self):
        worker = self.start('''
            import dataclasses
            @dataclasses.dataclass
            class D:
                z: int = 1
                a: tuple = (1, 2)
            def f(which: str):
                return {"order": {"z": 1, "a": [D()], "m": None}, "object": object(), "nan": float("nan"), "key": {1: 2}, "half": "\\ud800"}[which]
            cellblock.register(cellblock.Extension(name="x", tools=[f]))
            ''')
        value = worker.call("f", {"which": "order"})["value"]
        self.assertEqual((list(value), list(value["a"][0]), value["a"][0]["a"]), (["z", "a", "m"], ["z", "a"], [1, 2]))
        for which in ("object", "nan", "key", "half"):
            self.assertEqual(worker.call("f", {"which": which})["error"]["type"], "TypeError", which)

    def test_errors_keep_type_message_and_fields(self):
        worker = self.start('''
            class Odd(ValueError):
                fields = ("path", "line")
                path, line = "/x", 3
            def f(which: str):
                if which == "host":
                    raise cellblock.HostError("not-found", "no such note", {"title": "x"})
                if which == "exit":
                    raise SystemExit(3)
                raise Odd("odd")
            cellblock.register(cellblock.Extension(name="x", tools=[f]))
            ''')
        self.assertEqual(worker.call("f", {"which": "odd"})["error"], {"type": "Odd", "code": "failed", "message": "odd", "fields": {"path": "/x", "line": 3}})
        self.assertEqual(worker.call("f", {"which": "host"})["error"], {"type": "HostError", "code": "not-found", "message": "no such note", "fields": {"title": "x"}})
        self.assertEqual(worker.call("f", {"which": "exit"})["error"]["type"], "SystemExit")
        self.assertIn("Odd: odd", worker.printed())

    def test_results_and_errors_beyond_the_bounds_are_errors_of_their_call(self):
        worker = self.start('''
            import dataclasses, enum
            def big(which):
                wide = {"k%d" % n: 0 for n in range(4097)}
                return {"keys": wide, "deep": [{"in": wide}], "long": {"k" * 4097: 0}, "euro": {"\u20ac" * 1366: 0}, "digits": -10**4300,
                    "fits": [dict(list(wide.items())[:4096]), {"k" * 4096: 0, "\u20ac" * 1365: 0}, 2**14279]}[which]
            class Bad(Exception):
                def __init__(self, which): self.fields = {"it": big(which)}
            def f(which: str): return big(which)
            def fail(which: str): raise Bad(which)
            def ask(which: str, context): return context.host.call("a.b", it=big(which))
            def name(which: str, context): return context.host.call({"none": "", "half": "\\ud800", "long": "n" * 4097, "own": "host.cancel", "number": 5}[which], call=1.0)
            def look(arguments, identity): return {"it": big(arguments["which"])}
            cellblock.register(cellblock.Extension(name="x", tools=[cellblock.Tool(f, preflight=look), fail, ask, name]))
            ''')
        preflight = lambda which: worker.request("preflight", extension="x", tool="f", arguments={"which": which}, identity=IDENTITY)
        for which, text in (("keys", "4097 keys"), ("deep", "[0]['in'] has 4097 keys"), ("long", "4097 characters"), ("euro", "1366 characters"), ("digits", "14285 bits")):
            for reply in (worker.call("f", {"which": which}), worker.call("ask", {"which": which}), preflight(which)):
                self.assertEqual(reply["error"]["type"], "ValueError", which)
                self.assertIn(text, reply["error"]["message"])
            error = worker.call("fail", {"which": which})["error"]
            self.assertEqual((error["type"], "fields" in error), ("Bad", False))
            self.assertIn(text, error["message"])
        for tool in ("f", "ask"):
            self.assertIn("value", worker.call(tool, {"which": "fits"}), tool)
        self.assertEqual(worker.call("fail", {"which": "fits"})["error"]["fields"]["it"][2], 2**14279)
        self.assertEqual(len(preflight("fits")["value"]["it"]), 3)
        for which in ("none", "half", "long", "own"):
            self.assertEqual(worker.call("name", {"which": which})["error"]["code"], "invalid-arguments", which)
        self.assertEqual(worker.call("name", {"which": "number"}), {"id": worker.number, "value": None})
        self.assertEqual(worker.hosted[-1]["name"], "5")

    def test_an_exception_that_cannot_be_told_is_told_all_the_same(self):
        worker = self.start('''
            import sys
            class Silent(cellblock.HostError):
                def __init__(self, what): self.what = what
            class Mute(Exception):
                def __str__(self): raise SystemExit(1)
            class Fieldless(Exception):
                @property
                def fields(self): raise KeyboardInterrupt
            class Host(cellblock.HostError):
                @property
                def code(self): raise ValueError("no code")
                def __init__(self): pass
            class Meta(type):
                @property
                def __name__(cls): raise ValueError("no name")
            class Noted(Exception, metaclass=Meta):
                @property
                def __notes__(self): raise SystemExit(2)
            class Posing(Exception):
                @property
                def __class__(self): raise SystemExit(3)
            class Str(str):
                def __str__(self): return self
                def encode(self, *how): raise SystemExit(4)
            def f(which: str):
                if which == "number":
                    err = cellblock.HostError("a", "b")
                    err.message, err.code, err.type, err.fields = 5, None, {}, 7
                    raise err
                if which == "text":
                    err = cellblock.HostError("a", "b")
                    err.message = Str("said")
                    raise err
                raise {"silent": lambda: Silent("x"), "mute": Mute, "fieldless": lambda: Fieldless("f"), "host": Host, "noted": lambda: Noted("n"),
                    "posing": lambda: Posing("p"), "group": lambda: RecursionError("deep")}[which]()
            def shut():
                sys.__stderr__.close()
                sys.stdout = sys.stderr = None
            def loud():
                class Loud:
                    def write(self, text): raise SystemExit(5)
                    def flush(self): raise SystemExit(6)
                sys.stderr = Loud()
            cellblock.register(cellblock.Extension(name="x", tools=[f, shut, loud]))
            ''')
        whole = (("silent", "Silent", "failed", "x"), ("mute", "Mute", "failed", "<SystemExit in str()>"), ("fieldless", "Fieldless", "failed", "f (its fields are left out: )"),
                 ("host", "HostError", "failed", None), ("noted", None, "failed", "n"), ("posing", "Posing", "failed", "p"),
                 ("number", "{}", "None", "5"), ("text", "HostError", "a", "said"), ("group", "RecursionError", "failed", "deep"))
        for spoil in ("none", "loud", "shut"):
            if spoil != "none":
                self.assertEqual(worker.call(spoil), {"id": worker.number, "value": None})
            for which, kind, code, message in whole:
                error = worker.call("f", {"which": which})["error"]
                self.assertEqual(error["code"], code, which)
                if which != "silent" and kind is not None:
                    self.assertEqual(error["type"], kind, which)
                if message is not None:
                    self.assertEqual(error["message"], message, which)
        self.assertIn("RecursionError: deep", worker.printed())

    def test_preflight_declares_and_has_no_host(self):
        worker = self.start('''
            def look(arguments, identity):
                assert not hasattr(identity, "host")
                return None if arguments["title"] == "" else cellblock.Action("notes.delete", title=arguments["title"], by=identity.session_id)
            def delete(title: str): return "deleted"
            cellblock.register(cellblock.Extension(name="x", tools=[cellblock.Tool(delete, preflight=look)]))
            ''')
        ask = lambda title: worker.request("preflight", extension="x", tool="delete", arguments={"title": title}, identity=IDENTITY)
        self.assertEqual(ask("a")["value"], {"action": "notes.delete", "title": "a", "by": "s1"})
        self.assertIsNone(ask("")["value"])

    def test_slash_and_hooks(self):
        worker = self.start('''
            def hook(event, context):
                if event["cell"] == 2: raise ValueError("no")
            cellblock.register(cellblock.Extension(name="x", slash=[cellblock.Slash("up", lambda text, context: text.upper(), "Shout.")], hooks={"after_cell": hook}))
            ''')
        self.assertEqual(worker.request("slash", extension="x", command="up", text="a", identity=IDENTITY)["value"], "A")
        run = lambda cell: worker.request("hook", extension="x", hook="after_cell", event={"cell": cell}, identity=IDENTITY)
        self.assertIsNone(run(1)["value"])
        self.assertEqual(run(2)["error"]["message"], "no")


class HostCalls(WorkerTest):
    BODY = '''
        import asyncio
        def sync(context):
            return context.host.call("a.b", x=1)
        async def both(context):
            return await asyncio.gather(context.host.call("a.b", x=1), context.host.call("a.b", x=2))
        async def late(context):
            try:
                await asyncio.wait_for(context.host.call("never"), 0.05)
            except asyncio.TimeoutError:
                return "late"
        cellblock.register(cellblock.Extension(name="x", tools=[sync, both, late]))
        '''

    def test_a_handler_calls_the_host_and_the_scope_is_its_call(self):
        worker = self.start(self.BODY, lambda m: {"value": m["arguments"]["x"] * 10})
        self.assertEqual(worker.call("sync")["value"], 10)
        self.assertEqual(worker.hosted[0]["scope"], str(worker.number))
        self.assertEqual(worker.call("both")["value"], [10, 20])

    def test_a_host_error_goes_through(self):
        worker = self.start(self.BODY, lambda m: {"error": {"type": "Odd", "code": "denied", "message": "no", "fields": {"n": 1}}})
        for tool in ("sync", "both"):
            self.assertEqual(worker.call(tool)["error"], {"type": "Odd", "code": "denied", "message": "no", "fields": {"n": 1}})

    def test_a_task_that_gives_up_cancels_its_host_call(self):
        worker = self.start(self.BODY, lambda m: {"value": True} if m["name"] == "host.cancel" else None)
        self.assertEqual(worker.call("late")["value"], "late")
        while len(worker.hosted) < 2:
            worker.step()
        self.assertEqual([m["name"] for m in worker.hosted], ["never", "host.cancel"])
        self.assertEqual(worker.hosted[1]["arguments"], {"call": worker.hosted[0]["id"]})


class Cancelling(WorkerTest):
    BODY = '''
        import asyncio, threading, time
        def spin(context):
            context.host.call("begun")
            while True: pass
        def parked(context):
            context.host.call("never")
        async def awaits(context):
            await context.host.call("never")
        async def spins(context):
            await context.host.call("begun")
            while True: pass
        def asks(context):
            stop = threading.Event()
            context.on_cancel(stop.set)
            context.host.call("begun")
            stop.wait()
            return "stopped"
        def tidies(context):
            try:
                context.host.call("never")
            finally:
                time.sleep(0.01)
        def fine(): return 1
        cellblock.register(cellblock.Extension(name="x", tools=[spin, parked, awaits, spins, asks, tidies, fine]))
        '''

    def test_every_kind_of_handler_is_stopped_and_answered_once(self):
        begun = []
        worker = self.start(self.BODY, lambda m: begun.append(m) or ({"value": None} if m["name"] != "never" else None))
        for round in range(5):
            for tool in ("spin", "parked", "awaits", "spins", "asks", "tidies"):
                del begun[:]
                number = worker.send("call", extension="x", tool=tool, arguments={}, identity=IDENTITY)
                while not begun:
                    worker.step()
                self.assertTrue(worker.request("cancel", call=number)["value"])
                if tool == "spins":
                    worker.request("cancel", call=number)
                reply = worker.wait(number)
                self.assertTrue("error" in reply and reply["error"]["code"] == "cancelled" or tool == "asks", (tool, reply))
                self.assertEqual(worker.call("fine")["value"], 1)

    def test_what_an_exception_left_in_the_loop_does_not_reach_the_next_call(self):
        worker = self.start('''
            import asyncio, threading
            def strike(): raise KeyboardInterrupt
            async def struck():  # between the coroutine's end and the loop's
                asyncio.get_running_loop().call_soon(strike)
            async def stuck():
                loop = asyncio.get_running_loop()
                def run_forever():  # as if struck on the way out
                    loop._thread_id = threading.get_ident()
                    asyncio._set_running_loop(loop)
                    raise KeyboardInterrupt
                loop.run_forever = run_forever
                return 2
            async def turns(n: int):
                for i in range(n): await asyncio.sleep(0)
                return n
            cellblock.register(cellblock.Extension(name="x", tools=[struck, stuck, turns]))
            ''')
        self.assertEqual(worker.call("struck")["error"]["type"], "KeyboardInterrupt")
        self.assertEqual(worker.call("turns", {"n": 3}).get("value"), 3)
        self.assertEqual(worker.call("stuck").get("value"), 2)
        self.assertEqual(worker.call("turns", {"n": 3})["error"]["type"], "KeyboardInterrupt")
        self.assertEqual(worker.call("turns", {"n": 3}).get("value"), 3)

    def test_a_call_that_waits_in_the_queue_is_cancelled_before_it_begins(self):
        worker = self.start(self.BODY)
        first = worker.send("call", extension="x", tool="spin", arguments={}, identity=IDENTITY)
        second = worker.send("call", extension="x", tool="fine", arguments={}, identity=IDENTITY)
        self.assertTrue(worker.request("cancel", call=second)["value"])
        while not worker.hosted:
            worker.step()
        worker.request("cancel", call=first)
        self.assertEqual([worker.wait(n)["error"]["code"] for n in (first, second)], ["cancelled"] * 2)
        self.assertFalse(worker.request("cancel", call=first)["value"])

    def test_cancels_at_any_moment_leave_the_worker_whole(self):
        worker = self.start('''
            def work(n: int):
                total = 0
                for i in range(n): total += i
                return total
            cellblock.register(cellblock.Extension(name="x", tools=[work]))
            ''')
        for n in range(300):
            number = worker.send("call", extension="x", tool="work", arguments={"n": n * 40}, identity=IDENTITY)
            time.sleep(n % 7 * 0.0002)
            worker.request("cancel", call=number)
            reply = worker.wait(number)
            self.assertTrue(reply.get("value") == sum(range(n * 40)) or reply["error"]["code"] == "cancelled", reply)
        self.assertEqual(worker.call("work", {"n": 3})["value"], 3)

    def test_extensions_run_beside_each_other(self):
        worker = self.start(self.BODY)
        worker.load("import cellblock\ncellblock.register(cellblock.Extension(name='y', tools=[cellblock.Tool(lambda: 2, name='two')]))", name="y", path="/ext/y.py")
        number = worker.send("call", extension="x", tool="spin", arguments={}, identity=IDENTITY)
        self.assertEqual(worker.call("two", name="y")["value"], 2)
        worker.request("cancel", call=number)
        worker.wait(number)


class Ends(WorkerTest):
    def test_a_fork_does_not_speak_for_the_worker(self):
        worker = self.start('''
            import os
            def fork():
                pid = os.fork()
                if pid == 0:
                    try:
                        raise RuntimeError("child")
                    finally:
                        os._exit(0)
                os.waitpid(pid, 0)
                return "parent"
            def prints():
                print("to the log")
                os.write(1, b"raw\\n")
            cellblock.register(cellblock.Extension(name="x", tools=[fork, prints]))
            ''')
        self.assertEqual(worker.call("fork")["value"], "parent")
        self.assertIsNone(worker.call("prints")["value"])
        self.assertIn("to the log", worker.printed())

    def test_it_ends_when_the_launcher_has_gone_whatever_runs(self):
        worker = self.start(Cancelling.BODY)
        worker.send("call", extension="x", tool="spin", arguments={}, identity=IDENTITY)
        while not worker.hosted:
            worker.step()
        self.assertEqual(worker.close(), 0)


if __name__ == "__main__":
    unittest.main()
