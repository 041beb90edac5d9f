"""What a worker reports of definitions, told by the replies of a live one."""

import unittest

from client import Host


class Keep(unittest.TestCase):
    def setUp(self):
        self.host = host = Host()
        self.addCleanup(host.close)
        self.codes = {}

    def keep(self, code):
        """Run a cell that is kept; the source of each statement, and the other names."""
        cell = len(self.codes) + 1
        self.codes[cell] = code
        reply = self.host.cell(code, cell=cell, keep=True)
        found = reply["definitions"]
        self.kinds = [d["kind"] for d in found["kept"]]
        self.names = [d["names"] for d in found["kept"]]
        return [self.codes[d["cell"]].encode()[d["start"]:d["end"]].decode() for d in found["kept"]], sorted(found["others"])

    def test_the_four_kinds_and_nothing_else(self):
        kept, others = self.keep("import os.path as p, json\nfrom re import sub\ndef f(): return K\nclass C:\n    a = 1\nK = -3; L: int = 4\nD = {'a': [1, (2, None)]}; made = list()\nprint(K)")
        self.assertEqual(kept, ["import os.path as p, json", "from re import sub", "def f(): return K", "class C:\n    a = 1", "K = -3", "L: int = 4", "D = {'a': [1, (2, None)]}"])
        self.assertEqual(self.kinds, ["import", "import", "function", "class", "constant", "constant", "constant"])
        self.assertEqual(self.names[0], ["json", "p"])
        self.assertEqual(others, ["made"])

    def test_nothing_is_reported_unasked(self):
        self.assertNotIn("definitions", self.host.cell("x = 1"))

    def test_what_is_not_true_any_more_goes(self):
        self.keep("a = 1\nb = [1]\ndef f(): pass\nclass C: pass\nimport re")
        self.assertEqual(self.keep("a += 1")[0], ["b = [1]", "def f(): pass", "class C: pass", "import re"])
        self.assertEqual(self.keep("b.append(2)")[0], ["def f(): pass", "class C: pass", "import re"])
        self.assertEqual(self.keep("f = C()")[0], ["class C: pass", "import re"])
        self.assertEqual(self.keep("del C, re"), ([], ["a", "b", "f"]))

    def test_the_newest_definition_counts(self):
        self.keep("def f(): return 1")
        self.assertEqual(self.keep("def f(): return 2")[0], ["def f(): return 2"])
        self.assertEqual(self.keep("K = 1\nK = 2\ndef f(): return 3\nf = f")[0], ["K = 2"])
        self.assertEqual(self.keep("import json")[0], ["K = 2", "import json"])
        self.assertEqual(self.keep("import json")[0], ["K = 2", "import json"])
        self.assertEqual(self.keep("import os.path")[0], ["K = 2", "import json", "import os.path"])
        self.assertEqual(self.keep("import os")[0], ["K = 2", "import json", "import os.path", "import os"])

    def test_what_a_later_definition_needed_stays(self):
        self.keep("K = 1\ndef f(x=K): return x")
        self.assertEqual(self.keep("K = 2")[0], ["K = 1", "def f(x=K): return x", "K = 2"])
        self.keep("class B: pass\nclass C:\n    class D(B): pass")
        self.assertEqual(self.keep("def B(): pass")[0][3:], ["class B: pass", "class C:\n    class D(B): pass", "def B(): pass"])
        self.assertEqual(self.keep("del f, C")[0], ["K = 2", "def B(): pass"])

    def test_a_cell_that_failed_defined_what_came_before(self):
        self.assertEqual(self.keep("def f(): return 1\n1 / 0\ndef g(): pass")[0], ["def f(): return 1"])
        self.assertEqual(self.keep("def f(:")[0], ["def f(): return 1"])
        self.assertEqual(self.keep("def g(): 1 / 0\ng()")[0], ["def f(): return 1", "def g(): 1 / 0"])
        self.assertEqual(self.keep("def h(x=1 / 0): pass")[0], ["def f(): return 1", "def g(): 1 / 0"])

    def test_places_are_bytes_of_what_the_host_sent(self):
        for code, want in (
            ("\ufeffé = 'ü'", ["é = 'ü'"]), ("x = 'é'; y = 2;", ["x = 'é'", "y = 2"]), ("a = 1\r\nb = 2\rc = 3\r\n", ["a = 1", "b = 2", "c = 3"]),
            ("import functools\n@functools.lru_cache(\n  None)\n# why\ndef f(): pass\n", ["import functools", "@functools.lru_cache(\n  None)\n# why\ndef f(): pass"]),
            ("s = '''a\nb'''", ["s = '''a\nb'''"]), ("x = (1,\n  2)", ["x = (1,\n  2)"]),
        ):
            with self.subTest(code=code), Host() as self.host:
                self.codes = {}
                self.assertEqual(self.keep(code)[0], want)

    def test_names_bound_within_other_statements_are_other_names(self):
        code = "for i in [1]:\n    def f(): pass\ntry:\n    import nothing_here\nexcept ImportError as e:\n    n = None\nwith open('/dev/null') as h: pass\n[q for q in []]\n(w := 2)\n_hidden = list()"
        self.assertEqual(self.keep(code), ([], ["f", "h", "i", "n", "w"]))

    def test_what_is_no_plain_constant(self):
        self.assertEqual(self.keep("a = [x for x in 'ab']\nb = f'{1}'\nc = a\nd = {**{}}\ne = 1 + 1\ng, h = 1, 2"), ([], ["a", "b", "c", "d", "e", "g", "h"]))
        kept, _ = self.keep("n = float('nan')\nz = -0.0\nt = True\ns = {1, 2}\nv = ...")
        self.assertEqual(kept, ["z = -0.0", "t = True", "s = {1, 2}", "v = ..."])
        self.assertEqual(self.keep("t = 1 == 1\nz = 0.0 * 1; s.add(3)")[0], ["t = True", "v = ..."])

    def test_a_function_that_code_put_in_another_place_is_not_the_sources(self):
        self.assertEqual(self.keep("def other(): return 2\ndef f(): return 1\nglobals()['f'] = other")[0], ["def other(): return 2"])
        self.assertEqual(self.keep("class C: pass\nglobals()['C'] = int")[0], ["def other(): return 2"])

    def test_objects_that_answer_as_none_should_are_met_with_care(self):
        self.keep("class Odd:\n    def __eq__(self, o): raise SystemExit\n    __hash__ = None\n    __class__ = property(lambda s: 1 / 0)")
        kept, _ = self.keep("K = 1\nS = {1}\nl = [1]\nL = [1]\nglobals()['K'] = Odd(); L[0] = Odd()")
        self.assertEqual(kept[1:], ["S = {1}", "l = [1]"])
        deep = "x = " + "(" * 80 + "1" + ",)" * 80
        self.assertEqual(self.keep(deep)[0][1:], ["S = {1}", "l = [1]", deep])

    def test_reset_begins_anew(self):
        self.keep("def f(): pass")
        self.host.request("install-runtime", directory=self.host.directory, reset=True)
        self.assertEqual(self.keep("def g(): pass"), (["def g(): pass"], []))

    def test_each_name_is_kept_or_told_of_as_not(self):
        cells = [
            ["import os.path; import xml.dom"], ["import xml.dom\nimport xml.sax\nimport xml.etree.ElementTree as tree"], ["import xml.dom", "import xml.sax; import xml"],
            ["import json as j\nimport re as j"], ["from os import path\nimport os.path"], ["import xml\nfrom xml import dom as xml"], ["from math import *"], ["pi = list()", "from math import *"],
            ["from math import *\npi = 3"], ["from math import *", "del pi"], ["K = [1]", "K.append(2)"], ["K = {1: [2]}\nL = K", "L[1].append(3)"], ["K = 1", "K += 1"], ["K = 1; K = list()"],
            ["a = b = 1"], ["a, b = 1, 2"], ["(a, [b, *c]) = 1, [2, 3]"], ["a: int = 1; b: int"], ["if (w := 2): z = 1"], ["for i in range(2): pass\nelse: k = 1"], ["while True:\n    k = 1\n    break"],
            ["with open('/dev/null') as h: pass"], ["try: 1 / 0\nexcept ZeroDivisionError as e: n = str(e)\nfinally: m = 1"], ["def f():\n    global g\n    g = 1\nf()"], ["globals()['g'] = 1"],
            ["exec('g = 1')"], ["import __main__; __main__.g = 1", "g = 2"], ["setattr(__import__('__main__'), 'g', [])", "del g"], ["x = 5; 1 / 0"], ["for x in [1]:\n    y = x\n    1 / 0"], ["x = 1\nfor x in [1]: 1 / 0"],
            ["def f(): return 1", "f = 5"], ["def f(): return 1", "def f(x=f()): return x"], ["def d(f): return 3\n@d\ndef g(): pass"], ["class C:\n    x = 1\nC.x = 2"], ["class C: pass\nc = C()"], ["async def f(): pass"],
            ["f = lambda: 1"], ["[q for q in 'ab']; {p: 1 for p in 'ab'}"], ["from __future__ import annotations\ndef f(x: No): pass"], ["json.dumps(1); Path('.')"], ["re = 5"], ["json = json"], ["Path = 1; os = [Path]"],
            ["import sys\nn = sys.version_info\nif n >= (3, 10): exec('match [1, {2: 3}]:\\n case [o, {2: t, **r}] as w: pass')\nif n >= (3, 12): exec('type T = int')"], ["del_me = 1; del del_me"], ["def f(: pass"],
        ]
        for texts in cells:
            with self.subTest(texts=texts), Host() as self.host:
                self.codes = {}
                for text in texts:
                    kept, others = self.keep(text)
                names = sorted(set(n for several in self.names for n in several if n[:1] != "_"))
                there = set(eval(self.host.cell("print([n for n in list(globals()) if n[:1] != '_'])")["stdout"]))
                mentioned = {"json", "os", "re", "sys", "Path", "subprocess"} - set(others)  # bound for that
                there -= mentioned - set(names)
                with Host() as fresh:
                    for statement in kept:
                        self.assertEqual(fresh.cell(statement)["status"], "ok", statement)
                    again = set(eval(fresh.cell("print([n for n in list(globals()) if n[:1] != '_'])")["stdout"]))
                starred = again - set(names) if "*" in names else set()
                self.assertEqual(set(names) & set(others), set())
                self.assertEqual((set(names) - {"*"}) | starred | set(others), there | starred - set(others))
                self.assertEqual(again - starred - mentioned, set(names) - {"*"} - mentioned)

    def test_parts_of_a_package_are_all_loaded_again(self):
        for texts in (["import xml.dom; import xml.sax"], ["import xml.dom\nimport xml.sax, xml.dom"], ["import xml.dom", "import xml.sax"]):
            with self.subTest(texts=texts), Host() as self.host:
                self.codes = {}
                for text in texts:
                    kept, others = self.keep(text)
                self.assertEqual(others, [])
                with Host() as fresh:
                    for statement in kept:
                        fresh.cell(statement)
                    self.assertEqual(fresh.cell("xml.dom.__name__, xml.sax.__name__")["value"], "('xml.dom', 'xml.sax')")

    def test_a_future_holds_for_what_follows(self):
        kept, _ = self.keep("from __future__ import annotations\ndef f(x: Nowhere): pass")
        self.assertEqual(kept, ["from __future__ import annotations", "def f(x: Nowhere): pass"])


if __name__ == "__main__":
    unittest.main()
