"""Writes encoders.

What the text of an encoder looks like, and why.

- Values of fixed width are collected until something of another kind comes; then one `pack`
  writes them, together with the length that follows if it fits one byte, as it nearly always
  does.
- A tag section without entries is a zero byte of the same `pack`.
- Values are not checked one by one: what does not fit is refused by `struct` or by Python,
  and the slow encoder then finds the field. The exception is a uuid, which `struct` would
  cut or fill up in silence.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

from protocol.primitives import Written, write_string_length, write_uvarint
from protocol.source import FORMATS, Source, joined, untagged_fields

if TYPE_CHECKING:
    from protocol.fields import Field, StructType

ZERO_BYTE = "x"  # how `pack` writes a zero byte that takes no value


class EncoderSource(Source):
    def __init__(self, cls: StructType, version: int) -> None:
        super().__init__(cls, version)
        self._run: list[tuple[str, str]] = []  # (format, expression) not yet written
        self.provide(
            pack=pack,
            Written=Written,
            write_uvarint=write_uvarint,
            write_string_length=write_string_length,
        )
        self._write()

    def _write(self) -> None:
        self.depth = 0
        with self.block("def encode(message, out, slices):"):
            self._struct("message", self.cls, "")
            self._flush()
            if len(self.lines) == 1:
                self.line("pass")

    # Values of fixed width, and lengths.

    def _flush(self) -> None:
        self._emit(self._run)
        self._run = []

    def _emit(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        formats = "".join(code for code, _ in run)
        values = ", ".join(value for code, value in run if code != ZERO_BYTE)
        if formats == "B":
            self.line(f"out.append({values})")
        elif set(formats) == {ZERO_BYTE}:
            zeros = bytes(len(run))
            self.line("out.append(0)" if len(run) == 1 else f"out += {zeros!r}")
        else:
            self.line(f"out += {self.layout('pack', formats)}({values})")

    def _small(self, condition: str, last: tuple[str, str]) -> _Either:
        """Write what has been collected and `last` in one if the condition holds."""
        run, self._run = self._run, []
        with self.block(f"if {condition}:"):
            self._emit([*run, last])
        return _Either(self, run)

    def _length(self, kind: str, size: str) -> None:
        """Write a length after what has been collected."""
        if not self.flexible:
            self._run.append(("h" if kind == "string" else "i", size))
            self._flush()
            return
        self.line(f"n = {size} + 1")
        with self._small("n < 128", ("B", "n")) as run:
            self._emit(run)
            if kind == "string":
                self.line("write_string_length(out, n - 1)")
            else:
                self.line("write_uvarint(out, n)")

    # One method for each kind of value.

    def _value(self, field: Field, value: str, path: str) -> None:
        if field.kind in FORMATS:
            if field.kind == "uuid":
                with self.block(f"if len({value}) != 16:"):
                    self.line(f"raise ValueError({path + ': a uuid has 16 bytes'!r})")
            self._run.append((FORMATS[field.kind], value))
        elif field.kind == "struct":
            self._inner_struct(field, value, path)
        elif field.nullable_in(self.version):
            self._nullable(field, value, path)
        else:
            self._sized(field, value, path)

    def _nullable(self, field: Field, value: str, path: str) -> None:
        variable = self.local(field.name)
        self.line(f"{variable} = {value}")
        null = (ZERO_BYTE, "") if self.flexible else ("h" if field.kind == "string" else "i", "-1")
        with self._small(f"{variable} is None", null) as run:
            self._run = run
            self._sized(field, variable, path)

    def _sized(self, field: Field, value: str, path: str) -> None:
        """A value that begins with a length, and is not null."""
        if field.kind == "array":
            self._array(field, value, path)
        elif field.kind == "records":
            self._records(value)
        else:
            encode = ".encode('utf-8', 'surrogateescape')" if field.kind == "string" else ""
            self.line(f"data = {value}{encode}")
            self._length(field.kind, "len(data)")
            self.line("out += data")

    def _records(self, value: str) -> None:
        size = self.local("size")
        self.line(f"data = {value}")
        # A slice of a file has a size; bytes, bytearray and memoryview have not.
        self.line(f"{size} = getattr(data, 'size', None)")
        self._length("records", f"(len(data) if {size} is None else {size})")
        with self.block(f"if {size} is None:"):
            self.line("out += data")
        with self.block("else:"):
            self.line("slices.append((len(out), data))")

    def _array(self, field: Field, value: str, path: str) -> None:
        item = field.item
        assert item is not None
        stem = path.rpartition(".")[2]
        items, one = self.local(f"{stem}_list"), self.local(f"{stem}_item")
        self.line(f"{items} = {value}")
        self._length("array", f"len({items})")
        if item.kind in FORMATS and item.kind != "uuid":
            code = FORMATS[item.kind]
            # On a single node most lists (replicas, in-sync replicas) have one element.
            with self.block(f"if len({items}) == 1:"):
                self.line(f"out += {self.layout('pack', code)}({items}[0])")
            with self.block(f"elif {items}:"):
                self.line(f"out += pack(f'>{{len({items})}}{code}', *{items})")
            return
        if item.kind == "struct":
            with self.block(f"if {items}.__class__ is Written:"):
                self.line(f"out += {items}.data")
                self.line(f"{items} = ()")
        with self.block(f"for {one} in {items}:"):
            self._value(item, one, path)
            self._flush()

    # Structs and their tag sections.

    def _inner_struct(self, field: Field, value: str, path: str) -> None:
        assert field.struct is not None
        variable = value if value.isidentifier() else self.local(field.name)
        if variable != value:
            self.line(f"{variable} = {value}")
        if not field.nullable_in(self.version):
            self._struct(variable, field.struct, path)
            return
        self._flush()
        with self.block(f"if {variable} is None:"):
            self.line("out.append(255)")
        with self.block("else:"):
            self._run.append(("B", "1"))
            self._struct(variable, field.struct, path)
            self._flush()

    def _struct(self, variable: str, cls: StructType, path: str) -> None:
        """The fields of `variable`; values of fixed width at the end may still be collected."""
        for field in untagged_fields(cls, self.version):
            self._value(field, f"{variable}.{field.name}", joined(path, field))
        present = (field for field in cls._fields if field.versions.holds(self.version))
        tagged = sorted((f.tag, f) for f in present if f.tag is not None)
        if tagged:
            self._tags(variable, tagged, path)
        elif self.flexible:
            self._run.append((ZERO_BYTE, ""))

    def _tags(self, variable: str, tagged: list[tuple[int, Field]], path: str) -> None:
        values = []
        for _, field in tagged:
            value = self.local(field.name)
            self.line(f"{value} = {variable}.{field.name}")
            values.append((value, self._is_default(field, value)))
        nothing = " and ".join(test for _, test in values)
        with self._small(nothing, (ZERO_BYTE, "")) as run:
            self._emit(run)
            outer = self.local("outer")
            self.line(f"{outer} = out")
            count = " + ".join(f"(not {test})" for _, test in values)
            self.line(f"write_uvarint(out, {count})")
            for (tag, field), (value, test) in zip(tagged, values, strict=True):
                with self.block(f"if not {test}:"):
                    self.line("out = bytearray()")
                    self._value(field, value, joined(path, field))
                    self._flush()
                    self.line(f"write_uvarint({outer}, {tag})")
                    self.line(f"write_uvarint({outer}, len(out))")
                    self.line(f"{outer} += out")
            self.line(f"out = {outer}")

    def _is_default(self, field: Field, value: str) -> str:
        """An expression that tells whether a tagged field need not be written."""
        if field.default is None:
            return f"({value} is None)"
        if field.default == () and field.struct is None:
            empty = f"len({value}) == 0"
            return f"({value} is not None and {empty})" if field.nullable else f"({empty})"
        default = self.literal(field.default_value())
        if field.struct is not None:
            return f"({value} is {default} or {value} == {default})"
        return f"({value} == {default})"


class _Either:
    """The `else` of a condition. What had been collected before it is written there too."""

    def __init__(self, source: Source, run: list[tuple[str, str]]) -> None:
        self.source = source
        self.run = run

    def __enter__(self) -> list[tuple[str, str]]:
        self.source.line("else:")
        self.source.depth += 1
        return self.run

    def __exit__(self, *_raised: object) -> None:
        self.source.depth -= 1
