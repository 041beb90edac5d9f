"""What extensions are written with: schemas, signatures, and an author's own tests."""

import dataclasses
import enum
import os
import sys
import typing
import unittest

sys.path.insert(0, os.environ["CELLBLOCK_EXTENSION"])
import cellblock
from cellblock import schema

sys.path.pop(0)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Options(typing.TypedDict, total=False):
    deep: bool


class Model:
    """A model as Pydantic 2 makes one, without Pydantic."""

    def __init__(self, name):
        self.name = name

    @classmethod
    def model_json_schema(cls, ref_template):
        return {"type": "object", "properties": {"name": {"$ref": ref_template.format(model="Name")}}, "$defs": {"Name": {"type": "string"}}}

    @classmethod
    def model_validate(cls, found):
        if type(found.get("name")) is not str:
            raise ValueError("name: a string is needed")
        return cls(found["name"])

    def model_dump(self, mode):
        return {"name": self.name}


class Schemas(unittest.TestCase):
    def test_every_kind_of_hint(self):
        pairs = [
            (str, {"type": "string"}),
            (None, {"type": "null"}),
            (typing.Any, {}),
            (typing.Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            (typing.Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
            (typing.Literal["a", 1], {"enum": ["a", 1]}),
            (typing.List[float], {"type": "array", "items": {"type": "number"}}),
            (list, {"type": "array"}),
            (typing.Tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
            (typing.Tuple[int, str], {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}]}),
            (typing.Set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
            (typing.Dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
            (Color, {"enum": ["red", "blue"]}),
            (Point, {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.0}}, "required": ["x"], "additionalProperties": False}),
            (Options, {"type": "object", "properties": {"deep": {"type": "boolean"}}, "additionalProperties": False}),
            (typing.Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
            (typing.NewType("Id", str), {"type": "string"}),
        ]
        for hint, want in pairs:
            self.assertEqual(schema.of(hint), want, hint)

    @unittest.skipIf(sys.version_info < (3, 10), "the syntax X | Y came with 3.10")
    def test_unions_with_a_bar(self):
        self.assertEqual(schema.of(eval("list[int] | None")), {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]})

    def test_what_has_no_schema_is_named(self):
        @dataclasses.dataclass
        class Tree:
            left: "Tree"

        Tree.__annotations__["left"] = Tree
        for hint, text in ((bytes, "bytes"), (typing.Dict[int, str], "keys"), (Tree, "holds itself")):
            with self.assertRaisesRegex(cellblock.Unsupported, text):
                schema.of(hint)

    def test_a_model_brings_its_definitions(self):
        def f(model: Model) -> Model:
            return model

        tool = cellblock.Tool(f)
        self.assertEqual(tool.schema["$defs"], {"Name": {"type": "string"}})
        self.assertEqual(tool.schema["properties"]["model"]["properties"]["name"], {"$ref": "#/$defs/Name"})
        self.assertEqual(cellblock.data.plain(tool.run(tool.arguments({"model": {"name": "x"}}), None)), {"name": "x"})
        with self.assertRaisesRegex(cellblock.HostError, "a string is needed"):
            tool.arguments({"model": {"name": 1}})


class Tools(unittest.TestCase):
    def test_signatures_can_be_read(self):
        def named(a: int, b: typing.Optional[str] = None, *, color: Color = Color.RED, context=None):
            pass

        def whole(arguments: Point, context):
            pass

        def any(arguments, context):
            pass

        def more(a: int, **rest):
            pass

        for f, want in ((named, "(a: int, b: Optional[str] = None, color: Color = 'red')"), (whole, "(x: int, y: float = 0.0)"), (any, "(**arguments)"), (more, "(a: int, **rest)")):
            self.assertEqual(cellblock.Tool(f).described()["signature"], want)
        self.assertTrue(cellblock.Tool(more).schema["additionalProperties"])

    def test_what_is_no_tool_is_refused(self):
        def rest(*items):
            pass

        for make, kind in (
            (lambda: cellblock.Tool(rest), TypeError),
            (lambda: cellblock.Tool(lambda: 1), ValueError),
            (lambda: cellblock.Tool(rest, name="a b"), ValueError),
            (lambda: cellblock.Tool(print, name="f", purposes=["play"]), (ValueError, TypeError)),
            (lambda: cellblock.Extension(name="x", hooks={"never": print}), ValueError),
            (lambda: cellblock.register("x"), TypeError),
        ):
            self.assertRaises(kind, make)

    def test_a_decorated_tool_is_still_the_function(self):
        @cellblock.tool(preflight=lambda arguments, identity: cellblock.Action("x"), purposes="interactive", timeout=2)
        def double(n: int):
            return n * 2

        self.assertEqual(double(4), 8)
        self.assertEqual((double.described()["timeoutMs"], double.described()["purposes"], double.described()["preflight"]), (2000, ["interactive"], True))

    def test_an_authors_context(self):
        context = cellblock.testing.context({"a.b": lambda x: x + 1}, workspace="/w")
        self.assertEqual((context.host.call("a.b", x=1), context.workspace), (2, "/w"))
        with self.assertRaises(cellblock.HostError) as caught:
            context.host.call("c.d")
        self.assertEqual(caught.exception.code, "unknown")
        with self.assertRaises(AttributeError):
            context.identity.session_id = "other"
        cellblock.testing.expire(context)
        self.assertRaises(cellblock.ContextExpired, lambda: context.workspace)


if __name__ == "__main__":
    unittest.main()
