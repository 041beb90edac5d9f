"""First code of an extension worker: python -I boot.py FD [ROOT FILE].

FD is the worker's end of the wire, or with a file of tests where to tell of them. The packages beside this file are imported
from here alone: cellblock is what extensions import, and stays in sys.modules;
this directory does not stay on sys.path.
"""
import sys

sys.dont_write_bytecode = True


def _start():
    here = __file__.rpartition("/")[0] or "."
    fd = int(sys.argv[1])
    sys.path.insert(0, here)
    try:
        import cellblock  # noqa: F401 - extensions import it, from here and from nowhere else
        if len(sys.argv) > 2:
            from _extension import tests
        else:
            from _extension import serve
    finally:
        sys.path.remove(here)
    more = sys.argv[2:]
    sys.argv[:] = [""]
    if more:
        tests.main(fd, *more)
    else:
        serve.main(fd)


if __name__ == "__main__":
    _start()
