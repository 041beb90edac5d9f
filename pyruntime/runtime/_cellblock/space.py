"""The namespace of a session: __main__, what is bound in it, and reset."""

import os
import sys
import types

from . import prelude
from .cell import Runner
from .skills import Skills


def place_directory():
    """Put the session directory on sys.path, after the standard library.

    A file json.py there must not replace the standard json, but a local module
    goes before an installed one of the same name.
    """
    for at, entry in enumerate(sys.path):
        if "site-packages" in entry or "dist-packages" in entry:
            sys.path.insert(at, "")
            return
    sys.path.append("")


class Main(types.ModuleType):
    """__main__: names of the prelude that no cell has mentioned are there too."""

    def __getattr__(self, name):
        make = prelude.NAMES.get(name)
        if make is None:
            raise AttributeError("module '__main__' has no attribute %r" % name)
        value = self.__dict__[name] = make()
        return value


class Space:
    """What reset takes back: namespace, directory, environment, sys.path."""

    def __init__(self, directory, registry):
        self.registry = registry  # whether to look for service knowledge
        self.directory = directory
        self.skills = Skills()
        # One list for as long as the worker lives: a skill that took it by name
        # sees the same one after a reset.
        self.audit = prelude.AUDIT
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        self._argv = list(sys.argv)
        self._fresh()

    def _fresh(self):
        module = Main("__main__")
        module.__dict__.update(__doc__=None, __spec__=None, __loader__=None, __package__=None, __builtins__=sys.modules["builtins"])
        sys.modules["__main__"] = module
        self.module = module
        self.names = module.__dict__
        del self.audit[:]
        self.runner = Runner(self.names)
        self._kept = None

    def bind(self):
        """Bind skills and service_knowledge; the number of names there are."""
        if self.skills.names:
            self.names["_AUDIT"] = self.audit
        self.skills.bind(self.names)
        known = 0
        if self.registry and os.path.isdir(os.path.join(self.directory, ".xtrm", "skills")):
            from . import knowledge

            known = knowledge.bind(self.directory, self.names, self.skills.errors, lambda: self.audit)
        return len(prelude.NAMES) + known + len(self.skills.names) - len([n for n in self.skills.names if n in self.skills.errors])

    def reset(self):
        """A new namespace in the session directory."""
        self.runner.close()
        names = self.names
        self._fresh()
        names.clear()
        os.chdir(self.directory)
        for name in [n for n in os.environ if n not in self._environment]:
            del os.environ[name]
        for name, value in self._environment.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        sys.path[:] = self._path
        sys.argv[:] = self._argv
        self.skills.restore_path()
        vars(sys.modules["builtins"]).pop("_", None)

    def values(self):
        """The names that there are, with the ids of their values."""
        return {name: id(value) for name, value in self.names.items()}

    def definitions(self, text, cell, before, error):
        """What the cells that are kept still define, this one among them; before is what
        values returned when it began."""
        for name, make in prelude.NAMES.items():
            if name in self.names and self.names[name] is make():
                before[name] = id(self.names[name])  # bound for having been mentioned
        if self._kept is None:
            from .keep import Definitions

            self._kept = Definitions()
        self._kept.note(text, cell, self.runner.flags(), before, self.names, error)
        return self._kept.report()

    def take_audit(self):
        """The declared entries since the last call; the list is empty again."""
        found = self.names.get("_AUDIT", self.audit)
        entries = list(found) if isinstance(found, list) else [found]
        if isinstance(found, list):
            del found[:]
        if found is not self.audit:
            entries = list(self.audit) + entries
            del self.audit[:]
            self.names["_AUDIT"] = self.audit
        return entries
