"""The text of a decoder or an encoder while it is written, and the words both kinds share."""

from __future__ import annotations

import linecache
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from protocol.fields import Field, StructType

# The kinds of fixed width, and how `struct` calls them.
FORMATS = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I",
    "float64": "d", "boolean": "?", "uuid": "16s",
}  # fmt: skip

# Variables that every function may use; those named after fields keep out of their way.
TAKEN = (
    "buffer", "data", "end", "message", "n", "out", "position", "room", "slices", "start", "view",
)  # fmt: skip


class Source:
    """The text of one function while it is written, and the constants it will see."""

    def __init__(self, cls: StructType, version: int) -> None:
        if not cls.valid_versions.holds(version):
            raise ValueError(f"{cls._name} has versions {cls.valid_versions}, not {version}")
        self.cls = cls
        self.version = version
        self.flexible = version >= cls.first_flexible
        self.title = f"{cls._name} v{version}"
        self.lines: list[str] = []
        self.depth = 1
        self.constants: dict[str, Any] = {}
        self._numbers = dict.fromkeys(TAKEN, 1)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def block(self, head: str) -> _Block:
        """Lines written inside `with source.block("if x:")` stand one step further in."""
        self.line(head)
        return _Block(self)

    def local(self, stem: str) -> str:
        """A name for a variable that nothing else in the function has."""
        number = self._numbers[stem] = self._numbers.get(stem, 0) + 1
        return stem if number == 1 else f"{stem}_{number}"

    def provide(self, **constants: Any) -> None:
        """Objects that the function sees by these names."""
        self.constants |= constants
        self._numbers |= dict.fromkeys(constants, 1)

    def constant(self, stem: str, value: Any) -> str:
        """The name by which the function sees this object."""
        for name, known in self.constants.items():
            if known is value:
                return name
        name = self.local(stem)
        self.constants[name] = value
        return name

    def layout(self, verb: str, formats: str) -> str:
        """The name of a method of a `struct` layout: "pack", "unpack_from", "iter_unpack"."""
        name = f"{verb}_{formats.replace('?', 'Z')}"
        if name not in self.constants:
            self.constants[name] = getattr(Layout(f">{formats}"), verb)
        return name

    def literal(self, value: Any) -> str:
        """An expression for a default: its text, or a constant for what has none."""
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        return self.constant("ZERO_UUID" if value == ZERO_UUID else "default", value)

    def finish(self) -> Any:
        """The function, which must be the only one defined in the text."""
        text = "\n".join(self.lines) + "\n"
        name = text.partition("def ")[2].partition("(")[0]
        filename = f"<{self.title} {name}>"
        # Without a time stamp, `linecache.checkcache` leaves the entry alone.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.constants)
        function = self.constants.pop(name)
        function.__qualname__ = f"{name}({self.title})"
        return function


class _Block:
    """One step of indentation."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __enter__(self) -> None:
        self.source.depth += 1

    def __exit__(self, *_raised: object) -> None:
        self.source.depth -= 1


def minimal_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that a field takes on the wire where it is present and untagged."""
    if field.kind in FORMATS:
        return Layout(f">{FORMATS[field.kind]}").size
    if field.struct is not None:
        return 1 if field.nullable_in(version) else minimal_struct(field.struct, version, flexible)
    if flexible:
        return 1
    return 2 if field.kind == "string" else 4


def minimal_struct(cls: StructType, version: int, flexible: bool) -> int:
    """The fewest bytes that a struct takes on the wire, its tag section included."""
    untagged = untagged_fields(cls, version)
    return sum(minimal_size(field, version, flexible) for field in untagged) + flexible


def untagged_fields(cls: StructType, version: int) -> list[Field]:
    """The fields that a version always has on the wire, in their order there."""
    return [f for f in cls._fields if f.tag is None and f.versions.holds(version)]


def joined(path: str, field: Field) -> str:
    """The place of a field, for messages: "topics.partitions"."""
    return f"{path}.{field.name}" if path else field.name
