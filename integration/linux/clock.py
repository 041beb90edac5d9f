# Sets this machine's clock while sessions run, a line for each: "name: kept", or what
# went wrong. clock.py COMMAND... runs sessions by that command; it itself needs root,
# and a machine that is nobody else's.
import json
import os
import subprocess
import sys
import time

command, home = sys.argv[1:], os.environ["HOME"]
room = home + "/s"
HOUR, YEAR = 3600, 365 * 86400
state = {"XDG_STATE_HOME": home + "/clock"}


def jump(by):
    time.clock_settime(time.CLOCK_REALTIME, time.time() + by)


def session(name, *more):
    return subprocess.Popen(command + ["cellblock", name, "--session", room, "--python", "/usr/bin/python3"] + list(more),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1, env=dict(os.environ, **state))


def during(by, code, *more):
    """The exit code and details of a cell during which the clock is set by so many
    seconds, and how long it then took."""
    up = room + "/up"
    if os.path.exists(up):
        os.remove(up)
    running = session("run", "--json", "-c", "import time\nopen('up', 'w').close()\n" + code, *more)
    until = time.monotonic() + 60
    while not os.path.exists(up):
        if running.poll() is not None or time.monotonic() > until:
            raise AssertionError("the cell does not begin: %s" % (running.communicate(),))
        time.sleep(0.01)
    jump(by)
    begin = time.monotonic()
    try:
        out, err = running.communicate(timeout=60)
        took = time.monotonic() - begin
    finally:
        jump(-by)
        running.kill()
    try:
        return running.returncode, json.loads(out)["details"], took
    except ValueError:
        raise AssertionError("no reply: %r %r" % (out, err))


def is_(found, want):
    if found != want:
        raise AssertionError("%r, not %r" % (found, want))


def lasts(by):
    code, details, _ = during(by, "a = time.monotonic()\ntime.sleep(2)\nround(time.monotonic() - a)", "--timeout", "30s")
    is_((code, details["value"]), (0, "2"))
    if not 1500 < details["durationMs"] < 20000:
        raise AssertionError("it says that it took %r ms" % details["durationMs"])


def ends(by):
    code, details, took = during(by, "while True: time.sleep(0.01)", "--timeout", "3s")
    is_((code != 0, details["error"]["ename"]), (True, "KernelTimeout"))
    if not 1 < took < 20:
        raise AssertionError("it took %r s" % took)


def shadow():
    outside = "/var/tmp/canary"
    code, _, _ = during(-HOUR, "open(%r, 'a').write('mine')" % outside, "--mode", "shadow")
    is_(code, 0)
    jump(-HOUR)
    try:
        with open(outside, "a") as file:
            file.write("theirs")
        asked = subprocess.run(command + ["cellblock", "shadow", "commit", "last"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ, **state))
    finally:
        jump(HOUR)
    is_(asked.returncode, 1)
    is_("has been set back" in asked.stdout, True)
    with open(outside) as file:
        is_(file.read(), "canary\ntheirs")


def repl(by):
    running = session("repl")
    try:
        running.stdin.write("a = 6\na\n")
        is_(running.stdout.readline(), "6\n")
        jump(by)
        try:
            out, err = running.communicate("a * 7\n", timeout=60)
        finally:
            jump(-by)
        is_((running.returncode, out, err), (0, "42\n", ""))
    finally:
        running.kill()


def records():
    logs = [os.path.join(state["XDG_STATE_HOME"], "cellblock/audit", n) for n in os.listdir(state["XDG_STATE_HOME"] + "/cellblock/audit") if n.endswith(".jsonl")]
    is_(len(logs) > 5, True)
    for log in logs:
        checked = subprocess.run(command + ["cellblock", "audit", "verify", log], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        is_((checked.returncode, checked.stdout if checked.returncode else ""), (0, ""))


for name, test, given in (
    ("a cell, a year forth", lasts, (YEAR,)),
    ("a cell, a year back", lasts, (-YEAR,)),
    ("a time limit, an hour back", ends, (-HOUR,)),
    ("a time limit, an hour forth", ends, (HOUR,)),
    ("a session, a day forth", repl, (24 * HOUR,)),
    ("a session, a day back", repl, (-24 * HOUR,)),
    ("a commit, an hour back", shadow, ()),
    ("the records", records, ()),
):
    try:
        test(*given)
        print("%s: kept" % name, flush=True)
    except Exception as err:
        print("%s: %s" % (name, " ".join(("%s %s" % (type(err).__name__, err)).split())[:600]), flush=True)
