"""How the columns of a table may change, when the schema of the values has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHANGING = ("iceberg",)
"""Tables with wider numbers, and new names, for what is in their files already."""


def refuse_change(
    table: str,
    before: pa.Schema,
    after: pa.Schema,
    renamed: Mapping[tuple[str, ...], str] | None = None,
) -> None:
    """Raises Refused for a change that this kind of table cannot follow; new columns all can.

    `renamed` has new names of columns by their paths.
    """
    names = dict(renamed or {}) if table in CHANGING else {}
    for path, was, is_ in _changes(pa.struct(before), pa.struct(after), (), names):
        if is_ is not None and is_wider(was, is_) and table in CHANGING:
            continue
        change = "is gone or renamed" if is_ is None else f"was {was} and is {is_}"
        raise Refused(
            f"the schema has changed, and {table} files cannot follow: column {'.'.join(path)} "
            f"{change}; archive to another folder, with another state"
        )


def is_wider(was: pa.DataType, is_: pa.DataType) -> bool:
    """Whether each value of the one is a value of the other."""
    if pa.types.is_decimal(was) and pa.types.is_decimal(is_):
        return bool(was.scale == is_.scale and was.precision <= is_.precision)
    return (was, is_) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def _changes(
    before: pa.DataType,
    after: pa.DataType,
    path: tuple[str, ...],
    renamed: Mapping[tuple[str, ...], str],
) -> Iterator[tuple[tuple[str, ...], pa.DataType, pa.DataType | None]]:
    """The columns that are not as before, and what they are now; None for one that is gone."""
    if before == after:
        return
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        names = {field.name for field in after}
        for field in before:
            here = (*path, field.name)
            name = field.name if field.name in names else renamed.get(here, field.name)
            if name not in names:
                yield here, field.type, None
            else:
                yield from _changes(field.type, after.field(name).type, here, renamed)
    elif pa.types.is_list(before) and pa.types.is_list(after):
        yield from _changes(before.value_type, after.value_type, (*path, "element"), renamed)
    elif pa.types.is_map(before) and pa.types.is_map(after):
        yield from _changes(before.item_type, after.item_type, (*path, "value"), renamed)
    else:
        yield path, before, after
