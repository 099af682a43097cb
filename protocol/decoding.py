"""Writes decoders.

What the text of a decoder looks like, and why.

- Values of fixed width are collected until something of another kind comes; then one
  `unpack_from` reads them, and the length that follows them, straight into the attributes.
- Slices of a short buffer do not fail in Python. So every length is compared with `end` before
  anything is sliced or made, and the last line compares `position` with `end` once more, for
  the values of fixed width. Those may be read from beyond `end` (the next frame in the same
  buffer), but never get out of here. Beyond the buffer they fail by themselves.
- A count is refused if so many of the smallest possible elements do not fit what is left, and
  if all arrays together would have more than a million elements. The greatest memory per byte
  is that of a struct of one empty string, one empty array and no tags: 3 bytes become an
  instance, a list and a place in another list, 120 bytes or about 40 times as much. The
  second limit keeps this under 130 MB for whatever frame.
- Known tags are read with `end` moved to the end of the tag's own bytes.
"""

from __future__ import annotations

from struct import calcsize, unpack_from
from struct import error as struct_error
from typing import TYPE_CHECKING

from protocol.errors import Malformed
from protocol.primitives import (
    MAX_ELEMENTS,
    MAX_STRING_BYTES,
    MAX_TAGS,
    rest_of_uvarint,
    skip_entries,
)
from protocol.source import FORMATS, Source, joined, minimal_size, untagged_fields

if TYPE_CHECKING:
    from protocol.fields import Field, StructType

FEW = 3  # up to so many structs of fixed width, reading them one by one is faster


class DecoderSource(Source):
    def __init__(self, cls: StructType, version: int) -> None:
        super().__init__(cls, version)
        self._run: list[tuple[str, str]] = []  # (format, target) not yet read
        self._run_path = ""
        self.provide(
            Malformed=Malformed,
            struct_error=struct_error,
            rest_of_uvarint=rest_of_uvarint,
            skip_entries=skip_entries,
            unpack_from=unpack_from,
            new=object.__new__,
            once=(0,),  # cheaper to go through than range(1), and most arrays have one element
        )
        self._write()

    def _write(self) -> None:
        self.depth = 0
        with self.block("def decode(buffer, position, end):"):
            with self.block("try:"):
                self.line(f"room = {MAX_ELEMENTS}")
                if any(field.holds("records") for field in self.cls._fields):
                    self.line("view = memoryview(buffer)")
                self._new("message", self.cls)
                self._struct("message", self.cls, "")
                self._flush()
            with self.block("except (IndexError, struct_error):"):
                self.line(f"raise Malformed('{self.title} ends too early') from None")
            with self.block("if position > end:"):
                self._raise("", "ends {position - end} bytes too early")
            self.line("return message, position")

    def _raise(self, path: str, problem: str) -> None:
        where = f"{self.title} {path}".strip().replace("{", "{{").replace("}", "}}")
        braced = "f" if "{" in problem else ""
        self.line(f"raise Malformed({braced}{f'{where}: {problem}'!r})")

    # Values of fixed width, and lengths.

    def _flush(self) -> None:
        """Read what has been collected; afterwards `position` is behind it."""
        if not self._run:
            return
        formats = "".join(code for code, _ in self._run)
        targets = [target for _, target in self._run]
        self._run.clear()
        if formats == "B":
            self.line(f"{targets[0]} = buffer[position]")
        elif len(targets) == 1:
            self.line(f"{targets[0]} = {self.layout('unpack_from', formats)}(buffer, position)[0]")
        else:
            self.line(
                f"{', '.join(targets)} = {self.layout('unpack_from', formats)}(buffer, position)"
            )
        self.line(f"position += {calcsize('>' + formats)}")

    def _uvarint(self, target: str) -> None:
        self._run.append(("B", target))
        self._flush()
        with self.block(f"if {target} > 127:"):
            self.line(f"{target}, position = rest_of_uvarint(buffer, position, end)")

    def _length(self, kind: str) -> None:
        """Read a length into `n`, as it is on the wire."""
        if self.flexible:
            self._uvarint("n")
        else:
            self._run.append(("h" if kind == "string" else "i", "n"))
            self._flush()

    def _null(self, field: Field, target: str, path: str) -> None:
        """Write the branch for an `n` that is not the length of anything."""
        nullable = field.nullable_in(self.version)
        if nullable:
            with self.block("else:" if self.flexible else "elif n == -1:"):
                self.line(f"{target} = None")
        if not (nullable and self.flexible):
            with self.block("else:"):
                self._raise(path, "null" if self.flexible else "a length of {n}")

    # One method for each kind of value.

    def _value(self, field: Field, target: str, path: str) -> None:
        if field.kind in FORMATS:
            self._run.append((FORMATS[field.kind], target))
        elif field.kind == "array":
            self._array(field, target, path)
        elif field.kind == "struct":
            self._inner_struct(field, target, path)
        else:
            self._bytes(field, target, path)

    def _bytes(self, field: Field, target: str, path: str) -> None:
        self._length(field.kind)
        with self.block("if n:" if self.flexible else "if n >= 0:"):
            self.line("start = position")
            self.line("position += n - 1" if self.flexible else "position += n")
            with self.block("if position > end:"):
                self._raise(path, "{position - start} bytes wanted, {end - start} left")
            if field.kind == "string":
                if self.flexible:
                    with self.block(f"if n > {MAX_STRING_BYTES + 1}:"):
                        self._raise(path, "a string of {n - 1} bytes")
                self.line(f"{target} = buffer[start:position].decode('utf-8', 'surrogateescape')")
            elif field.kind == "binary":
                self.line(f"{target} = bytes(buffer[start:position])")
            else:
                self.line(f"{target} = view[start:position]")
        self._null(field, target, path)

    def _array(self, field: Field, target: str, path: str) -> None:
        item = field.item
        assert item is not None
        self._length("array")
        with self.block("if n > 1:" if self.flexible else "if n > 0:"):
            if self.flexible:
                self.line("n -= 1")
            smallest = max(1, minimal_size(item, self.version, self.flexible))
            times = f" * {smallest}" if smallest > 1 else ""
            with self.block(f"if n{times} > end - position:"):
                self._raise(path, "{n} elements claimed, {end - position} bytes left")
            self.line("room -= n")
            with self.block("if room < 0:"):
                self._raise(path, f"the message has more than {MAX_ELEMENTS} elements")
            if item.kind in FORMATS and item.kind != "uuid":
                self._fixed_items(FORMATS[item.kind], target)
            else:
                self._items(item, target, path)
        with self.block("elif n:" if self.flexible else "elif n == 0:"):
            self.line(f"{target} = []")
        self._null(field, target, path)

    def _fixed_items(self, code: str, target: str) -> None:
        one = f"{self.layout('unpack_from', code)}(buffer, position)"
        many = f"unpack_from(f'>{{n}}{code}', buffer, position)"
        self.line(f"{target} = list({one} if n == 1 else {many})")
        size = calcsize(f">{code}")
        self.line(f"position += n * {size}" if size > 1 else "position += n")

    def _items(self, item: Field, target: str, path: str) -> None:
        stem = path.rpartition(".")[2]
        items, one = self.local(f"{stem}_list"), self.local(f"{stem}_item")
        self.line(f"{target} = {items} = []")
        if item.struct is not None and self._has_fixed_width(item.struct):
            self._many_fixed_structs(item.struct, items, one)
        with self.block("for _ in once if n == 1 else range(n):"):
            self._value(item, one, path)
            self._flush()
            self.line(f"{items}.append({one})")

    def _has_fixed_width(self, cls: StructType) -> bool:
        fields = untagged_fields(cls, self.version)
        return len(fields) > 1 and all(field.kind in FORMATS for field in fields)

    def _many_fixed_structs(self, cls: StructType, items: str, one: str) -> None:
        """Read structs that have no tags by one `iter_unpack`; leave `n` for the loop after it.

        Pays from a few structs on. The first that has tags ends it: those behind it no longer
        lie where they would be without.
        """
        fields = untagged_fields(cls, self.version)
        formats = "".join(FORMATS[field.kind] for field in fields) + "B" * self.flexible
        values = [self.local(field.name) for field in fields]
        targets = values + ([self.local("tags")] if self.flexible else [])
        size = calcsize(">" + formats)
        layout = self.layout("iter_unpack", formats)
        with self.block(f"if n > {FEW}:"):
            window = f"buffer[position:position + n * {size}]"
            with self.block(f"for {', '.join(targets)} in {layout}({window}):"):
                if self.flexible:
                    with self.block(f"if {targets[-1]}:"):
                        self.line("break")
                self._new(one, cls)
                self._defaults(one, cls)
                for field, value in zip(fields, values, strict=True):
                    self.line(f"{one}.{field.name} = {value}")
                self.line(f"{items}.append({one})")
            self.line(f"position += len({items}) * {size}")
            self.line(f"n -= len({items})")

    # Structs and their tag sections.

    def _new(self, target: str, cls: StructType) -> None:
        self.line(f"{target} = new({self.constant(cls.__name__, cls)})")

    def _inner_struct(self, field: Field, target: str, path: str) -> None:
        assert field.struct is not None
        variable = target if target.isidentifier() else self.local(field.name)
        if not field.nullable_in(self.version):
            self._new(variable, field.struct)
            self._struct(variable, field.struct, path)
            if variable != target:
                self.line(f"{target} = {variable}")
            return
        self._run.append(("b", "n"))
        self._flush()
        with self.block("if n < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self._new(variable, field.struct)
            self._struct(variable, field.struct, path)
            self._flush()
            if variable != target:
                self.line(f"{target} = {variable}")

    def _struct(self, variable: str, cls: StructType, path: str) -> None:
        """The fields into `variable`; values of fixed width at the end may still be collected."""
        self._defaults(variable, cls)
        for field in untagged_fields(cls, self.version):
            self._value(field, f"{variable}.{field.name}", joined(path, field))
        if self.flexible:
            self._tags(variable, cls, path)

    def _defaults(self, variable: str, cls: StructType) -> None:
        """Defaults for the fields that this version lacks, and for those that may be lacking."""
        untagged = untagged_fields(cls, self.version)
        for field in cls._fields:
            if field not in untagged:
                fresh = field.default == () and field.struct is None
                value = "[]" if fresh else self.literal(field.default_value())
                self.line(f"{variable}.{field.name} = {value}")

    def _tags(self, variable: str, cls: StructType, path: str) -> None:
        present = (field for field in cls._fields if field.versions.holds(self.version))
        tagged = sorted((f.tag, f) for f in present if f.tag is not None)
        self._run.append(("B", "n"))
        self._flush()
        with self.block("if n:"):
            with self.block("if n > 127:"):
                self.line("n, position = rest_of_uvarint(buffer, position, end)")
            if not tagged:
                self.line("position = skip_entries(buffer, position, end, n)")
                return
            with self.block(f"if n > {MAX_TAGS}:"):
                self._raise(path, "a tag section of {n} entries")
            seen, tag, stop, outer = map(self.local, ("seen", "tag", "stop", "outer_end"))
            self.line(f"{outer} = end")
            self.line(f"{seen} = 0")
            with self.block("for _ in range(n):"):
                self._uvarint(tag)
                self._uvarint("n")
                self.line(f"{stop} = position + n")
                with self.block(f"if {stop} > end:"):
                    self._raise(path, f"tag {{{tag}}} has {{n}} bytes, {{end - position}} left")
                for bit, (number, field) in enumerate(tagged):
                    with self.block(f"{'elif' if bit else 'if'} {tag} == {number}:"):
                        with self.block(f"if {seen} & {1 << bit}:"):
                            self._raise(path, f"tag {number} twice")
                        self.line(f"{seen} |= {1 << bit}")
                        self.line(f"end = {stop}")
                        self._value(field, f"{variable}.{field.name}", joined(path, field))
                        self._flush()
                        self.line(f"end = {outer}")
                        with self.block(f"if position != {stop}:"):
                            problem = f"tag {number} ends at {{position}}, not {{{stop}}}"
                            self._raise(path, problem)
                with self.block("else:"):
                    self.line(f"position = {stop}")
