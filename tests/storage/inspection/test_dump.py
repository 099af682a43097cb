"""The content of a file, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.records.layout import INT64
from protocol.records.markers import Marker, encode_marker
from storage.inspection.dump import DumpOptions, Row, bare_name, dump, readable
from storage.layout import LOG, file_name
from tests.storage.inspection.directories import (
    LOG_0,
    ORDERS,
    TOP,
    Contents,
    in_memory,
    ten_batches,
)
from tests.storage.logs import batch, decoded, vectors
from tests.storage.message_sets import messages

if TYPE_CHECKING:
    from tests.support.memory_filesystem import MemoryFilesystem


@pytest.fixture(scope="module")
def contents() -> Contents:
    return ten_batches(clean=True, producer=True)


def rows(files: MemoryFilesystem, path: str, **wanted: object) -> list[Row]:
    return list(dump(files, path, DumpOptions(**wanted)))  # type: ignore[arg-type]


def log_with(*parts: bytes | bytearray | memoryview) -> MemoryFilesystem:
    return in_memory({f"orders-0/{file_name(0, LOG)}": b"".join(parts)})


def test_a_batch_is_a_line_with_every_field_of_its_header(contents: Contents) -> None:
    first = rows(in_memory(contents), LOG_0)[0]
    assert str(first).startswith("batch position=0 size=")
    assert first.as_json() == first.as_json() | {
        "what": "batch",
        "base_offset": 0,
        "last_offset": 1,
        "records": 2,
        "codec": "none",
        "leader_epoch": 5,
        "producer_id": 0,
        "base_sequence": 0,
        "control": False,
        "max_timestamp": 1000,
        "timestamp_type": "CreateTime",
    }


def test_records_are_shown_when_asked_and_values_when_asked_twice(contents: Contents) -> None:
    files = in_memory(contents)
    assert len(rows(files, LOG_0)) == 10
    shown = rows(files, LOG_0, records=True)
    assert str(shown[1]) == "  record offset=0 timestamp=1000 key=null value_size=7"
    shown = rows(files, LOG_0, values=True)
    assert str(shown[2]) == "  record offset=1 timestamp=1000 key=null value=second 0"


def test_only_the_offsets_asked_for(contents: Contents) -> None:
    found = rows(in_memory(contents), LOG_0, records=True, first=5, last=6)
    assert [row.fields.get("base_offset", row.fields.get("offset")) for row in found] == [
        *(4, 5),
        *(6, 6),
    ]


def test_old_messages_and_what_is_in_wrappers() -> None:
    plain, wrapper = messages(7, magic=0), messages(1000, 1001, magic=1, codec=1)
    wrapper.place(1)
    found = rows(log_with(plain.view, wrapper.view), LOG_0, values=True)
    assert [row.what for row in found] == ["message", "record", "message", "record", "record"]
    assert [row.fields["offset"] for row in found] == [0, 0, 2, 1, 2]
    assert found[2].fields["codec"] == "gzip"


@pytest.mark.parametrize(("commit", "text"), [(True, "COMMIT"), (False, "ABORT")])
def test_a_marker_says_what_it_decides(commit: bool, text: str) -> None:
    marker = encode_marker(3, 1, marker=Marker(commit, 4), timestamp_ms=9)
    found = rows(log_with(marker), LOG_0, records=True)
    assert str(found[1]) == f"  marker type={text} coordinator_epoch=4"


def test_damage_is_a_line_and_what_follows_is_shown() -> None:
    second = batch(b"b")
    INT64.pack_into(second, 0, 1)
    found = rows(log_with(batch(b"a"), b"\xff" * 30, second), LOG_0)
    assert [row.what for row in found] == ["batch", "damage", "batch"]


def test_of_a_batch_with_a_wrong_checksum_everything_is_shown_that_can_be() -> None:
    spoilt = batch(b"one", b"two")
    spoilt[-2] ^= 1  # the last letter but one: o of two
    found = rows(log_with(spoilt), LOG_0, values=True)
    assert [row.what for row in found] == ["damage", "batch", "record", "record"]
    assert found[2].fields["value"] == "one"


def test_the_other_files_of_a_partition(contents: Contents) -> None:
    files = in_memory(contents)
    index = rows(files, f"{ORDERS}/{file_name(0, '.index')}")
    assert index
    assert index[0].fields["entry"] == 0
    times = rows(files, f"{ORDERS}/{file_name(0, '.timeindex')}")
    assert times[-1].fields["timestamp"] == 1009
    (producer,) = rows(files, f"{ORDERS}/{file_name(20, '.snapshot')}")
    assert producer.fields["last_sequence"] == 19
    assert producer.fields["last_offset"] == 19
    assert str(rows(files, f"{ORDERS}/leader-epoch-checkpoint")[0]) == (
        "epoch epoch=5 start_offset=0"
    )
    assert rows(files, f"{ORDERS}/partition.metadata")[0].what == "topic"


def test_the_files_at_the_top(contents: Contents) -> None:
    files = in_memory(contents)
    points = rows(files, f"{TOP}/recovery-point-offset-checkpoint")
    assert [row.as_json() for row in points] == [
        {"what": "checkpoint", "topic": "orders", "partition": 0, "offset": 20}
    ]
    names = {"meta.properties": "property", ".kafka_cleanshutdown": "field"}
    for name, what in {**names, ".pystate.json": "field"}.items():
        assert {row.what for row in rows(files, f"{TOP}/{name}")} == {what}


def test_a_folder_is_all_of_its_files(contents: Contents) -> None:
    found = rows(in_memory(contents), ORDERS)
    shown = [row.fields["name"] for row in found if row.what == "file"]
    assert set(shown) == {
        name.partition("/")[2] for name in contents if name.startswith("orders-0/")
    }


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["id"]))
def test_files_that_kafka_wrote_are_shown_without_damage(vector: dict[str, dict[str, str]]) -> None:
    name = file_name(int(str(vector["base_offset"])), "")
    files = in_memory(
        {
            f"orders-0/{name}.{suffix}": decoded(vector["expect"][suffix])
            for suffix in ("log", "index", "timeindex")
        }
    )
    found = rows(files, ORDERS, values=True)
    assert "damage" not in {row.what for row in found}
    assert "record" in {row.what for row in found}


def test_malformed_files_give_a_line_that_says_so() -> None:
    files = in_memory({"meta.properties": b"\\u1", "orders-0/00000000000000000003.snapshot": b"x"})
    assert rows(files, f"{TOP}/meta.properties")[0].what == "damage"
    assert rows(files, f"{ORDERS}/00000000000000000003.snapshot")[0].what == "damage"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, None),
        (b"", ""),
        ("naïve".encode(), "naïve"),
        (b"\x00\x01", "0x0001"),
        (b"\xff", "0xff"),
        (b"a\x1b[2J", "0x611b5b324a"),
    ],
)
def test_bytes_are_text_only_where_a_terminal_may_see_them(
    data: bytes | None, text: str | None
) -> None:
    assert readable(data) == text


@pytest.mark.parametrize(
    "name",
    ["x.log.deleted", "x.log.cleaned", "x.log.swap", "x.log.damaged", "x.log.damaged-5-9.2"],
)
def test_a_file_put_aside_is_read_as_what_it_was(name: str) -> None:
    assert bare_name(name) == "x.log"
