"""Streams, interrupts, the hook, skills and the wire of a live worker."""

import json
import os
import random
import shutil
import tempfile
import time
import unittest

from client import Host


class Worker(unittest.TestCase):
    Host = Host

    def setUp(self):
        self.host = self.Host()
        self.addCleanup(self.host.close)

    def test_children_and_native_writes_keep_their_place(self):
        reply = self.host.cell('import os, subprocess\nprint("one"); os.system("echo two"); subprocess.run(["echo", "three"]); os.write(1, b"four\\n"); print("five")')
        self.assertEqual(reply["stdout"], "one\ntwo\nthree\nfour\nfive\n")

    def test_stdout_is_a_real_file(self):
        reply = self.host.cell("import sys, subprocess, builtins\nsubprocess.run(['echo', 'x'], stdout=sys.stdout)\n(sys.stdout.fileno() >= 0, sys.stdout.isatty(), sys.stdout.encoding.lower(), print is builtins.print)")
        self.assertEqual((reply["stdout"], reply["value"]), ("x\n", "(True, False, 'utf-8', True)"))

    def test_raw_bytes(self):
        reply = self.host.cell('import sys, os\nsys.stdout.buffer.write(b"\\xff\\xfe top\\n"); sys.stdout.flush()\nos.write(1, b"\\x80 raw\\n")\n"end"')
        self.assertLess(reply["stdout"].index("top"), reply["stdout"].index("raw"))
        self.assertEqual(reply["value"], "'end'")

    def test_logging_over_several_cells(self):
        self.host.cell('import logging; logging.basicConfig(level=logging.INFO); logging.info("first")')
        self.assertIn("INFO:root:second", self.host.cell('logging.info("second")')["stderr"])

    def test_a_thread_that_prints_after_its_cell_is_background(self):
        self.host.cell('import sys, threading, time\ndef later():\n    while sys.stdout._origins.current == 1: time.sleep(0.01)\n    print("late")\nthreading.Thread(target=later).start()')
        reply = {}
        while "background" not in reply:
            time.sleep(0.1)
            reply = self.host.cell('"second"')
            self.assertEqual((reply["value"], reply["stdout"]), ("'second'", ""))
        self.assertEqual(reply["background"], [{"origin": "1", "stream": "stdout", "text": "late\n"}])

    def test_a_thread_that_prints_during_a_later_cell_is_background(self):
        self.host.cell('import threading, time\ngo = threading.Event()\ndef later():\n    go.wait(); print("late")\nt = threading.Thread(target=later); t.start()')
        reply = self.host.cell('go.set(); t.join(); print("mine")')
        self.assertEqual(reply["stdout"], "mine\n")
        self.assertEqual(reply["background"], [{"origin": "1", "stream": "stdout", "text": "late\n"}])

    def test_a_child_of_an_earlier_cell_keeps_the_old_pipe(self):
        old = self.host.out
        reply = self.host.cell('import subprocess; p = subprocess.Popen(["sh", "-c", "read x; echo late"], stdin=subprocess.PIPE)')
        self.assertTrue(reply["forked"])
        fds = self.host.fresh_pipes()
        reply = self.host.cell('p.communicate(b"\\n"); print("mine")', fds=fds, pipes=True)
        for fd in fds:
            os.close(fd)
        self.assertEqual((reply["stdout"], self.host.drain(old)), ("mine\n", "late\n"))

    def test_pipes_come_to_their_request_whatever_stands_before_it_on_the_wire(self):
        for before in range(4):
            running = self.host.start("run-block", code="import time; time.sleep(0.2)")
            for _ in range(before):  # late ones, which the worker reads together with what follows
                self.host.start("interrupt", target=1)
            fds = self.host.fresh_pipes()
            number = self.host.start("run-block", fds, code="print('x' * 40000); print('mine')", pipes=True)
            after = self.host.start("run-block", code="print('more')")
            for fd in fds:
                os.close(fd)
            self.host.wait(running)
            self.assertNotIn("error", self.host.wait(number))
            self.assertNotIn("error", self.host.wait(after))
            self.assertEqual(self.host.drain(self.host.out), "x" * 40000 + "\nmine\nmore\n")
            self.assertEqual(self.host.cell("import os; sorted(os.listdir('/proc/self/fd')) == OPEN" if before else "import os; OPEN = sorted(os.listdir('/proc/self/fd'))").get("value"), "True" if before else None)

    def test_interrupt_reaches_the_cell_it_is_meant_for(self):
        self.host.cell("x = 41")
        number = self.host.start("run-block", code="import time; print('in', flush=True)\nwhile True: time.sleep(0.01)")
        while "in" not in self.host.drain(self.host.out):
            time.sleep(0.01)
        control = self.host.interrupt(number)
        self.assertIs(self.host.wait(control)["value"], True)
        self.assertEqual(self.host.wait(number)["value"]["error"]["ename"], "KeyboardInterrupt")
        self.assertEqual(self.host.cell("x + 1")["value"], "42")

    def test_an_interrupt_that_comes_with_the_cell_stops_it(self):
        for _ in range(100):
            number = self.host.start("run-block", code="while True: pass")
            control = self.host.interrupt(number)
            self.assertIs(self.host.wait_for_interrupt(control)["value"], True)
            self.assertEqual(self.host.wait(number)["value"]["error"]["ename"], "KeyboardInterrupt")
        self.assertEqual(self.host.cell("1 + 1")["value"], "2")

    def test_an_interrupt_of_a_cell_that_waits_stops_it_and_no_other(self):
        first = self.host.start("run-block", code="import time; print('in', flush=True)\nuntil = time.time() + 0.5\nwhile time.time() < until: time.sleep(0.01)\n'ended'")
        while "in" not in self.host.drain(self.host.out):
            time.sleep(0.01)
        second = self.host.start("run-block", code="while True: pass")
        control = self.host.interrupt(second)
        self.assertIs(self.host.wait_for_interrupt(control)["value"], True)
        self.assertEqual(self.host.wait(first)["value"]["value"], "'ended'")
        self.assertEqual(self.host.wait(second)["value"]["error"]["ename"], "KeyboardInterrupt")
        self.assertEqual(self.host.cell("1 + 1")["value"], "2")

    def test_interrupt_of_an_await(self):
        number = self.host.start("run-block", code="import asyncio; print('in', flush=True)\nawait asyncio.sleep(60)")
        while "in" not in self.host.drain(self.host.out):
            time.sleep(0.01)
        self.assertIs(self.host.wait(self.host.interrupt(number))["value"], True)
        self.assertEqual(self.host.wait(number)["value"]["error"]["ename"], "KeyboardInterrupt")
        self.assertEqual(self.host.cell("await asyncio.sleep(0.01, 5)")["value"], "5")

    def test_an_interrupt_of_a_task_is_not_told_of_again(self):
        for code in ("while True: pass", "await asyncio.sleep(60)"):
            number = self.host.start("run-block", code="import asyncio; await asyncio.sleep(0); print('in', flush=True)\n" + code)
            while "in" not in self.host.drain(self.host.out):
                time.sleep(0.01)
            self.assertIs(self.host.wait_for_interrupt(self.host.interrupt(number))["value"], True)
            self.host.wait(number)
        self.assertEqual(self.host.cell("async def f(): pass\nawait f()\nimport gc; gc.collect()")["stderr"], "")

    def test_an_interrupt_of_what_an_await_waits_for_is_not_told_of_again(self):
        busy = """
import asyncio, time
async def busy():
    print("on", flush=True)
    while True: time.sleep(0.001)
async def ends_badly():
    try: await asyncio.create_task(busy())
    finally: raise ValueError("its end")
"""
        for awaited in ("asyncio.gather(busy())", "ends_badly()", "asyncio.wait_for(ends_badly(), 99)"):
            number = self.host.start("run-block", cell=7, code=busy + "await " + awaited)
            while "on" not in self.host.drain(self.host.out):
                time.sleep(0.01)
            self.assertIs(self.host.wait_for_interrupt(self.host.interrupt(number))["value"], True)
            self.assertEqual(self.host.wait(number)["value"]["error"]["ename"], "KeyboardInterrupt")
            self.assertEqual(self.host.cell("import gc; gc.collect(); await asyncio.sleep(0)")["stderr"], "", awaited)

    def test_interrupts_of_many_awaits_keep_the_session(self):
        # Whatever the loop is doing: an exception within it would lose a step of a task,
        # and what waits for that, or leave the loop stopped for the next cell.
        self.host.cell("""
import asyncio, random
async def one(n):
    for _ in range(n):
        await asyncio.sleep(0 if random.random() < 0.9 else 0.001)
    return n
async def many():
    while True:
        assert await asyncio.gather(*[one(3) for _ in range(20)]) == [3] * 20
        assert await asyncio.wait_for(one(1), 60) == 1""")
        for n in range(60):
            number = self.host.start("run-block", code="print('in', flush=True)\nawait many()")
            while "in" not in self.host.drain(self.host.out):
                time.sleep(0.001)
            time.sleep(n / 6000)
            self.assertIs(self.host.wait_for_interrupt(self.host.interrupt(number))["value"], True)
            error = self.host.wait(number)["value"]["error"]
            self.assertEqual(error["ename"], "KeyboardInterrupt")
            self.assertEqual(self.host.cell("await one(2)")["value"], "2")

    def test_an_interrupt_stops_what_an_async_cell_does_by_itself(self):
        for code in ("while True: pass", "import time; time.sleep(60)", "import subprocess; subprocess.run(['sleep', '60'], capture_output=True)"):
            number = self.host.start("run-block", code="import asyncio; await asyncio.sleep(0); print('in', flush=True)\n" + code)
            while "in" not in self.host.drain(self.host.out):
                time.sleep(0.01)
            self.assertIs(self.host.wait_for_interrupt(self.host.interrupt(number))["value"], True)
            self.assertEqual(self.host.wait(number)["value"]["error"]["ename"], "KeyboardInterrupt")

    def test_one_pipe_that_arrives_without_the_other_is_no_end_of_the_worker(self):
        # Whichever number it took, which may be one of those that are closed to make room.
        for free in (1, 2, 30):
            self.host.cell("""
import os, resource
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (60, before[1]))
kept = [os.open('/dev/null', os.O_RDONLY)]
try:
    while True:
        kept.append(os.dup(0))
except OSError:
    pass
os.close(%d)""" % free)
            fds = self.host.fresh_pipes()
            reply = self.host.request("run-block", fds=fds, code="1", pipes=True)
            self.assertEqual(reply["error"]["type"], "NoDescriptors")
            for fd in fds:
                os.close(fd)
            fds = self.host.fresh_pipes()
            reply = self.host.cell("""
for fd in kept:
    if fd > 2 and fd != %d:
        os.close(fd)
resource.setrlimit(resource.RLIMIT_NOFILE, before)
print('again')""" % free, fds=fds, pipes=True)
            self.assertEqual((reply["status"], reply["stdout"]), ("ok", "again\n"), reply)
            for fd in fds:
                os.close(fd)

    def test_an_interrupt_that_a_finalizer_swallows_comes_again(self):
        for hook in ("", "sys.unraisablehook = lambda *_: None"):
            for then in ("while True: pass", "await asyncio.sleep(60)", "time.sleep(60)"):
                number = self.host.start("run-block", code=hook + """
import asyncio, sys, time
class Slow:
    def __del__(self):
        print('in', flush=True)
        time.sleep(60)
one = Slow()
del one
print('out', flush=True)
""" + then)
                seen = ""
                while "in" not in seen:
                    seen += self.host.drain(self.host.out)
                    time.sleep(0.01)
                self.assertIs(self.host.wait_for_interrupt(self.host.interrupt(number))["value"], True)
                self.assertEqual(self.host.wait(number)["value"]["error"]["ename"], "KeyboardInterrupt")
                self.assertEqual(seen + self.host.drain(self.host.out), "in\nout\n")
                self.assertEqual(self.host.drain(self.host.err), "")
        self.assertEqual(self.host.cell("6 * 7")["value"], "42")

    def test_a_cell_that_goes_on_after_an_interrupt_takes_another(self):
        number = self.host.start("run-block", code="""
import asyncio
print('in', flush=True)
try:
    await asyncio.sleep(60)
except asyncio.CancelledError:
    print('again', flush=True)
await asyncio.sleep(60)""")
        while "in" not in self.host.drain(self.host.out):
            time.sleep(0.01)
        self.host.wait_for_interrupt(self.host.interrupt(number))
        while "again" not in self.host.drain(self.host.out):
            time.sleep(0.01)
        self.host.wait_for_interrupt(self.host.interrupt(number))
        self.assertEqual(self.host.wait(number)["value"]["error"]["ename"], "KeyboardInterrupt")

    def test_interrupt_of_an_earlier_cell_or_of_none_hits_nothing(self):
        number = self.host.start("run-block", code="1")
        self.host.wait(number)
        self.assertIs(self.host.wait(self.host.interrupt(number))["value"], False)
        self.assertEqual(self.host.cell("sum(range(10))")["value"], "45")
        number = self.host.start("run-block", code="import time; print('in', flush=True); time.sleep(0.3); 'whole'")
        while "in" not in self.host.drain(self.host.out):
            time.sleep(0.01)
        control = self.host.interrupt(number - 1)
        self.assertIs(self.host.wait(control)["value"], False)
        self.assertEqual(self.host.wait(number)["value"]["value"], "'whole'")

    def test_a_users_own_handler_is_kept_between_cells(self):
        self.host.cell("import signal; hits = []; signal.signal(signal.SIGINT, lambda *a: hits.append(1));")
        self.host.wait(self.host.interrupt(999))
        self.assertEqual(self.host.cell("signal.raise_signal(signal.SIGINT); len(hits)")["value"], "1")

    def test_input_without_a_host_that_answers(self):
        reply = self.host.cell('name = input("who? ")')
        self.assertEqual((reply["error"]["ename"], reply["stdout"]), ("EOFError", "who? "))
        self.assertEqual(self.host.cell('import getpass; getpass.getpass("pw ")')["error"]["ename"], "EOFError")
        self.assertEqual(self.host.cell("import sys; sys.stdin.read()")["value"], "''")

    def test_input_that_the_host_answers(self):
        with self.Host(input=True) as host:
            host.answer = lambda call: {"value": "Ada"}
            self.assertEqual(host.cell('input("who? ")')["value"], "'Ada'")
            self.assertEqual(host.hosted[0]["arguments"], {"prompt": "who? ", "password": False})
            self.assertEqual(host.cell("import getpass; getpass.getpass()")["value"], "'Ada'")
            self.assertIs(host.hosted[1]["arguments"]["password"], True)
            host.answer = lambda call: {"error": {"type": "HostError", "code": "no-answer", "message": "the terminal has gone"}}
            error = host.cell("input()")["error"]
            self.assertEqual((error["ename"], error["evalue"]), ("EOFError", "input(): the terminal has gone"))
            host.answer = lambda call: {"error": {"type": "HostError", "code": "cancelled", "message": "the cell asks no longer"}}
            self.assertEqual(host.cell("input()")["error"]["ename"], "HostError")
            host.answer = lambda call: {"value": "Ada"}
            code = "import threading\nt = threading.Thread(target=lambda: print(input())); t.start(); t.join()"
            self.assertEqual(host.cell(code)["stdout"], "Ada\n")

    def test_stdin_that_the_host_sent(self):
        self.host.request("stdin", text="a\nb\n")
        self.assertEqual(self.host.cell("import sys; (input(), sys.stdin.read(), sys.stdin.read())")["value"], "('a', 'b\\n', '')")

    def test_writes_outside_are_observed_once_with_their_line(self):
        reply = self.host.cell("for i in range(3):\n    try: open('/no-such-dir/x', 'w')\n    except OSError: pass\nopen('inside', 'w').write('1'); open('/dev/null', 'w').write('x'); open('/etc/hostname').close()")
        self.assertEqual(reply["observed"], [{"op": "open", "path": "/no-such-dir/x", "count": 3, "cell": 1, "line": 2}])
        self.assertNotIn("observed", self.host.cell("import os; os.makedirs('deep/er'); os.rename('inside', 'deep/x'); os.remove('deep/x')"))

    def test_names_that_are_looked_up_are_observed(self):
        # The events alone: nothing is looked up.
        reply = self.host.cell("import sys\nfor host in ('a.example', b'a.example', None, '', 'x' * 300): sys.audit('socket.getaddrinfo', host, 80, 0, 0, 0)\nsys.audit('socket.gethostbyname', 'b.example')")
        self.assertEqual([(o["op"], o["path"], o["count"], o["line"]) for o in reply["observed"]], [("lookup", "a.example", 2, 2), ("lookup", "b.example", 1, 3)])

    def test_a_sibling_whose_name_begins_alike_is_outside(self):
        reply = self.host.cell("try: open(%r, 'w')\nexcept OSError: pass" % (self.host.directory + "-evil/x"))
        self.assertEqual(reply["observed"][0]["path"], self.host.directory + "-evil/x")

    def test_before_confine_every_write_is_refused(self):
        with self.Host(confine=False) as host:
            self.assertEqual(host.cell("open('x', 'w')")["error"]["ename"], "PermissionError")
            host.request("confine", read=[], write=[host.directory], refusal="")
            self.assertEqual(host.cell("open('x', 'w').write('1')")["value"], "1")

    def test_an_early_confine_allows_nothing_yet(self):
        with tempfile.TemporaryDirectory() as room:
            place, link, other = room + "/place", room + "/link", room + "/other"
            os.mkdir(place)
            os.symlink(place, link)
            with self.Host(early=[{"op": "confine", "read": [], "write": [link, other], "refusal": ""}], confine=False) as host:
                self.assertEqual(host.cell("open(%r, 'w')" % (place + "/x"))["error"]["ename"], "PermissionError")
                host.request("confine", read=[], write=[link, host.directory], refusal="not there")
                self.assertEqual(host.cell("open(%r, 'w').write('1'), open('x', 'w').write('1')" % (place + "/x"))["value"], "(1, 1)")
                self.assertEqual(host.cell("open(%r, 'w')" % other)["error"]["ename"], "PermissionError")

    def test_a_refusal_text_refuses(self):
        self.host.request("confine", read=[], write=[self.host.directory], refusal="not there")
        reply = self.host.cell("open('/tmp/outside', 'w')")
        self.assertEqual(reply["error"]["ename"], "PermissionError")
        self.assertIn("not there", reply["error"]["evalue"])

    def test_what_linux_tells_of_is_recorded_where_it_leads_within_a_cell(self):
        with tempfile.TemporaryDirectory() as room, self.Host(confine=False) as host:
            host.request("confine", read=[], write=[host.directory, "/dev"], refusal="", observed=True)
            os.mkdir(room + "/other")
            os.symlink(room, host.directory + "/link")
            reply = host.cell("""import os
def write(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
def look(path):
    try: os.close(os.open(path, os.O_WRONLY))
    except OSError: pass
for _ in range(3): write('mine')
os.chdir(%r)
write('mine')
os.chdir('other')
look('mine')
write('mine')
write('../mine')
os.chdir(%r)
os.symlink(%r, 'way')
write('way')
os.remove('way')
write('way')
write('link/through')
os.mkdir('link/made')
""" % (room, host.directory, room + "/led"))
            self.assertEqual([(o["op"], o["path"]) for o in reply["observed"]], [
                ("open", room + "/mine"), ("open", room + "/other/mine"), ("open", room + "/led"),
                ("open", room + "/through"), ("mkdir", room + "/made")])
            # What leads elsewhere by the next cell is looked up again.
            place = host.directory + "/place"
            os.mkdir(place)
            self.assertNotIn("observed", host.cell("os.chdir(%r)\nwrite('place/x')" % host.directory))
            shutil.rmtree(place)
            os.symlink(room, place)
            self.assertEqual([o["path"] for o in host.cell("write('place/x')")["observed"]], [room + "/x"])

    def test_what_leads_elsewhere_without_an_event_is_not_remembered(self):
        with tempfile.TemporaryDirectory() as room, self.Host(confine=False) as host:
            host.request("confine", read=[], write=[host.directory, "/dev"], refusal="", observed=True)
            host.cell("import os, subprocess, threading, time\ndef write(path):\n    try: os.close(os.open(path, os.O_WRONLY | os.O_CREAT))\n    except OSError: pass\nos.mkdir('in')")
            # What a thread of an earlier cell has found counts for no later one.
            host.cell("os.mkdir('late')\ndef later():\n    time.sleep(0.3); write('late/x')\nthread = threading.Thread(target=later); thread.start()")
            for _ in range(1000):
                if os.path.exists(host.directory + "/late/x"):
                    break
                time.sleep(0.01)
            time.sleep(0.1)
            shutil.rmtree(host.directory + "/late")
            os.symlink(room, host.directory + "/late")
            self.assertEqual([o["path"] for o in host.cell("write('late/x')")["observed"]], [room + "/x"])
            os.remove(room + "/x")
            for what, code in {
                "descriptors": "inside, out = os.open('in', 0), os.open(%r, 0)\nn = os.dup(inside)\nwrite('/proc/self/fd/%%d/x' %% n); write('/dev/fd/%%d/x' %% n)\nos.dup2(out, n)\nwrite('/proc/self/fd/%%d/x' %% n)",
                "a look that failed": "os.symlink(%r, 'led'); old = os.dup(0)\nimport resource\nlimit = resource.getrlimit(resource.RLIMIT_NOFILE)\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))\nwrite('led/x')\nresource.setrlimit(resource.RLIMIT_NOFILE, limit)\nwrite('led/x')",
                "a hard link of a link": "os.symlink(%r + '/x', 'sym'); write('d/x'); os.mkdir('d'); os.link('sym', 'd/x', follow_symlinks=False); write('d/x')",
                "a child": "os.mkdir('cur'); write('cur/x'); os.remove('cur/x')\nwrite('cur/x')\nsubprocess.run(['sh', '-c', 'mv cur old; ln -s \"$1\" cur', 'sh', %r])\nwrite('cur/x')",
                "a text that is none": "class S(str):\n    def rpartition(self, by): raise RuntimeError\n    __hash__ = None\nwrite(S(%r + '/x'))",
            }.items():
                with self.subTest(what):
                    self.assertEqual([o["path"] for o in host.cell(code % room).get("observed", ())], [room + "/x"])
                    if os.path.exists(room + "/x"):
                        os.remove(room + "/x")

    def test_what_a_cell_remembers_of_paths_changes_no_record(self):
        # The same calls, with a look at each path and with what is remembered. They stay in
        # the room: two ".." at most, none in a link or a change of directory, far down.
        def name(up):
            parts = [pick.choice("abl") for _ in range(pick.choice((1, 1, 2)))]
            for _ in range(pick.choice((0, 0, 1, 2)) if up else 0):
                parts.insert(pick.randint(0, len(parts)), "..")
            path = pick.choice(("/", "/", "//")).join(parts) + pick.choice(("", "", "", "/", "/."))
            return path if pick.random() < 0.6 else here + pick.choice(("/in/", "/out/")) + path

        def cell():
            # Few paths, so that each is met often, before and after what moves it.
            places, level = [name(True) for _ in range(4)], [name(False) for _ in range(4)]
            lines, often = [], pick.choice((("open",), ("open", "chdir", "mkdir"), ("symlink", "remove"), ("rename", "mkdir", "rmdir", "link", "chmod")))
            for _ in range(40):
                do = pick.choice(("open", pick.choice(often)))
                place = pick.choice(level if do in ("symlink", "chdir") else places)
                more = {"open": ", os.O_WRONLY" + pick.choice(("", " | os.O_CREAT")), "symlink": ", %r" % pick.choice(places), "rename": ", %r" % pick.choice(places),
                        "link": ", %r" % pick.choice(places), "chmod": ", 0o700"}.get(do, "")
                lines.append("do(os.%s, %r%s)" % (do, os.fsencode(place) if pick.random() < 0.1 else place, more))
            return "\n".join(lines)

        def play(observed):
            for place in ("in/a/b", "in/b", "out/a/a", "out/b"):
                os.makedirs(here + "/" + place)
            with self.Host(directory=here + "/in", confine=False) as host:
                host.request("confine", read=[], write=[here + "/in", "/dev"], deny=[here + "/in/d"], refusal="", observed=observed)
                host.cell("import os\ndef do(f, *a):\n    try:\n        r = f(*a)\n        if r is not None: os.close(r)\n    except (OSError, TypeError): pass")
                replies = [host.cell(cell()) for _ in range(6)]
            shutil.rmtree(room + "/1")
            return [sorted((o["op"], o["path"]) for o in reply.get("observed", [])) for reply in replies if reply["status"] == "ok"]

        recorded = 0
        with tempfile.TemporaryDirectory() as room:
            room = os.path.realpath(room)
            here = room + "/1" * 12
            for seed in range(25):
                pick = random.Random(seed)
                looked = play(False)
                pick = random.Random(seed)
                self.assertEqual(play(True), looked, "seed %d" % seed)
                self.assertEqual(len(looked), 6)
                recorded += sum(map(len, looked))
        self.assertGreater(recorded, 200)

    def test_with_everything_in_order_nothing_is_recorded(self):
        with tempfile.TemporaryDirectory() as room, self.Host(confine=False) as host:
            host.request("confine", read=[], write=["/"], refusal="")
            self.assertNotIn("observed", host.cell("import os; open(%r, 'w').close(); os.mkdir(%r)" % (room + "/x", room + "/y")))
            host.request("confine", read=[], write=["/"], deny=[room], refusal="")
            self.assertEqual([o["path"] for o in host.cell("os.rmdir(%r)" % (room + "/y"))["observed"]], [room + "/y"])

    def test_the_network_can_be_refused(self):
        self.host.request("network", enabled=False, refusal="no network here")
        self.assertIn("no network here", self.host.cell("import socket; socket.create_connection(('192.0.2.1', 9), timeout=5)")["error"]["evalue"])
        self.assertEqual(self.host.cell("s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); c.close(); 1")["value"], "1")
        self.assertEqual(self.host.cell("a, b = socket.socketpair(); a.send(b'x')")["value"], "1")

    def test_eval_run_and_exec(self):
        self.assertEqual(self.host.request("exec", code="y = 2; y")["value"], None)
        self.assertEqual(json.loads(self.host.request("run", code="[y, None]")["value"]), [2, None])
        self.assertEqual(self.host.request("eval", code="y + 1")["value"], "3")
        self.assertEqual(self.host.request("eval", code="1/0")["error"]["type"], "ZeroDivisionError")

    def test_an_unknown_op_is_named_and_the_worker_lives(self):
        self.assertIn("nope", self.host.request("nope")["error"]["message"])
        self.assertIn("mystery", self.host.request("run", code="1", mystery=1)["error"]["message"])
        self.assertIn("purpose", self.host.request("run-block", code="1", purpose="root")["error"]["message"])
        self.assertEqual(self.host.cell("1 + 1")["value"], "2")

    def test_a_forked_child_does_not_speak_on_the_wire(self):
        reply = self.host.cell("import os\npid = os.fork()\nif pid == 0:\n    print('child'); os._exit(0)\nos.waitpid(pid, 0)[1]")
        self.assertEqual((reply["value"], reply["stdout"]), ("0", "child\n"))

    def test_a_forked_child_that_comes_to_the_end_of_its_cell_ends(self):
        reply = self.host.cell("import os\npid = os.fork()\nif pid: status = os.waitpid(pid, 0)[1] >> 8\nelse: raise SystemExit(4)\nstatus")
        self.assertEqual(reply["value"], "4")
        reply = self.host.cell("pid = os.fork()\nif pid: status = os.waitpid(pid, 0)[1] >> 8\nelse: print('child'); 1 / 0\nstatus")
        self.assertEqual((reply["value"], reply["stdout"]), ("1", "child\n"))
        self.assertIn("ZeroDivisionError", reply["stderr"])

    def test_no_descriptor_but_the_streams_and_the_wire(self):
        code = "import os\nsorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + n))"
        self.assertEqual(len(json.loads(self.host.cell(code)["value"])), 4)
        child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import os; print(sorted(os.listdir(\"/proc/self/fd\"))[:3], len(os.listdir(\"/proc/self/fd\")))'], capture_output=True, text=True).stdout"
        self.assertEqual(self.host.cell(child)["value"], repr("['0', '1', '2'] 4\n"))

    def test_a_thread_that_takes_the_ident_of_one_that_ended_is_the_cells_own(self):
        self.host.cell("import threading\ngo = threading.Event()\nt = threading.Thread(target=go.wait); t.start()")
        reply = self.host.cell("go.set(); t.join()\nfor i in range(4):\n    u = threading.Thread(target=print, args=(i,)); u.start(); u.join()")
        self.assertEqual(reply["stdout"], "0\n1\n2\n3\n")

    def test_a_thread_that_a_leftover_starts_is_background_too(self):
        self.host.cell("import threading\ngo = threading.Event()\ndef first():\n    go.wait(); u = threading.Thread(target=print, args=('deep',)); u.start(); u.join()\nt = threading.Thread(target=first); t.start()")
        reply = self.host.cell("go.set(); t.join(); print('mine')")
        self.assertEqual((reply["stdout"], reply["background"][0]["origin"]), ("mine\n", "1"))

    def test_a_task_of_an_earlier_cell_is_background(self):
        self.host.cell("import asyncio\nasync def f():\n    await asyncio.sleep(0.05); print('late')\nt = asyncio.ensure_future(f()); await asyncio.sleep(0)")
        reply = self.host.cell("await t; print(await asyncio.to_thread(lambda: print('thread') or 'mine'))")
        self.assertEqual((reply["stdout"], reply["background"][0]["text"]), ("thread\nmine\n", "late\n"))

    def test_operations_that_change_nothing_are_no_records(self):
        reply = self.host.cell("import os\nos.makedirs('/etc', exist_ok=True)\nfor f in (os.remove, os.rmdir):\n    try: f('/no/such')\n    except OSError: pass")
        self.assertNotIn("observed", reply)

    def test_a_link_out_of_the_session_is_seen_through(self):
        reply = self.host.cell("import os\nos.symlink('/proc', 'way')\ntry: open('way/no-such-file', 'w')\nexcept OSError: pass")
        self.assertEqual(reply["observed"][0]["path"], "/proc/no-such-file")

    def test_limits_session_and_close(self):
        self.assertEqual(self.host.cell("list(range(10))", limits={"value": 5})["shapeHint"], "list len=10")
        self.assertIn("limits", self.host.request("run-block", code="1", limits={"x": 1})["error"]["message"])
        self.host.number += 1
        self.host.send({"id": self.host.number, "op": "run-block", "code": "1", "session": "another"})
        self.assertIn("no such session", self.host.wait(self.host.number)["error"]["message"])

    def test_a_reply_that_would_be_too_long_loses_its_heavy_parts(self):
        reply = self.host.cell("_AUDIT.extend({'x': 'y' * 4000} for _ in range(5000))\n7")
        self.assertEqual(reply["value"], "7")
        self.assertIn("audit left out", reply["notes"][0])

    def test_multiprocessing(self):
        code = "import multiprocessing as mp\nlock = mp.Lock(); q = mp.Queue()\nwith lock: q.put('through')\nq.get(timeout=5)"
        self.assertEqual(self.host.cell(code)["value"], "'through'")
        self.assertEqual(self.host.cell("p = mp.get_context('spawn').Process(target=print, args=('spawned',)); p.start(); p.join(); p.exitcode")["value"], "0")

    def test_close(self):
        self.assertIs(self.host.request("close")["value"], True)
        self.assertEqual(self.host.process.wait(10), 0)


class Mounted(unittest.TestCase):
    def make(self, root, name, package, body):
        src = os.path.join(root, name, "src", package)
        os.makedirs(src)
        for path, text in ((os.path.join(root, name, "SKILL.md"), "# s"), (os.path.join(src, "__init__.py"), body)):
            with open(path, "w") as file:
                file.write(text)
        return os.path.join(src, "__init__.py")

    def test_skills_are_bound_reloaded_and_share_the_audit_list(self):
        with Host() as outer:
            root = os.path.join(outer.directory, "skills")
            path = self.make(root, "my-skill", "skill_one", "V = 1\ndef note(): _AUDIT.append({'op': 'note'})\n")
            self.make(root, "broken", "skill_two", "1/0\n")
            os.makedirs(os.path.join(root, "no-skill", "src"))
            with Host(skillRoots=[root]) as host:
                self.assertEqual(host.ready["info"]["skills"], ["skill_two", "skill_one"])
                self.assertIn("ZeroDivisionError", host.ready["info"]["skErrors"]["skill_two"])
                self.assertEqual(host.cell("skill_one.V")["value"], "1")
                self.assertEqual(host.cell("skill_one.note()")["audit"], [{"op": "note"}])
                with open(path, "w") as file:
                    file.write("V = 22\n")
                reply = host.request("install-runtime", directory=host.directory, reload=True)
                self.assertEqual(reply["info"]["reload"]["skill_one"], "ok")
                self.assertIn("ZeroDivisionError", reply["info"]["reload"]["skill_two"])
                self.assertEqual(host.cell("skill_one.V")["value"], "22")

    def test_service_knowledge_is_bound_where_there_is_a_registry(self):
        with Host() as outer:
            registry = os.path.join(outer.directory, ".xtrm", "skills", "pack", "service-knowledge")
            os.makedirs(registry)
            with open(os.path.join(registry, "service-registry.json"), "w") as file:
                file.write("{}")
            with Host(outer.directory) as host:
                self.assertIn("service_knowledge", host.ready["info"]["skErrors"])
            package = os.path.join(outer.directory, "service_knowledge")
            os.makedirs(package)
            for name, text in (("__init__", ""), ("index", "def build(): return [1, 2, 3]\n")):
                with open(os.path.join(package, name + ".py"), "w") as file:
                    file.write(text)
            with Host(outer.directory) as host:
                reply = host.cell("sk_rebuild()['items'], service_knowledge.__name__")
                self.assertEqual(reply["value"], "(3, 'service_knowledge')")
                self.assertEqual(reply["audit"][0]["op"], "sk_rebuild")


if __name__ == "__main__":
    unittest.main()
