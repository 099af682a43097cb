"""Going through a segment by its headers, each one looked at between its neighbours.

Base offset, length, magic and leader epoch of a batch lie under no checksum, and a consumer
believes them. What else knows of them:

    the entry before and the one after   offsets rise, and where they follow each other without a
                                         hole on one side, or leave exactly the room that a batch
                                         takes, there is one base offset that can be right
    the segment's base and the next's    bounds, which are exact where nothing was compacted
    the offset index                     the last offset of every batch that it has an entry for;
                                         compaction sees to it that those beside holes have one
    the time index                       the same of batches later than all before: it tells which
                                         is wrong where a batch and the offset index disagree
    the leader epoch checkpoint          where each epoch began; and epochs never go back
    the batch's checksum                 a wrong length or last offset makes it wrong

What contradicts them is damage of that one batch. The walk goes on behind it: after a header whose
length proved right, else at the next whole entry that there is (`storage.resync`).

Payloads are read only where something is odd. Holes are odd, so a segment that was compacted is
read a good deal more often. What remains unseen there: a batch with a hole beside it that stays
within the hole, if the index has no entry for it. That is so where Apache Kafka has compacted.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from protocol.records.layout import (
    ENTRY_OVERHEAD,
    HEADER_SIZE,
    MAGIC_POSITION,
    MIN_BATCH_LENGTH,
)
from storage.compressed_message import first_inside
from storage.epochs import LeaderEpochs
from storage.offset_index import RELATIVE_OFFSET_MAX
from storage.resync import end_by_length, header_at, is_intact, is_right_sum, next_entries
from storage.scan import LARGE_ENTRY_BYTES, PIECE_BYTES, Entry, entry_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.filesystem import File
    from storage.offset_index import OffsetIndex
    from storage.time_index import TimeIndex

NEVER = 2**63 - 1
"""Above all offsets, and all positions."""

UNKNOWN_EPOCH = -1
"""As in the header of an entry that has none."""

PLACED = Struct(">qiib6xi")
"""Base offset, length, leader epoch, magic and last offset delta of a batch."""

INDEX_TRIES = 64
"""Index entries behind damage that are tried for the next whole entry, before the file is searched
to its end."""


class Damage(NamedTuple):
    """Bytes file[position:end] that are not served, and the offsets first_offset..next_offset - 1
    that were there, or may have been. `next_offset` is -1 if nothing tells."""

    position: int
    end: int
    first_offset: int
    next_offset: int
    reason: str

    def holds(self, offset: int) -> bool:
        """Whether a search for this offset, which has come here, has to end here."""
        return offset < self.next_offset or (self.next_offset < 0 and offset >= self.first_offset)


class Segmented(NamedTuple):
    """The segment that a walk goes through, with what is known of it.

    `end` is the position up to which it goes, and `end_offset` the offset after what lies below
    that: the next segment's base, or the log's end; None if that is what is to be found out.
    `dense_from` is the offset above which there are no holes but by damage, of which only a walk
    without an `end_offset` makes use. The epochs are complete below
    `epochs_below`, and none is above `epoch_max`.
    """

    file: File
    base_offset: int
    end: int
    end_offset: int | None
    epochs: LeaderEpochs
    offsets: OffsetIndex | None = None
    times: TimeIndex | None = None
    dense_from: int = NEVER
    epochs_below: int = NEVER
    epoch_max: int = NEVER


def offset_before(entry: Entry, base_offset: int) -> int:
    """The offset that an entry follows, where a walk begins with it; the segment's base tells if it
    is a compressed message, which does not say where it begins."""
    return base_offset - 1 if entry.magic < 2 and entry.codec else entry.first_offset - 1


class Chain:
    """Iterates over the entries and damages of a segment in order, from an entry that is known.

    `position` is where the next one begins, `last_offset` and `last_epoch` are those of the entry
    before; there is damage between, or what is not known, with `after_damage`. An entry is returned
    when the one after it has been looked at.
    """

    __slots__ = (
        "_ahead", "_boundary", "_buffer", "_checked_from", "_epochs", "_file", "_highest",
        "_indexed", "_of", "_piece", "_start", "_stated", "after_damage", "last_epoch",
        "last_offset", "looked_at", "position", "wrong_entries",
    )  # fmt: skip

    def __init__(
        self,
        segment: Segmented,
        *,
        position: int = 0,
        last_offset: int | None = None,
        last_epoch: int = UNKNOWN_EPOCH,
        after_damage: bool = False,
        checked_from: int = NEVER,
    ) -> None:
        """Go on at `position`, behind an entry with that offset and epoch; by default the segment
        is gone through from its start. Of entries that reach `checked_from` or beyond the checksums
        are compared."""
        base, end_offset = segment.base_offset, segment.end_offset
        self.position = position
        self.last_offset = base - 1 if last_offset is None else last_offset
        self.last_epoch = last_epoch
        self.after_damage = after_damage
        self.looked_at = 0
        """Headers so far; an entry that had to be read counts for its bytes."""
        self.wrong_entries: list[int] = []
        """Positions in the offset index that no entry has, or not with that offset."""
        self._of = segment
        self._file = segment.file
        self._epochs = segment.epochs
        self._checked_from = checked_from
        self._highest = base + RELATIVE_OFFSET_MAX
        if end_offset is not None:
            self._highest = min(self._highest, end_offset - 1)
        self._ahead: Entry | str | None = None
        self._buffer, self._start, self._piece = b"", 0, LARGE_ENTRY_BYTES
        self._indexed = 0  # the number of the first index entry behind the present one
        self._boundary = NEVER  # and its position
        self._stated: int | None = None  # the offset that the index has for the present entry
        self._seek_index(position)

    def __iter__(self) -> Iterator[Entry | Damage]:
        while self.position < self._of.end:
            found = self.step()
            yield found

    def step(self) -> Entry | Damage:
        """The next entry or damage; there must be one."""
        entry = self._ahead or self._header(self.position)
        self._ahead = None
        if self._boundary == self.position:
            self._take_stated()
        fault = self._fault(entry)
        if fault is not None:
            return self._pass(entry, fault)
        assert not isinstance(entry, str)
        self.position = entry.end
        self.last_offset, self.last_epoch = entry.last_offset, entry.leader_epoch
        self.after_damage = False
        if entry.end > self._boundary or self._stated is not None:
            self._compare_index(entry)
        return entry

    def skip(self, to: int, looked_max: int) -> None:
        """Go on past batches that simply follow each other, up to one that begins at `to` or
        beyond, or has more to be said of. The same as `step`, for the many."""
        file, end, offsets = self._file, self._of.end, self._of.offsets
        buffer, start, piece = self._buffer, self._start, self._piece
        position, expected, epoch = self.position, self.last_offset + 1, self.last_epoch
        indexed, boundary, begun_at = self._indexed, self._boundary, position
        while True:
            at = position - start
            if not 0 <= at <= len(buffer) - PLACED.size:
                buffer, start, at = file.pread(min(piece, end - position), position), position, 0
                if len(buffer) < PLACED.size:
                    break
            base, length, of_epoch, magic, delta = PLACED.unpack_from(buffer, at)
            if base != expected or of_epoch != epoch or magic != 2 or delta < 0:
                break
            self.position, self.last_offset = position, expected - 1
            following = position + length + ENTRY_OVERHEAD
            self.looked_at += 1
            if position >= to or self.looked_at >= looked_max:
                break
            if length < MIN_BATCH_LENGTH or following > end or base + delta > self._highest:
                break
            if boundary == position and offsets is not None:
                if offsets.relative_of(indexed) + self._of.base_offset < base + delta:
                    break
                indexed += 1
                boundary = offsets.position_of(indexed, NEVER)
            if boundary < following:
                break
            expected = base + delta + 1
            position = following
            piece = HEADER_SIZE if length >= LARGE_ENTRY_BYTES else PIECE_BYTES
        if self.position != begun_at:
            self.after_damage = False
            self._ahead = None
            self._seek_index(self.position)

    # Reading

    def _header(self, position: int) -> Entry | str:
        end = self._of.end
        at = position - self._start
        if not 0 <= at <= len(self._buffer) - HEADER_SIZE:
            self._buffer = self._file.pread(min(self._piece, end - position), position)
            self._start, at = position, 0
        self.looked_at += 1
        buffer = self._buffer
        size = entry_size(buffer, at)
        if isinstance(size, str):
            return size
        if size > end - position or len(buffer) - at < min(size, HEADER_SIZE):
            return f"an entry of {size} bytes is cut, {end - position} are there"
        large = size >= LARGE_ENTRY_BYTES and self._checked_from == NEVER
        self._piece = HEADER_SIZE if large else PIECE_BYTES
        return Entry(position, size, buffer[at + MAGIC_POSITION], buffer, at)

    def _is_intact(self, entry: Entry) -> bool:
        self.looked_at += entry.size // LARGE_ENTRY_BYTES
        at = entry.position - self._start
        if at < 0 or at + entry.size > len(self._buffer):
            return is_intact(self._file, entry)
        return is_right_sum(memoryview(self._buffer)[at : at + entry.size], entry)

    # What is wrong with an entry

    def _fault(self, entry: Entry | str) -> str | None:
        if isinstance(entry, str):
            return entry
        first, last = entry.first_offset, entry.last_offset
        if not self.last_offset < first <= last <= self._highest and not self._overlaps(entry):
            return self._out_of_bounds(first, last)
        if last >= self._checked_from and not self._is_intact(entry):
            return "the checksum does not fit"
        following: Entry | str | None = None
        if entry.end < self._of.end:
            following = self._ahead = self._header(entry.end)
            if (
                isinstance(following, Entry)
                and following.first_offset == last + 1
                and first == self.last_offset + 1
                and entry.leader_epoch == self.last_epoch == following.leader_epoch
                and entry.end <= self._boundary
                and (entry.magic == 2 or not entry.codec)
            ):
                return None
        return self._doubt(entry, following)

    def _overlaps(self, entry: Entry) -> bool:
        """Whether the segment simply goes on where the next one has begun already."""
        return (
            entry.first_offset == self.last_offset + 1
            and self._highest < entry.last_offset <= self._of.base_offset + RELATIVE_OFFSET_MAX
            and self._is_intact(entry)
        )

    def _out_of_bounds(self, first: int, last: int) -> str:
        if first <= self.last_offset:
            return f"offset {first} follows offset {self.last_offset}"
        if last < first:
            return f"the last offset is {last}, the first {first}"
        return f"offsets {first}..{last}, wanted at most {self._highest}"

    def _doubt(self, entry: Entry, following: Entry | str | None) -> str | None:
        """The same for an entry that does not simply stand between the two beside it."""
        fault = self._epoch_fault(entry, following)
        if fault is not None:
            return fault
        after = self._first_after(following)
        first, last = entry.first_offset, entry.last_offset
        if entry.magic < 2 and entry.codec:
            is_named = self._stated == last and not isinstance(following, str)
            if entry.end <= self._boundary and (is_named or after == last + 1):
                return None
            if not self._is_intact(entry):
                return "the checksum does not fit"
            opened = self._first_inside(entry)
            if opened is None:
                return f"the messages inside do not go with offset {last}"
            first = opened
            if first <= self.last_offset:
                return f"offset {first} follows offset {self.last_offset}"
        else:
            follows = first == self.last_offset + 1
            if follows and after == last + 1 and entry.end <= self._boundary:
                return None
            if not self._is_intact(entry):
                return "the checksum does not fit"
        if first == self.last_offset + 1 and after in (None, last + 1):
            return None
        return self._hole_fault(entry, first, following, after)

    def _hole_fault(
        self, entry: Entry, first: int, following: Entry | str | None, after: int | None
    ) -> str | None:
        """The same for an intact entry with offsets missing before it or behind."""
        expected, last = self.last_offset + 1, entry.last_offset
        if self._stated == last:
            return None  # two that agree are not the damage of one
        if after is None and isinstance(following, Entry) and self._is_intact(following):
            after = self._first_inside(following)
        reason = f"offset {first} stands where {expected} belongs"
        if first == expected or after == last + 1:
            pass
        elif after is not None:
            if after == expected + last - first + 1 and not self.after_damage:
                return reason
            if after <= last and self._gives_way(entry, following):
                return f"offset {first} stands between {self.last_offset} and {after}"
        elif following is None and first > self._of.dense_from and not self.after_damage:
            return reason
        if self._is_denied_by_index(entry, after):
            return f"offset {first} stands where the index has another one"
        return None

    def _first_after(self, following: Entry | str | None) -> int | None:
        """The first offset behind an entry, None if that is not known."""
        if following is None:
            return self._of.end_offset
        if isinstance(following, str) or (following.magic < 2 and following.codec):
            return None
        return following.first_offset

    def _gives_way(self, entry: Entry, following: Entry | str | None) -> bool:
        """Whether it is this of two entries that contradict each other that must be wrong."""
        if not isinstance(following, Entry) or self._stated == entry.last_offset:
            return False
        if following.first_offset <= self.last_offset or not self._is_intact(following):
            return False
        after: int | None = self._of.end_offset
        if following.end < self._of.end:
            after = self._first_after(header_at(self._file, following.end, self._of.end))
        return after is None or following.last_offset < after

    def _epoch_fault(self, entry: Entry, following: Entry | str | None) -> str | None:
        epoch, before = entry.leader_epoch, self.last_epoch
        if entry.magic < 2:
            return None
        after = UNKNOWN_EPOCH
        if isinstance(following, Entry):
            after = following.leader_epoch
        noted = self._epochs.epoch_of(entry.first_offset)
        reason = f"leader epoch {epoch} stands between {before} and {after}"
        if epoch == before:
            began = noted == after > epoch and self._epochs.begins_at(entry.first_offset)
            return reason if began else None
        if (epoch == noted and epoch > before) or epoch == after:
            return None  # two that agree are not the damage of one
        if epoch > self._of.epoch_max:
            return f"leader epoch {epoch} has not been yet"
        if epoch > self._epochs.latest and entry.first_offset >= self._of.epochs_below:
            noted = UNKNOWN_EPOCH  # it may have begun without a sync of the checkpoint
        if before == UNKNOWN_EPOCH:
            if noted == UNKNOWN_EPOCH:
                return reason if UNKNOWN_EPOCH < after < epoch and self._epochs.has(after) else None
            return reason if noted == after or not self._epochs.has(epoch) else None
        if epoch < before or after == before:
            return reason
        if noted != UNKNOWN_EPOCH and noted in (before, after):
            return reason
        return reason if UNKNOWN_EPOCH < after < epoch else None

    def _first_inside(self, entry: Entry) -> int | None:
        self.looked_at += entry.size // 64
        return first_inside(self._file, entry)

    # The offset index

    def _seek_index(self, position: int) -> None:
        offsets = self._of.offsets
        self._stated = None
        if offsets is not None:
            self._indexed = offsets.count_positions_below(position)
            self._boundary = offsets.position_of(self._indexed, NEVER)

    def _take_stated(self) -> None:
        offsets = self._of.offsets
        assert offsets is not None
        self._stated = offsets.relative_of(self._indexed) + self._of.base_offset
        self._indexed += 1
        self._boundary = offsets.position_of(self._indexed, NEVER)

    def _compare_index(self, entry: Entry) -> None:
        """Take what the index says of an entry that has been found good."""
        if self._stated is not None and self._stated < entry.last_offset:
            self.wrong_entries.append(entry.position)
        self._stated = None
        offsets = self._of.offsets
        while offsets is not None and self._boundary < entry.end:
            self.wrong_entries.append(self._boundary)
            self._indexed += 1
            self._boundary = offsets.position_of(self._indexed, NEVER)

    def _is_denied_by_index(self, entry: Entry, after: int | None) -> bool:
        """Whether the offset index has another offset here, and it is the entry that is wrong.

        It may have a higher one, that of a whole set, where sets are entered so: then the set goes
        on behind this entry, or the index entry before has one too high as well.
        """
        stated, offsets, times = self._stated, self._of.offsets, self._of.times
        if stated is None or offsets is None or stated == entry.last_offset:
            return False
        if stated > entry.last_offset:
            if after is not None and after <= stated:
                return False
            number = self._indexed - 2 if self._indexed > 1 else self._indexed
            if number >= len(offsets):
                return False
            beside = header_at(self._file, offsets.position_of(number, 0), self._of.end)
            last = offsets.relative_of(number) + self._of.base_offset
            if not isinstance(beside, Entry) or beside.last_offset != last:
                return False
        dated = times.offset_of(entry.max_timestamp) if times is not None else None
        return dated is None or dated + self._of.base_offset != entry.last_offset

    # Going on behind damage

    def _pass(self, entry: Entry | str, fault: str) -> Damage:
        """Step over what is at `position`, to the next entry that may follow."""
        first_offset, begun_at = self.last_offset + 1, self.position
        self._ahead = None
        position = begun_at
        if not isinstance(entry, str) and self._is_intact(entry):
            position = entry.end
        else:
            stop = end_by_length(self._file, position, self._of.end, self._may_follow)
            position = position if stop is None else stop
        following: Entry | str | None = None
        while position < self._of.end:
            if position > begun_at:
                following = self._header(position)
                if isinstance(following, Entry) and self._may_follow(following):
                    break
            position, following = self._next_whole(position), None
            if position < self._of.end:
                following = self._header(position)
                break
        self.position = position
        self._seek_index(position)
        self.after_damage = True
        next_offset = -1 if self._of.end_offset is None else self._of.end_offset
        if isinstance(following, Entry):
            self._ahead = following
            next_offset = following.first_offset
            if following.magic < 2 and following.codec:
                opened = self._first_inside(following)
                next_offset = next_offset if opened is None else max(opened, first_offset)
        return Damage(begun_at, position, first_offset, next_offset, fault)

    def _may_follow(self, entry: Entry) -> bool:
        return self.last_offset < entry.first_offset <= entry.last_offset <= self._highest

    def _next_whole(self, position: int) -> int:
        """Position of the next whole entry after a position; `end` if there is none."""
        limit = self._next_indexed(position)
        lowest = self.last_offset + 1
        found = next_entries(self._file, position + 1, limit, self._of.end, lowest, self._highest)
        for entry in found:
            if self._leads_on(entry, limit):
                return entry.position
        return limit

    def _next_indexed(self, position: int) -> int:
        """The next position in the index at which there is a whole entry; `end` without one."""
        offsets, end = self._of.offsets, self._of.end
        if offsets is None:
            return end
        first = offsets.count_positions_below(position + 1)
        for number in range(first, min(first + INDEX_TRIES, len(offsets))):
            entry = header_at(self._file, offsets.position_of(number, end), end)
            if isinstance(entry, Entry) and self._may_follow(entry) and self._is_intact(entry):
                return entry.position
        return end

    def _leads_on(self, entry: Entry, limit: int) -> bool:
        """Whether an intact entry is one of the log, and not one that a record holds as its value:
        behind that there is no other."""
        if entry.end in (limit, self._of.end):
            return True
        following = header_at(self._file, entry.end, self._of.end)
        if isinstance(following, str):
            return False
        return following.first_offset > entry.last_offset and self._may_follow(following)
