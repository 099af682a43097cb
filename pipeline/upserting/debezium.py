"""Debezium's change events, as JSON, made rows and deletions of the table that they tell of.

An event is an envelope, with or without its schema around it (`schemas.enable` of Kafka Connect):

    {"before": {...}, "after": {...}, "op": "u", "source": {...}, "ts_ms": ...}
    {"schema": {...}, "payload": <the envelope>}

    op c, u, r    the value becomes the text of `after`: created, updated, read in a snapshot
    op d          a tombstone; the one that Debezium sends behind it is one already
    op m          a message that is not of any row: left out
    op t          all rows were removed: cannot be told by keys, and ends the run

Whole numbers keep their digits, others are written as the shortest text of the same double.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.errors import CorruptData
from pipeline.schemas import RECORDS_AND_HEADERS

if TYPE_CHECKING:
    from pipeline.left_out import LeftOut
    from pipeline.reading.plan import Range

DEBEZIUM = "debezium"
"""The name of the envelope."""
_ROW, _DELETED, _MESSAGE = ("c", "u", "r"), "d", "m"
_VALUE = RECORDS_AND_HEADERS.get_field_index("value")


class NoEnvelope(ValueError):
    """A value that is no change event of a row. The text says why."""


def row_of(value: bytes) -> tuple[bytes | None, bool]:
    """The row after a change, as JSON, None if it was deleted; and whether it is of a row at all.

    Raises NoEnvelope.
    """
    envelope = _parsed(value)
    operation = envelope["op"]
    if operation in _ROW:
        after = envelope.get("after")
        if not isinstance(after, dict):
            raise NoEnvelope(f"an event of op '{operation}' without `after`")
        try:
            text = json.dumps(after, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError as failure:
            raise NoEnvelope(str(failure)) from None
        return text.encode(), True
    if operation == _DELETED:
        return None, True
    if operation == _MESSAGE:
        return None, False
    if operation == "t":
        raise NoEnvelope("all rows were removed at the source (op 't'), which keys do not tell")
    raise NoEnvelope(f"op {operation!r} is not known")


def rows_of_events(records: pa.Table, range_: Range, left_out: LeftOut | None) -> pa.Table:
    """Records whose values are rows, in the place of events.

    Raises CorruptData for a value that is no event, unless there is a `left_out` to count it in.
    """
    values: list[bytes | None] = []
    kept: list[bool] = []
    for value, offset in zip(
        records["value"].to_pylist(), records["offset"].to_pylist(), strict=True
    ):
        row, wanted = None, True
        if value is not None:
            try:
                row, wanted = row_of(value)
            except NoEnvelope as failure:
                wanted = False
                _refuse(range_, offset, failure, left_out)
        values.append(row)
        kept.append(wanted)
    column = RECORDS_AND_HEADERS.field(_VALUE)
    made = records.set_column(_VALUE, column, pa.array(values, column.type))
    return made if all(kept) else made.filter(pa.array(kept))


def _refuse(range_: Range, offset: int, why: NoEnvelope, left_out: LeftOut | None) -> None:
    if left_out is None:
        raise CorruptData(
            f"{range_.topic_partition} offset {offset}: no change event of Debezium, as JSON: "
            f"{why}; leave such records out with onCorrupt=skip (--on-corrupt skip)"
        )
    left_out.corrupt(range_, offset, offset, f"no change event: {why}")


def _parsed(value: bytes) -> dict[str, Any]:
    try:
        told = json.loads(value)
    except (ValueError, RecursionError) as failure:
        raise NoEnvelope(f"it is no JSON ({failure})") from None
    if isinstance(told, dict) and "payload" in told and "schema" in told:
        told = told["payload"]
    if not isinstance(told, dict) or not isinstance(told.get("op"), str):
        raise NoEnvelope("it has no `op`")
    return told
