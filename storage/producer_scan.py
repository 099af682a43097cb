"""Finding out from a log's files what its producers did: a snapshot, and the batches after it."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from protocol.records.layout import ATTRIBUTES, CONTROL_BIT, PRODUCER_ID
from protocol.records.markers import decode_marker
from storage.errors import MalformedFile
from storage.layout import LARGEST_OFFSET, SNAPSHOT, file_name, offset_of
from storage.producers import ProducerStates
from storage.transaction_index import AbortedTransaction, TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from storage.filesystem import Filesystem
    from storage.scan import Entry
    from storage.segment import Segment


def newest_snapshot(
    files: Filesystem,
    folder: str,
    offsets: Iterable[int],
    malformed: Callable[[str, MalformedFile], None],
) -> tuple[ProducerStates, int]:
    """The newest of these snapshots that can be read, and its offset; no producers and -1 if none
    can. `malformed` is told the name of each that cannot. Raises OSError.

    Its producers have been silent since the file was written, as far as it tells.
    """
    for offset in sorted(offsets, reverse=True):
        name = file_name(offset, SNAPSHOT)
        path = f"{folder}/{name}"
        try:
            producers = ProducerStates.decode(files.read_bytes(path), path)
        except FileNotFoundError:
            continue
        except MalformedFile as error:
            malformed(name, error)
            continue
        if len(producers):
            producers.silent_since(files.modified_ms(path))
        return producers, offset
    return ProducerStates(), -1


def scan_producers(
    producers: ProducerStates,
    segments: list[Segment],
    offset: int,
    entered: Callable[[Segment], None] | None = None,
    *,
    end_offset: int = LARGEST_OFFSET,
) -> Iterator[AbortedTransaction]:
    """Enter all batches from `offset` on that end below `end_offset`, and yield the transactions
    that were aborted there.

    `producers` are what they were at that offset, and go along. Segments are unloaded when done
    with, but for the last. `entered` is told of each whose first batch comes next.
    """
    bases = [segment.base_offset for segment in segments]
    for segment in segments[max(bisect_right(bases, offset) - 1, 0) :]:
        if entered is not None and segment.base_offset >= offset:
            entered(segment)
        segment.load()
        for entry in segment.verified.entries_from(offset):
            if entry.last_offset >= end_offset:
                return
            header = entry.header
            if header is None or entry.last_offset < offset or header[PRODUCER_ID] < 0:
                continue
            if header[ATTRIBUTES] & CONTROL_BIT:
                aborted = _enter_marker(producers, segment, entry)
                if aborted is not None:
                    yield aborted
            else:
                producers.update(header, entry.first_offset)
            producers.settle()
        if segment is not segments[-1]:
            segment.unload()


def _enter_marker(
    producers: ProducerStates, segment: Segment, entry: Entry
) -> AbortedTransaction | None:
    header = entry.header
    assert header is not None
    producer_id = header[PRODUCER_ID]
    opened = producers.open_since(producer_id)
    producers.update(header, entry.first_offset)
    marker = decode_marker(segment.file.pread(entry.size, entry.position))
    if marker is None:
        return None  # emptied by compaction: nothing of its transaction is left
    producers.led_by(producer_id, marker.coordinator_epoch)
    if marker.commit or opened < 0:
        return None
    return aborted_by(producers, producer_id, opened=opened, marker_offset=entry.last_offset)


def aborted_by(
    producers: ProducerStates, producer_id: int, *, opened: int, marker_offset: int
) -> AbortedTransaction:
    """The entry for a marker that has been entered with the producers."""
    oldest = producers.oldest_open
    stable = oldest if oldest >= 0 else marker_offset + 1
    return AbortedTransaction(producer_id, opened, marker_offset, stable)


def aborted_in(
    files: Filesystem, folder: str, segments: list[Segment], segment: Segment
) -> TransactionIndex:
    """The transaction index of a segment, made from the log itself. Raises OSError."""
    base = segment.base_offset
    names = files.list_dir(folder)
    offsets = [offset for name in names if (offset := offset_of(name, SNAPSHOT)) is not None]
    below = [offset for offset in offsets if offset <= base]
    producers, offset = newest_snapshot(files, folder, below, lambda _name, _error: None)
    up_to = segments[: segments.index(segment) + 1]
    found = scan_producers(producers, up_to, max(offset, segments[0].base_offset))
    return TransactionIndex(entry for entry in found if entry.last_offset >= base)
