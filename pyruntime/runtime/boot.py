"""First code of a worker: python -I boot.py FD.

FD is the worker's end of the wire. The package beside this file is imported
from here alone; this directory never stays on sys.path, so nothing that a cell
imports can come from it and nothing in a session's directory can replace it.
"""
import sys

sys.dont_write_bytecode = True


def _start():
    here = __file__.rpartition("/")[0] or "."
    fd = int(sys.argv[1])
    sys.path.insert(0, here)
    try:
        from _cellblock import serve
    finally:
        sys.path.remove(here)
    sys.argv[:] = [""]
    serve.main(fd)


_start()
