# The least that runs cells: lines of JSON over a Unix socket, one namespace.
import json
import socket

wire = socket.socket(fileno=3)
names = {}
for line in wire.makefile("rb"):
    request = json.loads(line)
    reply = {"id": request["id"]}
    try:
        try:
            value = eval(compile(request["code"], "<cell>", "eval"), names)
        except SyntaxError:
            value = exec(compile(request["code"], "<cell>", "exec"), names)
        reply["value"] = repr(value)
    except BaseException as error:
        reply["error"] = repr(error)
    wire.sendall(json.dumps(reply).encode() + b"\n")
