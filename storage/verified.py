"""The parts of a segment's file that are known to be right, and the walk over the rest.

Bytes are sent to readers without being looked at, so they have been looked at before: their
headers, once, by a `storage.chain.Chain`. What this process wrote itself needs no look. The file of
a segment that was found at the start is walked stretch by stretch, just ahead of its readers, at
most `LOOK_MAX` headers at a time. When the segment is let go of, all that is forgotten; and when
its file was changed by somebody else, what this process wrote is walked as well. The file system
tells that by the time of the last change (ctime), which nobody can set (docs/decisions/0019).
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Protocol

from protocol.records.errors import CorruptBatch
from storage.chain import UNKNOWN_EPOCH, Chain, Damage, Segmented, offset_before
from storage.epochs import LeaderEpochs
from storage.resync import header_at
from storage.scan import Entry, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.filesystem import File
    from storage.offset_index import OffsetIndex
    from storage.time_index import TimeIndex

SETTLED_NS = 10_000_000
"""For so long after a write of our own nobody is asked whether the file was changed: the clock of
the file system may not have ticked since, and a busy log is spared the question."""

LOOK_MAX = 2048
"""Headers looked at in one go for the sake of a reader: some 3 ms."""

STRETCHES_MAX = 32
"""Stretches of one file that are remembered; readers in sequence have one each, and they meet."""

START_TRIES = 32
"""Index entries below a position that are tried for one that says what the log says."""

AHEAD_BYTES = 65_536
"""Bytes that a search walks ahead at a time."""

NO_EPOCHS = LeaderEpochs()


class SegmentFile(Protocol):
    """A segment (`storage.segment.Segment`) as far as a walk over its file needs it."""

    base_offset: int
    loaded: bool
    offsets: OffsetIndex
    times: TimeIndex
    written_size: int

    @property
    def file(self) -> File:
        """The log file, open."""

    def byte_size(self) -> int:
        """Bytes of the log file."""

    def load(self) -> None:
        """Have the indexes in memory."""

    def path(self) -> str:
        """The log file's path."""


class Stretch:
    """Positions first..end of a file, the ends of entries both, and the entry before `end`."""

    __slots__ = ("after_damage", "end", "first", "last_epoch", "last_offset")

    def __init__(
        self,
        position: int,
        last_offset: int,
        last_epoch: int = UNKNOWN_EPOCH,
        *,
        after_damage: bool = False,
    ) -> None:
        self.first = self.end = position
        self.last_offset = last_offset
        self.last_epoch = last_epoch
        self.after_damage = after_damage


class Verified:
    """Belongs to one segment, and to its log's thread.

    `inherited` counts the bytes at the start of the file that this process did not write; None
    stands for all of a file that takes no more appends. `end_offset` is the offset after them.
    """

    __slots__ = (
        "_changed_ns",
        "_now_ns",
        "_segment",
        "_stretches",
        "_written_to",
        "_wrote_ns",
        "damages",
        "end_offset",
        "epochs",
        "inherited",
        "next_base",
    )

    def __init__(self, segment: SegmentFile, now_ns: Callable[[], int]) -> None:
        """`now_ns` is the clock of the file system."""
        self._segment = segment
        self._now_ns = now_ns
        self._stretches: list[Stretch] = []
        self._changed_ns: int | None = None
        self._written_to = segment.base_offset
        self._wrote_ns = 0
        self.damages: list[Damage] = []
        """Found so far, in the order of their positions."""
        self.inherited: int | None = None
        self.end_offset: int | None = None
        self.next_base: int | None = None
        """Base offset of the next segment, once there is one."""
        self.epochs = NO_EPOCHS

    def inherit(self, size: int, end_offset: int) -> None:
        """The file has this size and goes up to this offset now, and appends may follow."""
        self.inherited, self.end_offset = size, end_offset
        self._written_to = end_offset

    def wrote(self, next_offset: int) -> None:
        """This process has just written to the file, which goes up to this offset now."""
        self._written_to = next_offset
        self._wrote_ns = self._now_ns()

    def notice_changes(self) -> None:
        """Look at all of the file again if somebody else has changed it."""
        segment, wrote_ns = self._segment, self._wrote_ns
        if wrote_ns and 0 <= self._now_ns() - wrote_ns < SETTLED_NS:
            return
        changed_ns, known = segment.file.changed_ns(), self._changed_ns
        if changed_ns != known:
            self._changed_ns = changed_ns
            if changed_ns > wrote_ns and (wrote_ns or known is not None):
                self.forget()

    def sealed_before(self, base_offset: int) -> None:
        """The next segment begins at this offset."""
        self.next_base = base_offset
        if self.inherited is None:
            self.end_offset = base_offset

    def forget(self) -> None:
        """Look at all of it again when it is read the next time, also at what this process wrote.
        Damage stays known."""
        self._stretches.clear()
        if self.next_base is not None:
            self.inherited, self.end_offset = None, self.next_base
        elif self.inherited is not None:
            self.inherited, self.end_offset = self._segment.written_size, self._written_to

    def note(self, damage: Damage) -> bool:
        """Have these bytes not served from now on; whether that is news."""
        if any(known.position == damage.position for known in self.damages):
            return False
        insort(self.damages, damage)
        return True

    def found(self, damages: list[Damage]) -> None:
        """Take over what somebody found who read all of the file, with its checksums."""
        for damage in damages:
            self.note(damage)
        self.forget()

    # For readers

    def readable_to(self, position: int, end: int) -> int:
        """Up to where a reader may be sent what lies at `position`, an entry; `end` at most, or the
        end of the entry that `end` is in. Raises CorruptBatch if it is damaged itself."""
        self.notice_changes()
        if self.damages:
            damage = self._damage_at(position)
            if damage is not None:
                raise self._corrupt(damage)
        inherited = self._inherited()
        if position < inherited:
            stretch = self._stretch_with(position)
            self._extend(stretch, min(end, inherited))
            if stretch.end < inherited:
                end = min(end, stretch.end)
            if end <= position:
                damage = self._damage_at(position)
                if damage is not None:
                    raise self._corrupt(damage)
        for damage in self.damages:
            if position <= damage.position < end:
                end = damage.position
                if end == position:
                    raise self._corrupt(damage)
                break
        return end

    def offset_above(self, position: int) -> int | None:
        """An offset above all entries below a position that `readable_to` returned: that of the
        next index entry if the walk has come past it, else where the walk has come to. None if no
        walk was there."""
        segment = self._segment
        for stretch in self._stretches:
            if stretch.first <= position <= stretch.end:
                segment.load()
                offsets = segment.offsets
                number = offsets.count_positions_below(position)
                if offsets.position_of(number, stretch.end) < stretch.end:
                    return segment.base_offset + offsets.relative_of(number)
                return stretch.last_offset + 1
        return None

    def next_offset_at(self, position: int) -> int | None:
        """The offset after the entry that ends there, if a walk has come so far and no further."""
        for stretch in self._stretches:
            if stretch.end == position:
                return stretch.last_offset + 1
        return None

    def entries(self, position: int) -> Iterator[Entry | Damage]:
        """Entries and damage in the written part of the file from an entry on, in order. Damage is
        found on the way.

        Raises CorruptBatch where bytes that were right when they were looked at, or written, are so
        no more; which they are is not known, and is found if all is gone through once more.
        """
        segment = self._segment
        self.notice_changes()
        while position < segment.written_size:
            damage = self._damage_at(position)
            if damage is not None:
                yield damage
                position = damage.end
                continue
            end = segment.written_size
            if position < self._inherited():
                stretch = self._stretch_with(position)
                if position == stretch.end:
                    self._extend(stretch, min(position + AHEAD_BYTES, self._inherited()))
                    if stretch.end == position:
                        continue  # there is damage here, which has been noted
                end = stretch.end
            for known in self.damages:
                if position <= known.position < end:
                    end = known.position
                    break
            scan = Scan(segment.file, position, end)
            for entry in scan:
                yield entry
                position = entry.end
            if scan.trouble is not None:
                self.forget()
                raise CorruptBatch(f"{segment.path()}, position {scan.position}: {scan.trouble}")

    def start_below(self, offset: int) -> int:
        """The position of an entry from which on to look for an offset; by the index, as far as the
        log agrees with it."""
        segment = self._segment
        self.notice_changes()
        offsets, base = segment.offsets, segment.base_offset
        number = offsets.count_below(offset - base + 1, segment.written_size)
        for tried in range(number - 1, max(number - 1 - START_TRIES, -1), -1):
            position = offsets.position_of(tried, 0)
            entry = header_at(segment.file, position, segment.written_size)
            if not isinstance(entry, Entry) or entry.last_offset > offset:
                continue
            if position >= self._inherited() or self._is_known(position):
                return position
            if entry.last_offset == offsets.relative_of(tried) + base:
                return position
        return 0

    def entries_from(self, offset: int) -> Iterator[Entry]:
        """The entries from one at or below an offset on, without those that are damaged."""
        self._segment.load()
        for found in self.entries(self.start_below(offset)):
            if isinstance(found, Entry):
                yield found

    def time_floor(self, timestamp_ms: int) -> tuple[int, int] | None:
        """A timestamp at or below this one, the largest that the time index has and the log agrees
        with, and an offset: no record before the end of its set is as late as the next entry's."""
        segment = self._segment
        for timestamp, relative in segment.times.floors(timestamp_ms, START_TRIES):
            offset = segment.base_offset + relative
            if self.inherited == 0:
                return timestamp, offset
            for entry in self.entries_from(offset):
                if entry.last_offset >= offset:
                    if entry.max_timestamp == timestamp:
                        return timestamp, offset
                    break
        return None

    def _inherited(self) -> int:
        return self._segment.byte_size() if self.inherited is None else self.inherited

    def _is_known(self, position: int) -> bool:
        return any(stretch.first <= position < stretch.end for stretch in self._stretches)

    def _damage_at(self, position: int) -> Damage | None:
        for damage in self.damages:
            if damage.position <= position < damage.end:
                return damage
        return None

    def _corrupt(self, damage: Damage) -> CorruptBatch:
        return CorruptBatch(f"{self._segment.path()}, position {damage.position}: {damage.reason}")

    # Walking

    def _stretch_with(self, position: int) -> Stretch:
        """The stretch in which an entry begins, or at the end of which. Raises CorruptBatch if no
        entry begins there."""
        known = self._stretch_around(position)
        if known is not None:
            return known
        stretch = self._begin(position)
        while True:
            self._extend(stretch, position)
            damage = self._damage_at(stretch.end)
            if stretch.end >= position or damage is None or damage.end > position:
                break
            stretch = self._behind(damage, stretch)
        if stretch.end > position and not any(
            isinstance(entry, Entry) and entry.position == position
            for entry in self.entries(stretch.first)
        ):
            raise CorruptBatch(f"{self._segment.path()}: no batch at position {position}")
        return stretch

    def _stretch_around(self, position: int) -> Stretch | None:
        for stretch in self._stretches:
            if stretch.first <= position <= stretch.end:
                return stretch
        return None

    def _behind(self, damage: Damage, stretch: Stretch) -> Stretch:
        """The stretch that begins behind the damage at the end of another one."""
        known = self._stretch_around(damage.end)
        if known is not None:
            return known
        last_offset, last_epoch = stretch.last_offset, stretch.last_epoch
        return self._remember(Stretch(damage.end, last_offset, last_epoch, after_damage=True))

    def _begin(self, position: int) -> Stretch:
        """A new stretch at or below a position, at an entry of which log and index say the same, or
        else some way before it."""
        segment = self._segment
        segment.load()
        offsets, size = segment.offsets, segment.written_size
        number = offsets.count_positions_below(position + 1)
        last_try = max(number - START_TRIES, 0)
        for tried in range(number - 1, last_try - 1, -1):
            start = offsets.position_of(tried, 0)
            entry = header_at(segment.file, start, size)
            if not isinstance(entry, Entry):
                continue
            stated = offsets.relative_of(tried) + segment.base_offset
            is_possible = tried == last_try > 0 and entry.last_offset < stated
            if entry.last_offset == stated or is_possible:
                before = offset_before(entry, segment.base_offset)
                unsure = before != entry.first_offset - 1
                return self._remember(Stretch(start, before, after_damage=unsure))
        return self._remember(Stretch(0, segment.base_offset - 1))

    def _remember(self, stretch: Stretch) -> Stretch:
        if len(self._stretches) >= STRETCHES_MAX:
            del self._stretches[0]
        self._stretches.append(stretch)
        return stretch

    def _extend(self, stretch: Stretch, to: int) -> None:
        """Walk on from the end of a stretch, as far as `to` or until it has been a while."""
        if stretch.end >= to or self._damage_at(stretch.end) is not None:
            return
        segment = self._segment
        segment.load()
        chain = Chain(
            self.segmented(),
            position=stretch.end,
            last_offset=stretch.last_offset,
            last_epoch=stretch.last_epoch,
            after_damage=stretch.after_damage,
        )
        while chain.position < to and chain.looked_at < LOOK_MAX:
            found = chain.step()
            if isinstance(found, Damage):
                self.note(found)
                self._behind(found, stretch)
                break
            chain.skip(to, LOOK_MAX)
            stretch.end, stretch.after_damage = chain.position, chain.after_damage
            stretch.last_offset, stretch.last_epoch = chain.last_offset, chain.last_epoch
        for position in chain.wrong_entries:
            segment.offsets.drop(position)
        self._join(stretch)

    def _join(self, stretch: Stretch) -> None:
        """Have a stretch that has reached another one go on to the end of that."""
        for other in list(self._stretches):
            if other is stretch or not stretch.first <= other.first <= stretch.end:
                continue
            self._stretches.remove(other)
            if other.end > stretch.end:
                stretch.end, stretch.after_damage = other.end, other.after_damage
                stretch.last_offset, stretch.last_epoch = other.last_offset, other.last_epoch

    def segmented(self) -> Segmented:
        """The inherited part of the file, for a walk."""
        segment = self._segment
        return Segmented(
            segment.file,
            segment.base_offset,
            self._inherited(),
            self.end_offset,
            self.epochs,
            segment.offsets if segment.loaded else None,
            segment.times if segment.loaded else None,
        )
