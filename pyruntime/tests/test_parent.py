"""Workers that a warm parent has forked: all that is asked of executed ones, and more."""

import os
import signal
import unittest

import test_cells
import test_worker
from client import Host
from parent_client import ForkedHost, Parent


def tearDownModule():
    if ForkedHost.parent is not None:
        # Where there is no jail, what cells have left running comes to it, too.
        ForkedHost.parent.process.kill()
        ForkedHost.parent.close()


class ForkedCells(test_cells.Cells):
    Host = ForkedHost


class ForkedWorker(test_worker.Worker):
    Host = ForkedHost


class Forked(unittest.TestCase):
    def setUp(self):
        self.host = ForkedHost()
        self.addCleanup(self.host.close)

    def both(self, code):
        """What an executed and a forked worker say."""
        with Host() as host:
            return host.cell(code)["value"], self.host.cell(code)["value"]

    def test_it_is_as_one_that_was_executed(self):
        for code in ("import sys; sys.path", "sys.argv", "sorted(set(globals()) - {'sys'})", "__import__('gc').get_threshold()", "exit.__class__.__name__", "help.__class__.__name__",
                     "sys.prefix, sys.exec_prefix, sys.executable", "__import__('os').getcwd() != '/'", "import signal; [str(signal.getsignal(n)).split(' at ')[0] for n in range(1, 32)]",
                     "sys.stdout.encoding, sys.flags.utf8_mode, sys.flags.isolated, sys.flags.no_site, sys.dont_write_bytecode"):
            executed, forked = self.both(code)
            self.assertEqual(executed, forked, code)

    def test_nothing_tells_where_the_parent_found_its_source(self):
        self.assertEqual(self.host.cell("""
import sys
known = [p for p in sys.path_importer_cache if 'self/fd' in p]
known += [n for n, m in list(sys.modules.items()) if 'self/fd' in str(getattr(m, '__path__', ''))]
known + [a for a in getattr(sys, 'orig_argv', []) if 'self/fd' in a]""")["value"], "[]")
        self.assertEqual(self.host.cell("__import__('os').listdir('/proc/self/fd')")["value"], "['0', '1', '2', '3', '4']")

    def test_two_of_one_parent_draw_different_numbers(self):
        code = "import random, secrets, tempfile, uuid; (random.random(), secrets.token_hex(8), tempfile.mktemp(), uuid.uuid4())"
        with ForkedHost() as other:
            ours, theirs = (eval(h.cell(code)["value"].replace("UUID(", "(")) for h in (self.host, other))
        for mine, its in zip(ours, theirs):
            self.assertNotEqual(mine, its)

    def test_what_one_does_another_does_not_see(self):
        self.host.cell("import builtins, json, sys; builtins.left = json.left = 1; sys.left = 1; import wave")
        with ForkedHost() as other:
            self.assertEqual(other.cell("import builtins, json, sys; [hasattr(m, 'left') for m in (builtins, json, sys)] + ['wave' in sys.modules]")["value"], "[False, False, False, False]")

    def test_ends_are_told(self):
        for code, want in (("__import__('os')._exit(7)", 7), ("__import__('os').kill(__import__('os').getpid(), 9)", -9)):
            host = ForkedHost()
            with self.assertRaises((EOFError, OSError)):
                host.cell(code)
            self.assertEqual(host.process.wait(10), want)
            host.close()

    def test_children_of_a_session_are_its_own(self):
        self.assertEqual(self.host.cell("""
import os, subprocess, sys
pid = os.fork()
if not pid: os._exit(3)
(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True).stdout)""")["value"], "(3, b'1\\n')")

    def test_interpreters_that_it_starts_find_what_it_finds(self):
        executed, forked = self.both("import multiprocessing.spawn; multiprocessing.spawn.get_command_line()")
        self.assertEqual(executed, forked)
        executed, forked = self.both("import subprocess, sys; subprocess.run([sys.executable] + subprocess._args_from_interpreter_flags() + ['-c', 'import sys; print(sys.path)'], capture_output=True).stdout")
        self.assertEqual(executed, forked)

    def test_the_parent_has_no_site_directory_and_no_capability(self):
        parent = ForkedHost.parent
        for pid in parent.pid, parent.process.pid:
            with open("/proc/%d/status" % pid) as f:
                status = f.read()
            for line in ("CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Threads:\t1"):
                self.assertIn(line + "\n", status)
            with open("/proc/%d/maps" % pid) as f:
                self.assertNotIn("-packages", f.read())


class ParentsOwn(unittest.TestCase):
    """A parent's two processes, each for itself."""

    def setUp(self):
        self.parent = Parent()
        self.addCleanup(self.parent.close)

    def host(self, parent):
        host = type("OwnHost", (ForkedHost,), {"parent": parent})()
        self.addCleanup(host.close)
        return host

    def test_workers_and_the_word_on_their_ends_outlive_the_interpreter(self):
        parent = self.parent
        host = self.host(parent)
        os.kill(parent.pid, signal.SIGKILL)
        self.assertEqual(host.cell("6 * 7")["value"], "42")
        with self.assertRaises((EOFError, OSError)):
            host.cell("__import__('os')._exit(7)")
        self.assertEqual(host.process.wait(10), 7)
        self.assertEqual(parent.process.wait(10), 0)  # nobody is left to wait for

    def test_the_interpreter_ends_with_the_one_that_waits(self):
        parent = self.parent
        parent.process.kill()
        parent.process.wait(10)
        with self.assertRaises((EOFError, OSError)):
            parent.line.ask({"fork": True})

    def test_a_stopped_worker_is_no_end(self):
        parent = self.parent
        host = self.host(parent)
        for number in (signal.SIGSTOP, signal.SIGCONT) * 20:
            host.process.send_signal(number)
        self.assertEqual(host.cell("6 * 7")["value"], "42")
        self.assertEqual(parent.ended, {})
        host.process.kill()
        self.assertEqual(host.process.wait(10), -9)


if __name__ == "__main__":
    unittest.main()
