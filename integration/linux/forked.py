# A worker that was forked of a warm interpreter, under enforce: the reply to attacks.py as
# `cellblock run --json` prints it, or why there was none. forked.py COMMAND... serves by
# that command.
import http.client
import os
import re
import socket
import subprocess
import sys
import time

command, home = sys.argv[1:], os.environ["HOME"]
room, at = home + "/served", home + "/serve/sock"
if os.path.exists(at):
    os.remove(at)


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(at)


def number(name):
    connection = Connection("x", timeout=10)
    connection.request("GET", "/v1/metrics")
    found = re.search(r"(?m)^cellblock_stock_%s (\d+)$" % name, connection.getresponse().read().decode())
    return int(found.group(1)) if found else -1


def until(what, true):
    end = time.monotonic() + 90
    while not true():
        if time.monotonic() > end or server.poll() is not None:
            sys.exit("not within 90 s: " + what)
        time.sleep(0.2)


def run(name, *more):
    os.makedirs(os.path.join(room, name), exist_ok=True)
    return subprocess.run(command + ["cellblock", "run", "--json", "--connect", at, "--session", os.path.join(room, name)] + list(more),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=120).stdout


subprocess.run(command + ["mkdir", "-p", room, os.path.dirname(at)], check=True)
server = subprocess.Popen(command + ["cellblock", "serve", "--root", room, "--socket", at, "--mode", "enforce", "--python", "/usr/bin/python3",
                                     "--start-timeout", "60s", "--stock", "1", "--stock-way", "fork"])
try:
    until("the server", lambda: os.path.exists(at))
    subprocess.run(command + ["mkdir", "-p", room + "/first", room + "/second"], check=True)
    run("first", "-c", "1")  # which tells the server what is wanted
    until("a worker", lambda: number("ready") > 0)
    said = run("second", "/work/attacks.py")
    if number("given_total") != 1:
        sys.exit("no worker was handed out")
    print(said)
finally:
    server.terminate()
    server.wait(60)
