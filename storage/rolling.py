"""The rules by which a log begins a new segment, and the producer snapshots that go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.crc import crc32c
from storage.layout import INDEX, LOG, SNAPSHOT, TIME_INDEX, file_name, offset_of
from storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from storage.offset_index import RELATIVE_OFFSET_MAX
from storage.scan import first_entry
from storage.syncing import SyncFile
from storage.time_index import ENTRY_SIZE as TIME_INDEX_ENTRY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.filesystem import Filesystem
    from storage.producers import ProducerStates
    from storage.segment import Segment
    from storage.settings import LogSettings


def must_roll(
    segment: Segment,
    settings: LogSettings,
    *,
    size: int,
    last_offset: int,
    max_timestamp: int,
    age_ms: int,
) -> bool:
    """Whether a set of `size` bytes, up to `last_offset`, belongs into a new segment.

    As in docs/formats/log.md: bytes, age, a full index, or an offset that would not fit an
    index. Age is counted in the batches' own timestamps, from the first set's largest one; only
    a segment without timestamps ages by the clock, and is then `age_ms` old.
    """
    if segment.size <= 0:
        return False
    if segment.size + size > settings.segment_bytes:
        return True
    if segment.first_timestamp >= 0:
        age_ms = max_timestamp - segment.first_timestamp
    if age_ms > age_limit_ms(segment, settings) or not index_entries_left(segment, settings):
        return True
    return last_offset - segment.base_offset > RELATIVE_OFFSET_MAX


def age_limit_ms(segment: Segment, settings: LogSettings) -> int:
    """Most that the segment's timestamps may spread: segment.ms, less a share of segment.jitter.ms.

    The share comes from the segment's name. That spreads the rolls of many logs as a random
    number would, and stays what it was when the log is opened again.
    """
    jitter_ms = min(settings.segment_jitter_ms, settings.segment_ms)
    if not jitter_ms:
        return settings.segment_ms
    name = "/".join(segment.path().rsplit("/", 2)[-2:])
    return settings.segment_ms - (crc32c(name.encode()) * jitter_ms >> 32)


def begins_otherwise(segment: Segment, magic: int) -> bool:
    """Whether the segment begins with another record format than the topic stores now.

    Then a new one is begun at the next append. Some clients (aiokafka, kafkajs) take the format of
    an answer's first entry for all of it, and no answer goes beyond its segment.
    """
    if not segment.written_size:
        return False
    first = first_entry(segment.file, 0, segment.written_size)
    return first is not None and first.magic != magic


def index_entries_left(segment: Segment, settings: LogSettings) -> int:
    """Entries that the segment's indexes may still take, 0 if one of them is full.

    One slot of the time index is kept for the segment's final entry.
    """
    limit = settings.segment_index_bytes
    return max(
        0,
        min(
            limit // INDEX_ENTRY_SIZE - len(segment.offsets),
            limit // TIME_INDEX_ENTRY_SIZE - 1 - len(segment.times),
        ),
    )


def store_snapshot(
    files: Filesystem, folder: str, offset: int, producers: ProducerStates
) -> SyncFile:
    """Write the producers' state as of `offset`; returns what is to be synced. Raises OSError."""
    return write_snapshot(files, f"{folder}/{file_name(offset, SNAPSHOT)}", producers)


def write_snapshot(files: Filesystem, path: str, producers: ProducerStates) -> SyncFile:
    """Write the producers' state into a file; returns what is to be synced. Raises OSError."""
    files.remove(path)  # an older file of that name may be longer
    file = files.open_file(path, create=True)
    try:
        file.write_at([producers.encode()], 0)
    finally:
        file.close()
    return SyncFile(files, path)


def thin_snapshots(
    files: Filesystem, folder: str, base_offsets: Iterable[int], *, keep: int
) -> None:
    """Remove snapshots that belong to no segment's base, but for the newest `keep`."""
    bases = set(base_offsets)
    loose = sorted(
        offset
        for name in files.list_dir(folder)
        if (offset := offset_of(name, SNAPSHOT)) is not None and offset not in bases
    )
    for offset in loose[: len(loose) - keep]:
        files.remove(f"{folder}/{file_name(offset, SNAPSHOT)}")


def remove_left_overs(files: Filesystem, folder: str, base_offset: int) -> None:
    """Remove what a failed roll made, as far as the disk lets us.

    What stays is an empty segment, which is legal, and a snapshot that is true.
    """
    for suffix in (LOG, INDEX, TIME_INDEX, SNAPSHOT):
        try:
            files.remove(f"{folder}/{file_name(base_offset, suffix)}")
        except OSError:
            continue
