"""Offset commits found quickly in a log, for the start, which may read a million of them.

What is in `__consumer_offsets` is nearly always the same: a batch that is not compressed and not of
a transaction, of records with key version 1, value version 3, and no headers. Such records are
*ordinary*:

    length              varint of one byte or two
    attributes          00, and timestamp delta 00
    offset delta        varint of one byte or two
    key size            varint of one byte or two
    key                 version 00 01, group, topic, int32 partition, which is not negative
    value size          varint of one byte or two
    value               version 00 03, int64 offset, int32 leader epoch, metadata, int64 time in ms
    header count        00

All else is left to readers that know everything. What is taken here they would take for the same.

`_loops.c` has the same in C, ten times as fast; `ordinary_commits` is that one where it was built.
"""

from __future__ import annotations

from struct import Struct as Format

from protocol.records.crc import crc32c
from protocol.records.layout import (
    CHECKED_POSITION,
    ENTRY_OVERHEAD,
    HEADER_SIZE,
    TIMESTAMP_TYPE_BIT,
)
from protocol.records.transcode import first_of

Numbers = int | list[int]
CommitRow = tuple[str, str, Numbers, Numbers, Numbers, Numbers, str]
"""Group, topic, and of neighbouring records of a batch that share them and have no metadata:
partitions, offsets, leader epochs, commit timestamps in ms. Four lists of the same length, or of a
single record four ints. Then the metadata of a single record."""

Commit = tuple[int, bytes, bytes, tuple[int, int, int, int], bytes]
"""End of the record, group, topic, the numbers of the row, metadata."""

_unpack_header = Format(">8xi4xbIh34xi").unpack_from
_unpack_partition = Format(">i").unpack_from
_unpack_value = Format(">hqih").unpack_from
_unpack_time = Format(">qb").unpack_from
_TO_METADATA = 16
_NAMELESS_KEY = 10
_NAMELESS_VALUE = 24


def interpreted_ordinary_commits(
    data: bytes, position: int
) -> tuple[int, int, int, list[CommitRow]]:
    """Read batches of ordinary records, from the one at `position` up to whatever is none: another
    kind of batch or record, a wrong checksum, the end of the data.

    Gives the position of that, the position of the last batch that was read (-1 for none), the
    number of records, and their rows.
    """
    view, total = memoryview(data), len(data)
    rows: list[CommitRow] = []
    last, records = -1, 0
    while total - position > HEADER_SIZE:
        length, magic, crc, attributes, count = _unpack_header(data, position)
        end = position + length + ENTRY_OVERHEAD
        if magic != 2 or not HEADER_SIZE < end - position <= total - position or count < 1:
            break
        if attributes & ~TIMESTAMP_TYPE_BIT:
            break
        if crc32c(view[position + CHECKED_POSITION : end]) != crc:
            break
        commits = _commits_of(data, position + HEADER_SIZE, end, count)
        if commits is None:
            break
        _add_rows(rows, commits)
        records += count
        last, position = position, end
    return position, last, records, rows


def _commits_of(data: bytes, position: int, end: int, count: int) -> list[Commit] | None:
    """The records of a batch; None if one is not ordinary or they do not end where it does."""
    commits: list[Commit] = []
    while position < end and len(commits) < count:
        commit = _commit_at(data, position, end)
        if commit is None:
            return None
        commits.append(commit)
        position = commit[0]
    return commits if position == end and len(commits) == count else None


def _commit_at(data: bytes, position: int, end: int) -> Commit | None:
    size, position = _short_varint(data, position, end)
    if not 2 <= size <= end - position:
        return None
    end = position + size
    if data[position : position + 2] != b"\x00\x00":
        return None
    delta, position = _short_varint(data, position + 2, end)
    if delta == _NO_VARINT:
        return None
    key_size, position = _short_varint(data, position, end)
    if not _NAMELESS_KEY <= key_size <= end - position:
        return None
    if data[position : position + 2] != b"\x00\x01":
        return None
    group_at, partition_at = position + 4, position + key_size - 4
    topic_at = group_at + (data[position + 2] << 8 | data[position + 3]) + 2
    if topic_at > partition_at:
        return None
    if topic_at + (data[topic_at - 2] << 8 | data[topic_at - 1]) != partition_at:
        return None
    value_size, position = _short_varint(data, position + key_size, end)
    if value_size != end - position - 1 or value_size < _NAMELESS_VALUE:
        return None
    version, offset, leader_epoch, metadata_size = _unpack_value(data, position)
    if version != 3 or metadata_size != value_size - _NAMELESS_VALUE:
        return None
    time_at = position + _TO_METADATA + metadata_size
    timestamp, headers = _unpack_time(data, time_at)
    (partition,) = _unpack_partition(data, partition_at)
    if partition < 0 or headers:
        return None
    group, topic = data[group_at : topic_at - 2], data[topic_at:partition_at]
    metadata = data[position + _TO_METADATA : time_at]
    return end, group, topic, (partition, offset, leader_epoch, timestamp), metadata


_NO_VARINT = -(1 << 32)


def _short_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A varint of at most two bytes, and the position after it; _NO_VARINT for none."""
    if position >= end:
        return _NO_VARINT, position
    bits = data[position]
    position += 1
    if bits > 0x7F:
        if position >= end or data[position] > 0x7F:
            return _NO_VARINT, position
        bits = bits & 0x7F | data[position] << 7
        position += 1
    return (bits >> 1) ^ -(bits & 1), position


def _add_rows(rows: list[CommitRow], commits: list[Commit]) -> None:
    index = 0
    while index < len(commits):
        _, group, topic, numbers, metadata = commits[index]
        start = index
        index += 1
        alike = (group, topic, b"")
        while not metadata and index < len(commits) and _names(commits[index]) == alike:
            index += 1
        names = _text(group), _text(topic)
        if index == start + 1:
            rows.append((*names, *numbers, _text(metadata)))
        else:
            columns = zip(*(commit[3] for commit in commits[start:index]), strict=True)
            partitions, offsets, leader_epochs, timestamps = map(list, columns)
            rows.append((*names, partitions, offsets, leader_epochs, timestamps, ""))


def _names(commit: Commit) -> tuple[bytes, bytes, bytes]:
    return commit[1], commit[2], commit[4]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


ordinary_commits = interpreted_ordinary_commits
try:
    from protocol.records import _loops
except ImportError:
    pass  # built where there was no C compiler
else:
    ordinary_commits = first_of(_loops.ordinary_commits, interpreted_ordinary_commits)
