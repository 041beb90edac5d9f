"""skillbridge: packages beside a SKILL.md, imported before the first cell."""

import importlib
import os
import sys


def find(root):
    """[(import name, src directory)] of the skills below one root."""
    found = []
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return found
    for name in names:
        src = os.path.join(root, name, "src")
        if not os.path.isfile(os.path.join(root, name, "SKILL.md")):
            continue
        try:
            packages = [p for p in sorted(os.listdir(src)) if os.path.isfile(os.path.join(src, p, "__init__.py"))]
        except OSError:
            continue
        if len(packages) == 1 and packages[0].isidentifier():
            found.append((packages[0], src))
    return found


def why(err):
    """An error in one line."""
    return "%s: %s" % (type(err).__name__, err)


class Skills:
    """The mounted skills of one session."""

    def __init__(self):
        self.names = []
        self.errors = {}
        self._paths = []

    def mount(self, roots):
        """Put every root's src directories in front of sys.path."""
        for root in roots:
            for name, src in find(root):
                if name in self.names:
                    continue
                self.names.append(name)
                self._paths.append(src)
        self.restore_path()

    def restore_path(self):
        """After a reset: the src directories are in front again."""
        sys.path[:0] = [p for p in self._paths if p not in sys.path]

    def bind(self, namespace):
        """Import each skill and bind it; one that fails is recorded."""
        for name in self.names:
            try:
                namespace[name] = importlib.import_module(name)
                self.errors.pop(name, None)
            except BaseException as err:
                self.errors[name] = why(err)

    def reload(self, namespace):
        """Drop every skill and its submodules, import afresh, bind again."""
        for name in self.names:
            for module in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
                del sys.modules[module]
        importlib.invalidate_caches()
        self.bind(namespace)
        return {name: self.errors.get(name, "ok") for name in self.names}
