"""First code of a warm parent: python -I -S -B parent.py FD.

It is started outside of any jail, so that nothing but the standard library and the
package beside this file is imported: no site directory, whose .pth files are code. The
workers that it forks do that themselves, confined.
"""
import sys

sys.dont_write_bytecode = True


def _start():
    here = __file__.rpartition("/")[0] or "."
    fd = int(sys.argv[1])
    sys.path.insert(0, here)
    try:
        from _cellblock import parent
    finally:
        sys.path.remove(here)
    sys.argv[:] = [""]
    parent.main(fd)


_start()
