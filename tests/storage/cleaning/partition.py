"""Sealed segments in memory, cleaned and put in place as a broker would, without a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compact import made_batch
from protocol.records.legacy import read_messages
from protocol.records.walk import last_offset, walk
from storage.cleaning.cleaning import CleanedGroup, Cleaning
from storage.cleaning.plan import CleaningPlan, CleaningRules, Source
from storage.layout import CLEANED, SEGMENT_SUFFIXES, file_name, offset_of
from storage.segment import Segment
from storage.transaction_index import AbortedTransaction, decode, encode
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from protocol.records.layout import Header
    from protocol.records.record import Record

FOLDER = "/data/cmp-0"
NOW_MS = 1_800_000_000_000
RETENTION_MS = 86_400_000

Row = tuple[bytes | None, bytes | None]
"""Key and value."""


def rules(
    *,
    segment_bytes: int = 1 << 30,
    segment_index_bytes: int = 10 << 20,
    index_interval_bytes: int = 4096,
    max_message_bytes: int = 0,
    delete_retention_ms: int = RETENTION_MS,
    map_bytes: int = 1 << 20,
    max_decompressed_bytes: int = 1 << 24,
    max_decompression_ratio: int = 2000,
) -> CleaningRules:
    """As in `CleaningRules`; without a `max_message_bytes` nothing is joined."""
    return CleaningRules(
        segment_bytes,
        segment_index_bytes,
        index_interval_bytes,
        max_message_bytes,
        delete_retention_ms,
        map_bytes,
        max_decompressed_bytes,
        max_decompression_ratio,
    )


def batch(
    offset: int,
    *rows: Row,
    timestamp_ms: int = 1_700_000_000_000,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    log_append_time_ms: int | None = None,
    leader_epoch: int = 0,
) -> bytes:
    """A batch in a log, one record per row, one millisecond after the other."""
    return build_batch(
        [(timestamp_ms + index, *row, ()) for index, row in enumerate(rows)],
        base_offset=offset,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        leader_epoch=leader_epoch,
        transactional=transactional,
        log_append_time_ms=log_append_time_ms,
    )


def marker(
    offset: int, producer_id: int, epoch: int = 0, *, commit: bool, leader_epoch: int = 0
) -> bytes:
    """The end of a transaction, as in storage.md 9."""
    key, value = bytes((0, 0, 0, commit)), bytes(6)
    made = Batch(
        memoryview(
            bytearray(
                build_batch(
                    [(1_700_000_000_000, key, value, ())],
                    base_offset=offset,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    leader_epoch=leader_epoch,
                    transactional=True,
                    control=True,
                )
            )
        )
    )
    return bytes(made.view)


class Partition:
    """Segments below `end`, each given whole; what follows them is not there."""

    def __init__(self) -> None:
        self.files = MemoryFilesystem()
        self.files.make_dir(FOLDER)
        self.end = 0
        self.modified_ms: dict[int, int] = {}

    def segment(
        self,
        *entries: bytes,
        base: int | None = None,
        modified_ms: int = NOW_MS - 1000,
        aborted: Iterable[AbortedTransaction] = (),
    ) -> Partition:
        """Add a segment with its indexes."""
        base = self.end if base is None else base
        data = b"".join(entries)
        self.files.write_bytes(f"{FOLDER}/{file_name(base, '.log')}", data)
        index = encode(aborted)
        if index:
            self.files.write_bytes(f"{FOLDER}/{file_name(base, '.txnindex')}", index)
        self.modified_ms[base] = modified_ms
        self.end = base
        for position, _, magic in walk(data):
            self.end = last_offset(data, position, magic) + 1
        segment = Segment(self.files, FOLDER, base, interval_bytes=4096)
        segment.byte_size()
        assert segment.file.size() == len(data)
        segment.rebuild()
        segment.replace_indexes()
        self.files.sync_all()
        return self

    @property
    def bases(self) -> list[int]:
        names = self.files.list_dir(FOLDER)
        return sorted(base for name in names if (base := offset_of(name, ".log")) is not None)

    def plan(
        self,
        how: CleaningRules | None = None,
        *,
        first_dirty: int = 0,
        end: int | None = None,
        start_offset: int = 0,
        now_ms: int = NOW_MS,
        producers: dict[int, tuple[int, int]] | None = None,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> CleaningPlan:
        end = self.end if end is None else end
        sources = [
            Source(
                base,
                self.files.size_of(f"{FOLDER}/{file_name(base, '.log')}"),
                self.modified_ms[base],
            )
            for base in self.bases
            if base < end
        ]
        plan = CleaningPlan(
            folder=FOLDER,
            sources=sources,
            first_dirty=first_dirty,
            end=end,
            start_offset=start_offset,
            now_ms=now_ms,
            rules=how or rules(),
            producers=producers or {},
            aborted=list(aborted),
            dirty_ratio=1.0,
        )
        return CleaningPlan.from_json(plan.as_json())

    def clean(self, plan: CleaningPlan | None = None) -> Cleaning:
        """Clean, and put every group in its place."""
        cleaning = Cleaning(self.files, plan or self.plan())
        for group in cleaning.groups():
            self.replace(group)
        assert not [name for name in self.files.list_dir(FOLDER) if name.endswith(CLEANED)]
        return cleaning

    def replace(self, group: CleanedGroup) -> None:
        for base in group.sources:
            for suffix in SEGMENT_SUFFIXES:
                self.files.remove(f"{FOLDER}/{file_name(base, suffix)}")
            del self.modified_ms[base]
        for suffix in SEGMENT_SUFFIXES:
            path = f"{FOLDER}/{file_name(group.base_offset, suffix)}"
            if self.files.exists(path + CLEANED):
                assert not group.empty
                self.files.rename(path + CLEANED, path)
        if not group.empty:
            assert self.files.size_of(f"{FOLDER}/{file_name(group.base_offset, '.log')}")
            self.modified_ms[group.base_offset] = group.modified_ms

    # What is there

    def file(self, base: int, suffix: str = ".log") -> bytes:
        return self.files.read_bytes(f"{FOLDER}/{file_name(base, suffix)}")

    def has(self, base: int, suffix: str) -> bool:
        return self.files.exists(f"{FOLDER}/{file_name(base, suffix)}")

    def entries(self) -> list[bytes]:
        """All entries of all segments."""
        return [
            data[position : position + size]
            for data in map(self.file, self.bases)
            for position, size, _ in walk(data)
        ]

    def records(self) -> list[Record]:
        """What a reader of everything gets, control records left out."""
        return [record for entry in self.entries() for record in records_of(entry)]

    def rows(self) -> dict[int, Row]:
        """Key and value by offset."""
        return {record.offset: (record.key, record.value) for record in self.records()}

    def aborted(self, base: int) -> list[AbortedTransaction] | None:
        return decode(self.file(base, ".txnindex"), base)

    def headers(self) -> list[Header]:
        """Those of the batches."""
        return [Batch(memoryview(entry)).header() for entry in self.entries() if entry[16] == 2]


def records_of(entry: bytes) -> list[Record]:
    if entry[16] < 2:
        return list(read_messages(entry))
    seen = Batch(memoryview(entry))
    assert seen.is_intact()
    return [] if seen.is_control else list(seen.records())


def empty_of(entry: bytes) -> bytes:
    """What stays of a batch that has to stay and has no record left, by storage.md 7.5."""
    header = list(Batch(memoryview(entry)).header())
    header[5] &= ~0x47
    header[7], header[12] = -1, 0
    return made_batch(b"", tuple(header))  # type: ignore[arg-type]


def with_payload(entry: bytes, payload: bytes, codec: int) -> bytes:
    """A batch with these bytes after its header, whatever they are."""
    header = list(Batch(memoryview(entry)).header())
    header[5] = 0
    changed = Batch(memoryview(bytearray(made_batch(payload, tuple(header)))))  # type: ignore[arg-type]
    changed.rewrite(codec, changed.max_timestamp)
    return bytes(changed.view)
