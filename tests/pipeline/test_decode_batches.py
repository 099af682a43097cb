"""Stored batches as rows, held against the headers as the plain readers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pipeline.columns.decode import decode_batches
from pipeline.errors import CorruptData
from pipeline.schemas import BATCHES
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import NAMES
from protocol.records.layout import DELETE_HORIZON_BIT, HEADER, INT16, INT32, INT64, UINT32
from protocol.records.legacy import Message, build_messages
from protocol.records.markers import Marker, encode_marker
from protocol.records.walk import walk
from tests.records.corpus import raw, reseal, sets

if TYPE_CHECKING:
    from collections.abc import Sequence

MOMENT = 1_700_000_000_000
INT64_MAX = 2**63 - 1
THREE = [(MOMENT + number, b"k", b"%d" % number, [("h", None)]) for number in range(3)]


def decoded(
    entries: bytes | memoryview, start: int = 0, end: int = INT64_MAX, **options: Any
) -> pa.RecordBatch:
    batch = decode_batches(entries, topic="orders", partition=3, start=start, end=end, **options)
    batch.validate(full=True)
    assert batch.schema == BATCHES
    return batch


def rows(
    entries: bytes, start: int = 0, end: int = INT64_MAX, **options: Any
) -> list[dict[str, Any]]:
    found = decoded(entries, start, end, **options)
    columns = {name: found[name] for name in found.schema.names}
    for name in ("first_timestamp", "max_timestamp"):
        microseconds = columns[name].view(pa.int64())
        columns[name] = pa.compute.divide(microseconds, 1000)
    shown: list[dict[str, Any]] = pa.table(columns).to_pylist()
    return shown


def expected(entries: bytes) -> list[dict[str, Any]]:
    """From the plain views of batches and messages, one by one."""
    found = []
    for position, size, magic in walk(entries):
        entry = memoryview(entries)[position : position + size]
        row: dict[str, Any] = {"topic": "orders", "partition": 3, "magic": magic, "size": size}
        row["batch"] = bytes(entry)
        row |= _of_batch(Batch(entry)) if magic == 2 else _of_message(Message(entry))
        found.append(row)
    return found


def _of_batch(batch: Batch) -> dict[str, Any]:
    with_producer = batch.producer_id != -1
    has_horizon = batch.attributes & DELETE_HORIZON_BIT
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "codec": NAMES[batch.codec],
        "timestamp_type": batch.timestamp_type,
        "first_timestamp": _known(-1 if has_horizon else batch.base_timestamp),
        "max_timestamp": _known(batch.max_timestamp),
        "producer_id": batch.producer_id if with_producer else None,
        "producer_epoch": batch.producer_epoch if with_producer else None,
        "base_sequence": batch.base_sequence if with_producer else None,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "leader_epoch": _known(batch.leader_epoch),
        "crc": batch.crc,
    }


def _of_message(message: Message) -> dict[str, Any]:
    return {
        "base_offset": None if message.codec else message.offset,
        "last_offset": message.offset,
        "records": None if message.codec else 1,
        "codec": NAMES[message.codec],
        "timestamp_type": message.timestamp_type if message.magic else -1,
        "first_timestamp": None if message.codec else _known(message.timestamp_ms),
        "max_timestamp": _known(message.timestamp_ms),
        **dict.fromkeys(("producer_id", "producer_epoch", "base_sequence", "leader_epoch")),
        "transactional": False,
        "control": False,
        "crc": message.crc,
    }


def _known(number: int) -> int | None:
    return None if number == -1 else number


def by_name(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(sorted(row.items())) for row in found]


@pytest.mark.parametrize("vector", sets(0, 1, 2), ids=lambda vector: str(vector["id"]))
def test_sets_of_real_clients_show_their_headers(vector: dict[str, Any]) -> None:
    entries = bytes(raw(vector["bytes"]))
    wanted = [row for row in expected(entries) if row["last_offset"] >= 0]
    assert by_name(rows(entries)) == by_name(wanted)


def test_all_formats_and_kinds_of_batches_in_one_run() -> None:
    horizon = bytearray(build_batch(THREE, base_offset=40))
    INT16.pack_into(horizon, 21, 0x40)
    stored = bytearray(build_batch(THREE, base_offset=50, leader_epoch=9))
    entries = b"".join(
        [
            *(build_batch(THREE, base_offset=3 * codec, codec=codec) for codec in range(5)),
            build_messages(THREE, magic=1, base_offset=15),
            build_messages(THREE, magic=0, base_offset=18, codec=1),
            build_messages(THREE, magic=1, base_offset=21, codec=3, append_time_ms=MOMENT),
            build_batch(THREE, base_offset=24, log_append_time_ms=MOMENT + 9),
            build_batch(
                THREE,
                base_offset=27,
                producer_id=5,
                producer_epoch=0,
                base_sequence=7,
                transactional=True,
            ),
            _at(30, encode_marker(5, 0, marker=Marker(False, 1), timestamp_ms=MOMENT)),
            bytes(reseal(horizon)),
            bytes(stored),
        ]
    )
    assert by_name(rows(entries)) == by_name(expected(entries))


def _at(offset: int, entry: bytearray) -> bytes:
    INT64.pack_into(entry, 0, offset)
    return bytes(entry)


def test_the_bytes_of_batches_are_not_copied() -> None:
    entries = build_batch(THREE) + build_batch(THREE, base_offset=3)
    column = decoded(memoryview(entries))["batch"]
    assert column.buffers()[2].address == pa.py_buffer(entries).address
    assert b"".join(column.to_pylist()) == entries


def test_every_batch_is_in_one_range_wherever_these_are_cut() -> None:
    entries = b"".join(
        build_batch(THREE, base_offset=3 * number)
        if number % 3
        else build_messages(THREE, magic=1, base_offset=3 * number, codec=1)
        for number in range(10)
    )
    whole = rows(entries)
    for cut in range(31):
        assert rows(entries, 0, cut) + rows(entries, cut, 30) == whole


def test_no_entries_are_no_rows() -> None:
    assert decoded(b"").num_rows == 0
    assert decoded(build_batch(THREE), 3, 9).num_rows == 0
    assert decoded(build_batch(THREE)[:-1]).num_rows == 0


# What is refused.


def test_a_wrong_checksum_is_told_and_the_others_stay() -> None:
    parts = [
        bytearray(build_batch(THREE, base_offset=0)),
        bytearray(build_messages(THREE[:1], magic=0, base_offset=3)),
        bytearray(build_batch(THREE, base_offset=4)),
        bytearray(build_messages(THREE, magic=1, base_offset=7, codec=1)),
        bytearray(build_batch(THREE, base_offset=10)),
    ]
    good = [
        row for number, part in enumerate(parts) if number % 2 == 0 for row in rows(bytes(part))
    ]
    stated = UINT32.unpack_from(parts[1], 12)[0]
    parts[1][-1] ^= 1
    parts[3][-1] ^= 1
    entries = b"".join(parts)
    told: list[Any] = []
    assert rows(entries, left_out=lambda *fault: told.append(fault)) == good
    assert [fault[:2] for fault in told] == [(3, 3), (7, 9)]
    with pytest.raises(CorruptData) as raised:
        rows(entries)
    assert str(raised.value).startswith(
        f"orders-3 offset 3: checksum is {stated:#010x}, the bytes have 0x"
    )
    assert len(rows(entries, check_crc=False)) == 5
    with pytest.raises(CorruptData, match="orders-3 offset 7"):
        rows(entries, 4)


def test_codecs_that_do_not_exist_are_told() -> None:
    batch = bytearray(build_batch(THREE))
    batch[22] = 6
    with pytest.raises(CorruptData, match="orders-3 offset 0: codec 6 in format 2"):
        rows(bytes(reseal(batch)))
    message = bytearray(build_messages(THREE[:1], magic=1))
    message[17] = 4
    with pytest.raises(CorruptData, match="orders-3 offset 0: codec 4 in format 1"):
        rows(bytes(message), check_crc=False)


def test_a_message_of_format_1_without_room_for_its_fields_is_told() -> None:
    message = bytearray(build_messages([(0, None, b"", ())], magic=0))
    message[16] = 1
    with pytest.raises(CorruptData, match="message of 26 bytes, format 1 has at least 34"):
        rows(bytes(message), check_crc=False)


def test_what_is_no_entry_ends_the_run() -> None:
    good = build_batch(THREE, base_offset=5)
    told: list[Any] = []
    found = rows(good + good[:8] + b"\0" * 30, 0, 50, left_out=lambda *fault: told.append(fault))
    assert len(found) == 1
    assert [fault[:2] for fault in told] == [(8, 49)]


def test_headers_read_at_once_are_those_read_one_by_one() -> None:
    header = (5, 49, -7, 2, 0, 0x18, 2**31 - 1, -(2**63), 2**63 - 1, 2**62, -1, 2**31 - 1, -1)
    batch = bytearray(HEADER.pack(*header))
    (row,) = rows(bytes(reseal(batch)), 0, INT64_MAX)
    assert (row["leader_epoch"], row["records"]) == (-7, -1)
    assert (row["producer_id"], row["producer_epoch"], row["base_sequence"]) == (
        2**62,
        -1,
        2**31 - 1,
    )
    assert (row["first_timestamp"], row["max_timestamp"]) == (None, None)
    assert INT32.unpack_from(batch, 8) == (row["size"] - 12,)
