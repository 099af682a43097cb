"""The times at which the records of a log came in, by our own clock.

Retention by time must not believe producers' clocks alone: one that is ahead would pin data for
ever, one that is behind would have it deleted at once. So a log remembers, for stretches of its
offsets, between which two moments they were received. Offsets are given out in the order of
receipt, so both bounds only rise along the log.

A stretch spans at most a second, or 1/64 of all that is kept if that is more: the bounds of a log
that holds a week are an hour or two apart, and there are never many.

File (`receive-times-checkpoint` in the partition's folder), text: `0`, the number of lines, then
`offset first_ms last_ms` per stretch (docs/formats/receive-times.md). The last line has the log's
end as it was then: what lies above is not told of.

What if it is lost: the modification times of the segments' files stand in. A stretch is then as
wide as a segment took to fill, and records may stay longer than they should, by that at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.checkpoints import read_entries
from storage.errors import MalformedFile
from storage.layout import RECEIVE_TIMES

if TYPE_CHECKING:
    from storage.filesystem import Filesystem
    from storage.segments import SegmentedLog
    from storage.syncing import SyncStep

LEAST_MS = 1000
"""A stretch is not made shorter."""
PARTS = 64
"""Nor shorter than this part of the time that the whole log spans."""
STRETCHES_MAX = 2 * PARTS + 32
"""Neighbours are made one when there are more."""
STORED_EVERY_MS = 3_600_000
"""Time (ms) by which the file of a log that does not roll may lag behind before it is written."""

UNKNOWN_MS = 2**63 - 1
NEVER = -1


class Stretch:
    """Offsets from `offset` to the next stretch's were received in first_ms..last_ms."""

    __slots__ = ("first_ms", "last_ms", "offset")

    def __init__(self, offset: int, first_ms: int, last_ms: int) -> None:
        self.offset = offset
        self.first_ms = first_ms
        self.last_ms = last_ms

    def __repr__(self) -> str:
        return f"Stretch({self.offset}, {self.first_ms}, {self.last_ms})"


class ReceiveTimes:
    """The stretches of one log. The file is read when somebody first asks for them.

    `last_ms` is the time of the last append; an append at a later time has to be noted. `trouble`
    says what was wrong with the file.
    """

    __slots__ = (
        "_all",
        "_begin_ms",
        "_files",
        "_loaded",
        "_opened_at",
        "_path",
        "_stored_ms",
        "last_ms",
        "trouble",
    )

    def __init__(self, files: Filesystem, folder: str, next_offset: int) -> None:
        """For a log that was opened with this end."""
        self._files = files
        self._path = f"{folder}/{RECEIVE_TIMES}"
        self._opened_at = next_offset
        self._all: list[Stretch] = []
        self._loaded = False
        self._begin_ms = self._stored_ms = NEVER
        self.last_ms = NEVER
        self.trouble: str | None = None

    def note(self, offset: int, now_ms: int) -> None:
        """Note that records from `offset` on come in now, which is later than `last_ms`."""
        if now_ms >= self._begin_ms:
            self._begin(offset, now_ms)
        self._all[-1].last_ms = self.last_ms = now_ms

    def _begin(self, offset: int, now_ms: int) -> None:
        if self._stored_ms == NEVER:
            self._stored_ms = now_ms
        if len(self._all) >= STRETCHES_MAX:
            self._merge()
        self._all.append(Stretch(offset, now_ms, now_ms))
        self._begin_ms = now_ms + self._width_ms(now_ms)

    def _width_ms(self, now_ms: int) -> int:
        return max(LEAST_MS, (now_ms - self._all[0].first_ms) // PARTS)

    def _merge(self) -> None:
        """Make neighbours one as far as their width allows."""
        width_ms = self._width_ms(self._all[-1].last_ms)
        merged = self._all[:1]
        for stretch in self._all[1:]:
            if stretch.last_ms - merged[-1].first_ms <= width_ms:
                merged[-1].last_ms = stretch.last_ms
            else:
                merged.append(stretch)
        self._all = merged

    def end_at(self, offset: int) -> None:
        """The log ends here after all; these offsets will be given out again."""
        stretches = self._all
        while len(stretches) > 1 and stretches[-1].offset >= offset:
            last = stretches.pop()
            stretches[-1].last_ms = last.last_ms
        if stretches:
            stretches[0].offset = min(stretches[0].offset, offset)

    def stretches(self, log: SegmentedLog, *, now_ms: int) -> list[Stretch]:
        """All of them, oldest first, from the log start on; empty for a log that always was."""
        self._load(log)
        if self._all and self._all[-1].last_ms > now_ms:
            # Our own clock went back. By the clock that holds now, all of it has come in by now.
            for stretch in self._all:
                stretch.first_ms = min(stretch.first_ms, now_ms)
                stretch.last_ms = min(stretch.last_ms, now_ms)
            self.last_ms = min(self.last_ms, now_ms)
        self._trim(log.start_offset)
        return self._all

    def since_ms(self, log: SegmentedLog, offset: int, *, now_ms: int) -> int:
        """The earliest moment at which the record of this offset can have come in; `now_ms` where
        nothing is known of it."""
        for stretch in reversed(self.stretches(log, now_ms=now_ms)):
            if stretch.offset <= offset:
                return stretch.first_ms
        return now_ms

    def _trim(self, start_offset: int) -> None:
        gone, stretches = 0, self._all
        while gone + 1 < len(stretches) and stretches[gone + 1].offset <= start_offset:
            gone += 1
        del stretches[:gone]

    # The file

    def is_due(self) -> bool:
        """Whether the file of a running log lags behind."""
        return self.last_ms - self._stored_ms >= STORED_EVERY_MS and self._stored_ms != NEVER

    def store(self, log: SegmentedLog, *, lasting: bool = False) -> SyncStep:
        """A step that puts into the file what is known of all that is written to the log.

        It returns when that is on the disk if it is to be `lasting`: at a clean stop, which leaves
        nothing that is half written.
        """
        self._load(log)
        self._trim(log.start_offset)
        known = [stretch for stretch in self._all if stretch.offset < log.written_offset]
        self._stored_ms = self.last_ms
        data = _encode(known, log.written_offset)
        return Store(self._files, self._path, data, lasting=lasting)

    def cut_file(self) -> None:
        """Have the file tell of nothing above the end with which the log was opened: after a crash
        it may know of offsets that were lost, and will be given out again. Raises OSError.
        """
        stored = self._read()
        if not stored or stored[-1].offset <= self._opened_at:
            return
        kept = [stretch for stretch in stored if stretch.offset < self._opened_at]
        self._files.write_atomic(self._path, _encode(kept, self._opened_at))

    def _load(self, log: SegmentedLog) -> None:
        """Put what the file says, and what the segments' files say of the rest, before what was
        noted since the log was opened."""
        if self._loaded:
            return
        self._loaded = True
        stored = self._read()
        end = stored.pop().offset if stored else 0
        until, since_ms = self._opened_at, self._all[0].first_ms if self._all else UNKNOWN_MS
        stored = [stretch for stretch in stored if stretch.offset < until]
        if end < until:
            stored += _by_modification(log, end, until, stored[-1].last_ms if stored else NEVER)
        for stretch in stored:
            stretch.first_ms = min(stretch.first_ms, since_ms)
            stretch.last_ms = min(stretch.last_ms, since_ms)
        self._all = stored + self._all
        if self._all:
            self._all[0].offset = min(self._all[0].offset, log.segments[0].base_offset)

    def _read(self) -> list[Stretch]:
        try:
            return decode(self._files.read_bytes(self._path), self._path)
        except FileNotFoundError:
            return []
        except (MalformedFile, OSError) as error:
            self.trouble = f"{error}; the files' modification times stand in"
            return []


def _encode(stretches: list[Stretch], end: int) -> bytes:
    last = [Stretch(end, stretches[-1].last_ms, stretches[-1].last_ms)] if stretches else []
    lines = ["0", str(len(stretches + last))]
    lines += [f"{one.offset} {one.first_ms} {one.last_ms}" for one in stretches + last]
    return ("\n".join(lines) + "\n").encode()


def decode(data: bytes, path: str) -> list[Stretch]:
    """Read the file. The last stretch is empty: it stands at the end. Raises MalformedFile."""
    found: list[Stretch] = []
    if data and not data.endswith(b"\n"):
        raise MalformedFile(path, "the last line is cut")
    last_offset, last_ms = -1, 0
    for number, fields in enumerate(read_entries(data, path, field_count=3), start=3):
        if not (fields[0].isascii() and fields[0].isdigit()):
            raise MalformedFile(path, f"line {number}: {fields[0]!r} is not an offset")
        stretch = Stretch(*map(int, fields))
        if stretch.offset <= last_offset or not last_ms <= stretch.first_ms <= stretch.last_ms:
            raise MalformedFile(path, f"line {number} does not rise")
        last_offset, last_ms = stretch.offset, stretch.last_ms
        found.append(stretch)
    if len(found) == 1:
        raise MalformedFile(path, "there is an end and no beginning")
    return found


def _by_modification(log: SegmentedLog, first: int, until: int, known_ms: int) -> list[Stretch]:
    """Stretches by the modification times of the segments' files, for the offsets from `first` up
    to `until`, of which nothing else is known; what lies below was received by `known_ms`.

    All of a segment came in before its file was last written to, and after that of the one before
    it was. Of the first segment the beginning is unknown: its end stands for it.
    """
    found: list[Stretch] = []
    segments = list(log.segments)
    ends = [*(segment.base_offset for segment in segments[1:]), until]
    for segment, end in zip(segments, ends, strict=True):
        if min(end, until) <= max(first, segment.base_offset):
            continue
        try:
            modified_ms = segment.modified_ms()
        except OSError:
            modified_ms = UNKNOWN_MS
        last_ms = max(modified_ms, known_ms)
        first_ms = last_ms if known_ms == NEVER else known_ms
        found.append(Stretch(max(segment.base_offset, first), first_ms, last_ms))
        known_ms = last_ms
    return found


class Store:
    """Puts the file in place if the disk lets us, and need not wait until it is on the disk.

    A cut or empty file that a crash leaves is known for what it is, an older one tells of less.
    """

    __slots__ = ("_data", "_files", "_lasting", "_path")

    def __init__(self, files: Filesystem, path: str, data: bytes, *, lasting: bool) -> None:
        self._files = files
        self._path = path
        self._data = data
        self._lasting = lasting

    def sync(self) -> None:
        temporary = f"{self._path}.tmp"
        try:
            if self._lasting:
                self._files.write_atomic(self._path, self._data)
                return
            file = self._files.open_file(temporary, create=True)
            file.truncate(0)
            file.write_at([self._data], 0)
            file.close()
            self._files.rename(temporary, self._path)
        except OSError:
            return  # then records stay longer, no more
