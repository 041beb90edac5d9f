"""Where a cell's source is found later: linecache and inspect.

linecache and inspect are heavy and most cells need neither, so nothing is
imported here: a finder waits for their import and adds what cells need.
"""

import gc
import sys

sources = {}  # "<cell 3>" -> text
_classes = None  # weak dictionary: class -> name of the cell that made it
MAX_KEPT = 32 << 20  # characters of source kept in all
_ENTRY = 256  # what an entry costs beside its text, in characters
_kept = 0  # of sources


def name_of(cell):
    """How a cell is named in tracebacks."""
    return "<cell %s>" % (cell,)


def compiled(what, name, mode, flags):
    """compile() to a tree, or of one. Before CPython 3.12 a collection in the middle of it
    can run a finalizer that parses, too (traceback does), and compile then ends in a
    SystemError (python/cpython#106905): nothing is collected meanwhile."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return compile(what, name, mode, flags, True)
    finally:
        if collects:
            gc.enable()


def lines_of(text):
    """The lines as the compiler counts them: str.splitlines knows more ends."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last + "\n"] if last else [])


def keep(name, text):
    """Remember a cell's source for tracebacks and inspect."""
    global _kept
    before = sources.pop(name, None)
    if before is not None:
        _kept -= len(before) + _ENTRY
    sources[name] = text
    _kept += len(text) + _ENTRY
    while len(sources) > 1 and _kept > MAX_KEPT:
        oldest = next(iter(sources))
        _kept -= len(sources.pop(oldest)) + _ENTRY
        cache = sys.modules.get("linecache")
        if cache is not None:
            cache.cache.pop(oldest, None)
    cache = sys.modules.get("linecache")
    if cache is not None:
        _enter(cache, name, text)


def _enter(linecache, name, text):
    # No modification time: linecache.checkcache leaves such an entry alone.
    linecache.cache[name] = (len(text), None, lines_of(text), name)


def _fill(linecache):
    for name, text in sources.items():
        _enter(linecache, name, text)
    clear = linecache.clearcache

    def clearcache():
        """Clear the cache; the cells' own lines stay."""
        clear()
        for name, text in sources.items():
            _enter(linecache, name, text)

    linecache.clearcache = clearcache


def note_classes(name, namespace):
    """After a cell with class statements: remember which classes it made.

    Looked up here, not in a replaced __build_class__: one more frame would move
    what metaclasses and warnings find with sys._getframe and stacklevel.
    """
    global _classes
    if _classes is None:
        import weakref

        _classes = weakref.WeakKeyDictionary()
    waiting = [v for v in list(namespace.values()) if isinstance(v, type)]
    while waiting:
        kind = waiting.pop()
        try:
            if kind.__module__ == "__main__" and kind not in _classes:
                _classes[kind] = name
                waiting.extend(v for v in vars(kind).values() if isinstance(v, type))
        except Exception:  # a metaclass with a hash or an attribute of its own
            pass


def _teach(inspect):
    getfile = inspect.getfile

    def getfile_of_cell(object):
        """Work out which source or compiled file an object was defined in."""
        if isinstance(object, type) and object.__module__ == "__main__":
            file = _cell_of(object)
            if file is not None:
                return file
        return getfile(object)

    getfile_of_cell.__name__ = getfile_of_cell.__qualname__ = "getfile"
    inspect.getfile = getfile_of_cell


def _cell_of(kind):
    """The cell that made a class: by a method's code, by what was noted after
    the cell, or the newest cell with a class statement of that name."""
    for value in list(vars(kind).values()):
        value = getattr(value, "__func__", value)  # class and static methods
        code = getattr(value, "__code__", None)
        if code is not None and code.co_filename in sources and value.__qualname__.rpartition(".")[0] == kind.__qualname__:
            return code.co_filename
    try:
        noted = _classes.get(kind) if _classes is not None else None
    except Exception:
        noted = None
    if noted in sources:
        return noted
    plain = "class " + kind.__name__
    for name in reversed(list(sources)):
        if plain in sources[name]:
            return name
    return None


_AFTER = {"linecache": _fill, "inspect": _teach}


class _Waiting:
    """A finder that finds nothing itself: it adds a step after an import."""

    def __init__(self, after):
        self.after = after

    def find_spec(self, name, path=None, target=None):
        step = self.after.pop(name, None)
        if step is None:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None:
            return spec

        def exec_module(module):
            run(module)
            step(module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a built-in or frozen loader is a class
            return spec
        return spec


def after_import(name, step):
    """Call step(module) once module name is imported, or now if it is."""
    if name in sys.modules:
        step(sys.modules[name])
        return
    before = _AFTER.get(name)
    if before is None:
        _AFTER[name] = step
        return

    def both(module):
        before(module)
        step(module)

    _AFTER[name] = both


def install():
    """Wait for the modules that need to know of cells."""
    for name in list(_AFTER):
        if name in sys.modules:
            _AFTER.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, _Waiting(_AFTER))
