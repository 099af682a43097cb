"""Rows PR-1 to PR-9 of the migration table (records.md 9): what old and new producers send, into
topics of each phase, at a log end of 1000. Phase 1 stores format 0, phase 2 format 1, phase 3
format 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from protocol.errors import ErrorCode
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.validate import ProduceRules
from tests.records.appending import (
    NEXT_OFFSET,
    NOW_MS,
    RECORDS,
    THREE_CONTENTS,
    TIMES,
    contents,
    placed,
    refused,
    sent,
    stays,
    three,
    times,
)
from tests.support.old_sets import entries, wrapper

if TYPE_CHECKING:
    from protocol.records.prepare import Prepared

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
STAMPING = pytest.mark.parametrize("stamping", [False, True])
MAGICS = pytest.mark.parametrize("magic", [0, 1, 2])

LAST = NEXT_OFFSET + 2
ABSOLUTE = [NEXT_OFFSET, NEXT_OFFSET + 1, LAST]


class Sent(NamedTuple):
    """One cell of the table: data in a request, into a topic."""

    data: bytes
    versions: tuple[int, ...]
    magic: int
    stamping: bool

    def everywhere(self, *, in_place: bool) -> bytes:
        """The stored bytes, which have to be the same whichever of the requests was used."""
        rules = ProduceRules(magic=self.magic, log_append_time=self.stamping)
        found = set()
        for version in self.versions:
            prepared: Prepared
            if in_place:
                prepared = stays(self.data, rules, version=version)
            else:
                prepared = sent(self.data, rules, version=version)
                assert prepared.rebuilt
            found.add(placed(prepared))
        (stored,) = found
        assert contents(stored) == THREE_CONTENTS
        return stored

    def expected_times(self, created: tuple[int, ...]) -> list[int]:
        if self.magic == 0:
            return [-1, -1, -1]
        return [NOW_MS] * 3 if self.stamping else list(created)


NONE_CREATED = (-1, -1, -1)


def check_plain(cell: Sent, stored: bytes, created: tuple[int, ...]) -> None:
    """Plain messages of format 0 or 1, or one batch without a codec."""
    if cell.magic == 2:
        check_batch(cell, stored, created, codec=0)
        return
    found = entries(stored)
    assert [entry.offset for entry in found] == ABSOLUTE
    assert {(entry.magic, entry.codec) for entry in found} == {(cell.magic, 0)}
    assert {entry.stamped for entry in found} == {cell.stamping and cell.magic == 1}
    assert [entry.timestamp_ms for entry in found] == cell.expected_times(created)


def check_wrapper(cell: Sent, stored: bytes, created: tuple[int, ...], *, codec: int) -> None:
    """One wrapper of format 0 or 1, or one batch with this codec."""
    if cell.magic == 2:
        check_batch(cell, stored, created, codec=codec)
        return
    (entry,) = entries(stored)
    assert (entry.offset, entry.magic, entry.codec, entry.key) == (LAST, cell.magic, codec, None)
    assert [one.offset for one in entry.inner()] == (ABSOLUTE if cell.magic == 0 else [0, 1, 2])
    assert entry.stamped == (cell.stamping and cell.magic == 1)
    assert entry.timestamp_ms == max(cell.expected_times(created))
    assert times(stored) == cell.expected_times(created)


def check_batch(cell: Sent, stored: bytes, created: tuple[int, ...], *, codec: int) -> None:
    batch = Batch(memoryview(stored))
    assert (batch.size, batch.codec) == (len(stored), codec)
    assert (batch.base_offset, batch.last_offset) == (NEXT_OFFSET, LAST)
    assert batch.base_timestamp == created[0]
    assert batch.max_timestamp == (NOW_MS if cell.stamping else max(created))
    assert (batch.timestamp_type == 1) == cell.stamping
    assert times(stored) == cell.expected_times(created)


@STAMPING
@MAGICS
def test_pr_1_plain_messages_of_format_0(magic: int, stamping: bool) -> None:
    cell = Sent(three(0), (0, 1), magic, stamping)
    stored = cell.everywhere(in_place=magic == 0)
    check_plain(cell, stored, NONE_CREATED)
    if magic == 0:
        assert stored == three(0, offsets=ABSOLUTE), "only offsets are written"


@CODECS
@STAMPING
@MAGICS
@pytest.mark.parametrize("inner", [(0, 1, 2), (0, 0, 0)])
def test_pr_2_a_wrapper_of_format_0(
    magic: int, stamping: bool, codec: int, inner: tuple[int, ...]
) -> None:
    data = wrapper(three(0, offsets=inner), magic=0, codec=codec)
    cell = Sent(data, (0, 1), magic, stamping)
    check_wrapper(cell, cell.everywhere(in_place=False), NONE_CREATED, codec=codec)


@STAMPING
@MAGICS
def test_pr_3_plain_messages_of_format_1(magic: int, stamping: bool) -> None:
    cell = Sent(three(1), (2,), magic, stamping)
    check_plain(cell, cell.everywhere(in_place=magic == 1), TIMES)


@CODECS
@STAMPING
@MAGICS
def test_pr_4_a_wrapper_of_format_1_with_offsets_that_count(
    magic: int, stamping: bool, codec: int
) -> None:
    data = wrapper(three(1), magic=1, codec=codec)
    cell = Sent(data, (2,), magic, stamping)
    stored = cell.everywhere(in_place=magic == 1)
    check_wrapper(cell, stored, TIMES, codec=codec)
    if magic == 1:
        assert stored[26:] == data[26:], "the payload is not touched"


@CODECS
@STAMPING
@MAGICS
@pytest.mark.parametrize(("offset", "inner"), [(0, (0, 0, 0)), (7, (0, 2, 7)), (9, (0, 1, 2))])
def test_pr_5_a_wrapper_of_format_1_with_other_offsets(
    magic: int, stamping: bool, codec: int, offset: int, inner: tuple[int, ...]
) -> None:
    data = wrapper(three(1, offsets=inner), magic=1, codec=codec, offset=offset)
    cell = Sent(data, (2,), magic, stamping)
    check_wrapper(cell, cell.everywhere(in_place=False), TIMES, codec=codec)


@STAMPING
@MAGICS
def test_pr_6_a_batch(magic: int, stamping: bool) -> None:
    cell = Sent(build_batch(RECORDS), tuple(range(3, 14)), magic, stamping)
    check_plain(cell, cell.everywhere(in_place=magic == 2), TIMES)


@CODECS
@STAMPING
@MAGICS
def test_pr_7_a_compressed_batch(magic: int, stamping: bool, codec: int) -> None:
    data = build_batch(RECORDS, codec=codec)
    cell = Sent(data, tuple(range(3, 14)), magic, stamping)
    stored = cell.everywhere(in_place=magic == 2)
    check_wrapper(cell, stored, TIMES, codec=codec)
    if magic == 2:
        assert stored[61:] == data[61:], "the payload is not touched"


@STAMPING
@MAGICS
def test_pr_8_a_zstd_batch(magic: int, stamping: bool) -> None:
    cell = Sent(build_batch(RECORDS, codec=ZSTD), tuple(range(7, 14)), magic, stamping)
    if magic == 2:
        check_wrapper(cell, cell.everywhere(in_place=True), TIMES, codec=ZSTD)
        return
    rules = ProduceRules(magic=magic, log_append_time=stamping)
    for version in cell.versions:
        refusal = refused(cell.data, rules, version=version)
        assert refusal.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@STAMPING
@MAGICS
@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("what", ["producer id", "headers", "transaction"])
def test_pr_9_a_batch_with_what_older_formats_have_no_place_for(
    what: str, codec: int, magic: int, stamping: bool
) -> None:
    records = [(time, key, value, [("h", None)]) for time, key, value, _ in RECORDS]
    data = {
        "producer id": build_batch(
            RECORDS, codec=codec, producer_id=0, producer_epoch=0, base_sequence=0
        ),
        "headers": build_batch(records, codec=codec),
        "transaction": build_batch(RECORDS, codec=codec, transactional=True),
    }[what]
    cell = Sent(data, tuple(range(3, 14)), magic, stamping)
    if magic == 2:
        cell.everywhere(in_place=True)
        return
    rules = ProduceRules(magic=magic, log_append_time=stamping)
    for version in cell.versions:
        refusal = refused(data, rules, version=version)
        assert refusal.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
