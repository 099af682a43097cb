"""The first end of a task that makes columns, without Spark: pieces of a range, and schema ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import Range
from pipeline.values.decode_tasks import LOOKED_AT, PIECE_BYTES, PIECE_ROWS, ReadTask
from pipeline.values.payload import Payload
from pipeline.values.wire_format import MARK
from protocol.records.builder import build_batch
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

TOPIC = "pieces"
VALUES = [
    None if n % 7 == 0 else b"\0\0\0\0" + bytes([n % 2 + 1]) + b"%d" % n
    for n in range(2 * PIECE_ROWS + 3)
]
LARGE = [b"\0\0\0\0\1" + b"%d" % n * 900_000 for n in range(6)]


@pytest.fixture(scope="module")
def filled(broker: BrokerProcess) -> BrokerProcess:
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic(TOPIC, 2)
        caller.produce(TOPIC, build_batch([(NOW_MS, b"k", one, ()) for one in VALUES]))
        for one in LARGE:
            caller.produce(TOPIC, build_batch([(NOW_MS, b"k", one, ())]), partition=1)
    return broker


def _read(
    broker: BrokerProcess, partition: int, size: int, known: set[int]
) -> tuple[list[tuple[pa.RecordBatch, pa.Array]], dict[str, object]]:
    """The pieces of a partition, each with what Spark is given to decode; and what is told."""
    source = SourceOptions(servers=broker.bootstrap, topics=(TOPIC,))
    payload = Payload("value", True, True, True, frozenset(known), frozenset())
    task = ReadTask(source, (Range(TOPIC, partition, 0, size),), (payload,))
    rows = list(task([pa.RecordBatch.from_pydict({"id": [0]})]))
    assert all(row.num_rows == 1 for row in rows)
    pieces = [
        (
            pa.ipc.open_stream(row["records"][0].as_buffer()).read_next_batch(),
            row["value"][0].values,
        )
        for row in rows[:-1]
    ]
    return pieces, json.loads(rows[-1]["told"][0].as_py())


def test_a_range_comes_in_pieces_in_the_order_of_its_offsets(filled: BrokerProcess) -> None:
    pieces, told = _read(filled, 0, len(VALUES), {1, 2})
    assert [records.num_rows for records, _ in pieces] == [PIECE_ROWS, PIECE_ROWS, 3]
    records = pa.Table.from_batches([one for one, _ in pieces])
    assert records["offset"].to_pylist() == list(range(len(VALUES)))
    assert records["value"].to_pylist() == VALUES
    given = pa.concat_arrays([one for _, one in pieces]).to_pylist()
    assert [one["data"] for one in given] == [one and one + MARK for one in VALUES]
    assert [one["id"] for one in given] == [one and one[4] for one in VALUES]
    assert told["unknown"] == {}


def test_pieces_of_large_records_have_few_of_them(filled: BrokerProcess) -> None:
    pieces, _ = _read(filled, 1, len(LARGE), {1})
    assert [one for records, _ in pieces for one in records["value"].to_pylist()] == LARGE
    assert max(records["value"].nbytes for records, _ in pieces) <= PIECE_BYTES


def test_a_schema_that_is_not_known_is_told_and_no_record_is_given_from_there_on(
    filled: BrokerProcess,
) -> None:
    for known, unknown in ((set(), [1, 2]), ({1}, [2])):
        pieces, told = _read(filled, 0, len(VALUES), known)
        assert (pieces, told["unknown"]) == ([], {"value": unknown})


def test_the_first_schemas_are_found_at_the_beginning_of_a_range(filled: BrokerProcess) -> None:
    source = SourceOptions(servers=filled.bootstrap, topics=(TOPIC,))
    payload = Payload("value", True, False, False, frozenset(), frozenset())
    task = ReadTask(source, (Range(TOPIC, 0, 0, len(VALUES)),), (payload,))
    ids = {one[4] for one in VALUES[:LOOKED_AT] if one is not None}
    assert task.unknown() == {"value": sorted(ids)}
