"""A partition's log in a directory that no broker serves, opened as a broker's start opens it.

All that a start changes stays in memory (`reading.overlay`). After a crash it looks through what
was written last, which takes its time: a process keeps some logs as they were found, for the next
one who asks for them while their files are the same. So the tasks of a Spark worker that read
ranges of one partition look through it once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.reading.overlay import Overlay
from storage.layout import (
    LEADER_EPOCHS,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    file_name,
    offset_of,
)
from storage.producers import ProducerStates
from storage.recovery import open_log
from storage.scan import first_entry

if TYPE_CHECKING:
    from storage.log import Log
    from storage.recovery import LastKnown
    from storage.segment import Segment

    State = tuple[object, ...]

KEPT_MAX = 16
"""Logs that a process keeps; the one asked for longest ago makes room. One that was looked through
after a crash may take 10 MB, for the indexes of its last segment."""
LATEST_EPOCH = 2**31 - 1
EPOCH_ZERO = b"0\n1\n0 0\n"
"""A checkpoint of leader epochs. Where there is none, a start reads the whole log for it; here
nobody asks for epochs."""


@dataclass(frozen=True)
class _Settings:
    """The settings of segments that a log needs, which here never begins one."""

    segment_bytes: int = 2**31 - 1
    segment_ms: int = 2**63 - 1
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    record_format: int = 2


@dataclass
class StoredLog:
    """A log, and where it should end if it is damaged, with the reason.

    What a start of a broker would cut off is left out; `triglot check` tells of it.
    """

    log: Log
    end: int
    damage: str | None
    _last: Segment | None = None
    """Where the last read found something, if that is not where the log ends."""

    @property
    def stable_end(self) -> int:
        """The start of the first open transaction, or the end."""
        stable = self.log.last_stable_offset
        return stable if stable < self.log.written_offset else self.end

    def keep_one(self, segment: Segment | None) -> None:
        """Let go of the segment before: a long log has more of them than a process may open."""
        if segment is self._last:
            return
        if self._last is not None:
            self._last.unload()
        self._last = None if segment is self.log.active else segment

    def let_go(self) -> None:
        """Close all files. Who reads on opens them again."""
        segments = self.log.segments
        segments.release_files()
        for segment in segments.sealed():
            segment.unload()
        self._last = None


_KEPT: dict[str, tuple[State, StoredLog]] = {}


def stored_log(folder: str, known: LastKnown) -> StoredLog:
    """The log in this folder. By one thread at a time. Raises OSError."""
    state = _state(folder, known)
    before, found = _KEPT.pop(folder, (None, None))
    if found is None or before != state:
        if found is not None:
            found.let_go()
        found = _opened(folder, known)
    while len(_KEPT) >= KEPT_MAX:
        _KEPT.pop(next(iter(_KEPT)))[1].let_go()
    _KEPT[folder] = state, found
    return found


def _state(folder: str, known: LastKnown) -> State:
    """All that the outcome of opening a log depends on."""
    with os.scandir(folder) as entries:
        stats = [(entry.name, entry.stat()) for entry in entries]
    files = {(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats}
    clean = None if known.clean is None else known.clean.as_list()
    return known._replace(clean=None), clean, files


def _opened(folder: str, known: LastKnown) -> StoredLog:
    files = Overlay()
    _spare_work(files, folder)
    log, _ = open_log(files, folder, _Settings(), known=known, leader_epoch=LATEST_EPOCH)
    damage = log.failed
    if damage is None:
        # For the files that it would sync, and has open until then.
        log.sync()
    end = log.written_offset if damage is None else max(log.written_offset, known.recovery_point)
    return StoredLog(log, end, damage)


def _spare_work(files: Overlay, folder: str) -> None:
    """Put in place, in memory, what brokers of old did not write and a start would go through the
    whole log for: nothing of it is asked for here, or can be in such logs."""
    names = set(files.list_dir(folder))
    epochs = f"{folder}/{LEADER_EPOCHS}"
    if LEADER_EPOCHS not in names or files.size_of(epochs) < len(EPOCH_ZERO):
        files.write_atomic(epochs, EPOCH_ZERO)
    bases = [base for name in names if (base := offset_of(name, LOG)) is not None]
    for base in bases:
        if file_name(base, TIME_INDEX) not in names:
            # Made again even so where there are timestamps.
            files.write_atomic(f"{folder}/{file_name(base, TIME_INDEX)}", b"")
    if not bases or any(name.endswith(SNAPSHOT) for name in names):
        return
    path = f"{folder}/{file_name(max(bases), LOG)}"
    file = files.open_to_read(path)
    first = first_entry(file, 0, file.size())
    file.close()
    if first is not None and first.magic < 2:
        # Only batches of format 2 have producers.
        snapshot = f"{folder}/{file_name(max(bases), SNAPSHOT)}"
        files.write_atomic(snapshot, ProducerStates().encode())
