"""Directories of Apache Kafka of the first years: less is in them than today, and that is right."""

from __future__ import annotations

import pytest

from storage.layout import LOG, file_name
from storage.offset_index import OffsetIndex
from tests.storage.inspection.directories import (
    TOP,
    Contents,
    errors,
    findings,
    in_memory,
    notes,
    repaired,
)
from tests.storage.message_sets import messages

BASE = f"orders-0/{file_name(0, '')}"


def directory_of_0_8(*, codec: int, magic: int = 0) -> Contents:
    """Ten sets of three messages; an index with the first offset of each set, as it was then."""
    data, index = b"", OffsetIndex()
    for number in range(10):
        made = messages(
            *range(1000, 1003), magic=magic, codec=codec, base_offset=3 * number, value=bytes(50)
        )
        made.place(3 * number)
        if number % 3 == 2:
            index.add(3 * number, len(data))
        data += bytes(made.view)
    return {
        "meta.properties": b"#Thu Feb 06 12:00:00 UTC 2014\nversion=0\nbroker.id=3\n",
        "recovery-point-offset-checkpoint": b"0\n1\norders 0 30\n",
        "replication-offset-checkpoint": b"0\n1\norders 0 30\n",
        ".kafka_cleanshutdown": b"",
        BASE + LOG: data,
        BASE + ".index": index.encode(),
    }


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("marked", [True, False])
def test_a_directory_of_0_8_is_flawless(codec: int, marked: bool) -> None:
    contents = directory_of_0_8(codec=codec)
    if not marked:
        del contents[".kafka_cleanshutdown"]
    files = in_memory(contents)
    assert findings(files) == []
    assert [found.kind for found in notes(files)] == ["not-clean"] * (not marked)
    assert repaired(files) == []


def test_one_without_meta_properties_is_flawless_too() -> None:
    contents = directory_of_0_8(codec=0)
    del contents["meta.properties"]
    assert findings(in_memory(contents)) == []


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_damage_in_old_messages_is_found_and_repaired(codec: int, magic: int) -> None:
    contents = directory_of_0_8(codec=codec, magic=magic)
    data = bytearray(contents[BASE + LOG])
    data[len(data) // 2 + 30] ^= 0x10
    files = in_memory(contents | {BASE + LOG: bytes(data)})

    assert "checksum" in {found.kind for found in findings(files)}
    repaired(files)
    assert errors(files) == []
    assert len(files.read_bytes(f"{TOP}/{BASE}{LOG}")) < len(data)


@pytest.mark.parametrize("bit", range(3))
def test_the_offset_of_a_wrapper_is_under_no_checksum_and_looked_at(bit: int) -> None:
    contents = directory_of_0_8(codec=1, magic=1)
    data = bytearray(contents[BASE + LOG])
    size = int.from_bytes(data[8:12], "big") + 12
    data[size + 7] ^= 1 << bit
    assert findings(in_memory(contents | {BASE + LOG: bytes(data)}), deep=False)
