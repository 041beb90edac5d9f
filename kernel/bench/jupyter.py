# Runs a cell in ipykernel for each line of standard input, and prints what that took,
# in microseconds, from the request to the reply and the end of its output.
import sys
import time

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
try:
    print("ready", flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        number = client.execute(line)
        while True:
            message = client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") == number and message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
        reply = client.get_shell_msg(timeout=60)
        end = time.perf_counter()
        assert reply["content"]["status"] == "ok", reply["content"]
        print((end - begin) * 1e6, flush=True)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
