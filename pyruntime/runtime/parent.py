"""First code of a warm parent: python -I -S -B parent.py CONTROL ENDS.

It is started outside of any jail, so that nothing but the standard library and the
package beside this file is imported: no site directory, whose .pth files are code. The
workers that it forks do that themselves, confined.
"""
import sys

sys.dont_write_bytecode = True


def _start():
    here = __file__.rpartition("/")[0] or "."
    control, ends = int(sys.argv[1]), int(sys.argv[2])
    sys.path.insert(0, here)
    try:
        from _cellblock import reaper

        reaper.main(control, ends)
        from _cellblock import parent
    finally:
        sys.path.remove(here)
    sys.argv[:] = [""]
    parent.main(control)


_start()
