"""A log of every kind of batch, one bit of which is flipped, and what its consumers then get."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.records.batch import Batch
from protocol.records.errors import CorruptBatch
from protocol.records.layout import HEADER
from protocol.records.walk import walk
from storage.recovery import LastKnown, open_log
from tests.storage.logs import FOLDER, NOW_MS, Settings, append, batch, opened
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from storage.clean_state import CleanState
    from storage.log import Log
    from storage.reports import RecoveryReport

SETTINGS = Settings(index_interval_bytes=300, segment_bytes=1500)
EPOCH = 9


class Stored(NamedTuple):
    """One batch as it was appended: its file, where it is in there, and the bytes."""

    path: str
    position: int
    base: int
    last: int
    raw: bytes


class Case(NamedTuple):
    """`files` of a log and what it has to give; `clean` after a stop in good order."""

    files: MemoryFilesystem
    batches: list[Stored]
    clean: CleanState | None
    end: int

    def flipped(self, path: str, at: int, bit: int) -> Case:
        files = self.files.copy()
        data = bytearray(files.read_bytes(path))
        data[at] ^= 1 << bit
        files.write_bytes(path, bytes(data))
        return self._replace(files=files)

    def opened(
        self, *, recovery_point: int = 0, synced: int = 0
    ) -> tuple[Log, list[RecoveryReport]]:
        known = LastKnown(
            clean=self.clean, recovery_point=recovery_point, synced=synced, gaps_below=0
        )
        return open_log(
            self.files, FOLDER, SETTINGS, known=known, leader_epoch=EPOCH, now_ms=NOW_MS
        )


def filled(*, clean: bool, batches: int = 40) -> Case:
    """Batches of one to five records of various sizes in several segments and three epochs."""
    files, log, stored = written(batches)
    log.sync()
    end = log.next_offset
    state = log.close(clean=clean)
    files.sync_all()
    return Case(files, stored, state, end)


def written(batches: int = 40) -> tuple[MemoryFilesystem, Log, list[Stored]]:
    """The same in a log that is open."""
    files = MemoryFilesystem(recording=False)
    log = opened(files, SETTINGS, leader_epoch=4)
    stored = []
    for number in range(batches):
        if number in (batches // 3, batches * 2 // 3):
            log.set_leader_epoch(log.leader_epoch + 1)
        values = [b"%d/%d" % (number, n) * (1 + number % 7) for n in range(1 + number * 5 % 4)]
        raw = batch(*values, timestamp_ms=1000 + number, producer=(7, 0, log.next_offset))
        base = append(log, raw)
        log.write()
        segment = log.active
        size = len(raw)
        position = segment.size - size
        stored.append(
            Stored(
                segment.path(),
                position,
                base,
                log.next_offset - 1,
                segment.file.pread(size, position),
            )
        )
    return files, log, stored


def consumed(log: Log, *, max_bytes: int, jump: bool) -> dict[int, tuple[int, bytes]]:
    """What a consumer gets that checks sums and seeks past what it cannot read: leader epoch and
    value by offset. With `jump` it comes from nowhere each time."""
    found: dict[int, tuple[int, bytes]] = {}
    offset = log.start_offset
    while offset < log.written_offset:
        if jump:
            log.segments.places.clear()
        try:
            piece = log.read(offset, max_bytes)
        except CorruptBatch:
            offset += 1
            continue
        assert piece is not None
        data = piece.read()
        at = offset
        for position, size, _ in walk(data):
            whole = Batch(memoryview(data)[position : position + size])
            if not whole.is_intact():
                break
            epoch = HEADER.unpack_from(data, position)[2]
            for record in whole.records():
                if record.offset >= at:
                    found[record.offset] = (epoch, record.value or b"")
            at = max(at, whole.last_offset + 1)
        offset = at if at > offset else offset + 1
    return found


def wanted(batches: list[Stored]) -> dict[int, tuple[int, bytes]]:
    return {
        record.offset: (HEADER.unpack_from(one.raw)[2], record.value or b"")
        for one in batches
        for record in Batch(memoryview(bytearray(one.raw))).records()
    }
