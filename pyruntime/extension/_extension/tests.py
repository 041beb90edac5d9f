"""Runs one file of an author's tests with pytest: boot.py FD ROOT FILE.

What came of each test goes to FD, a line of JSON each, as pytest itself reports it;
nothing is read from printed text. One line says how many tests there are to run, and the
last one with which code pytest ended.
"""

import json
import os
import sys

from cellblock import data

from . import load

MAX_MESSAGE = 16384  # characters


class Plugin:
    """What pytest calls; see the hooks of its documentation."""

    def __init__(self, fd):
        os.set_inheritable(fd, False)
        self.fd = fd
        self.pid = os.getpid()
        self.phases = {}  # node id -> [report]

    def tell(self, **record):
        if os.getpid() != self.pid:
            return  # a child that a test has left to run on is not the runner
        text = json.dumps(record).encode("ascii") + b"\n"
        while text:
            text = text[os.write(self.fd, text):]

    def pytest_collectreport(self, report):
        if report.failed:
            self.tell(node=report.nodeid or "(collection)", outcome="error", message=message_of(report), durationMs=0)
        elif report.skipped:
            self.tell(node=report.nodeid, outcome="skipped", message=message_of(report), durationMs=0)

    def pytest_collection_finish(self, session):
        self.tell(collected=len(session.items))

    def pytest_runtest_logstart(self, nodeid, location):
        self.phases[nodeid] = []
        self.tell(begin=nodeid)

    def pytest_runtest_logreport(self, report):
        self.phases.setdefault(report.nodeid, []).append(report)

    def pytest_runtest_logfinish(self, nodeid, location):
        reports = self.phases.pop(nodeid, [])
        outcome, message = "passed", ""
        if not any(report.when == "call" and report.passed or report.skipped or report.failed for report in reports):
            outcome, message = "error", "pytest tells of no call of it"
        for report in reports:
            if report.failed:
                outcome = "failed" if report.when == "call" and outcome == "passed" else "error"
                message += message_of(report)
            elif report.skipped and outcome == "passed":
                outcome, message = ("xfailed" if hasattr(report, "wasxfail") else "skipped"), message_of(report)
            elif report.when == "call" and hasattr(report, "wasxfail"):
                outcome, message = "xpassed", report.wasxfail
        self.tell(node=nodeid, outcome=outcome, message=message[-MAX_MESSAGE:], durationMs=round(1000 * sum(r.duration for r in reports), 3))


def message_of(report):
    """Why a test did not pass, as text."""
    if getattr(report, "wasxfail", ""):
        return data.clean(report.wasxfail)
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):  # a skip: path, line, reason
        return data.clean(str(longrepr[2]))
    return data.clean(str(longrepr) if longrepr is not None else "")[-MAX_MESSAGE:]


def main(fd, root, path):
    """Run the file and end the process."""
    plugin = Plugin(fd)
    load.place(root)
    os.chdir(root)
    import pytest

    code = pytest.main(["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir", root, path], plugins=[plugin])
    plugin.tell(ended=int(code))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
