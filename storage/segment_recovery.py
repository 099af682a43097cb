"""Reading one segment after a crash: which of its entries stand, and where it has to end.

Above the recovery point every entry is read whole. What is no whole entry, or contradicts those
beside it, is one of two things:

- What a crash left behind. It writes some sectors and not others, and nothing after that was
  acknowledged unless it had been synced: the log ends there.
- What the disk has done to records that were there. That costs them, and nothing else: the log
  goes on behind them.

It is the latter where a sync had passed it (`synced`), and where one wrong bit, or one
wrong field of the header, explains all of it, with whole entries behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.records.layout import HEADER_SIZE, INT64
from storage.chain import NEVER, Chain, Damage, Segmented, offset_before
from storage.resync import ALTERED_BYTES_MAX, is_altered_entry
from storage.scan import first_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.epochs import LeaderEpochs
    from storage.scan import Entry
    from storage.segment import Segment


SECTOR_BYTES = 512
"""Bytes that a disk writes as a whole; larger sectors begin and end where these do."""


class End(NamedTuple):
    """The end that a log has to have, by position in a segment, and the reason."""

    position: int
    reason: str


class SegmentRecovery:
    """Iterates over the entries of a segment that stand, from some way below the recovery point on.

    Afterwards `next_offset` is the one behind them; `damages` are those that were stepped over, and
    `end` tells where the log has to end, None if that is not in here. `is_closed` if the file ends
    in damage of what was synced: nothing can be appended behind that.
    """

    def __init__(
        self,
        segment: Segment,
        *,
        recovery_point: int,
        synced: int,
        gaps_below: int,
        epochs: LeaderEpochs,
        leader_epoch: int,
        next_base: int | None,
    ) -> None:
        """The first three are as in `storage.recovery.LastKnown`. `next_base` is where the next
        segment begins, None for the last one."""
        self.damages: list[Damage] = []
        self.end: End | None = None
        self.is_closed = False
        self.next_offset = segment.base_offset
        self._segment = segment
        self._synced = max(synced, recovery_point)
        self._next_base = next_base
        position = segment.trust_below(recovery_point)
        size = segment.written_size
        first = first_entry(segment.file, position, size) if position else None
        self._begun_at = position if first is not None else 0
        self._chain = Chain(
            Segmented(
                segment.file,
                segment.base_offset,
                size,
                next_base,
                epochs,
                segment.offsets,
                segment.times,
                gaps_below,
                # The checkpoint is on the disk before a batch of a new epoch counts as synced.
                self._synced,
                leader_epoch or NEVER,
            ),
            position=self._begun_at,
            last_offset=None if first is None else offset_before(first, segment.base_offset),
            after_damage=first is not None and first.magic < 2,
            checked_from=recovery_point,
        )

    def __iter__(self) -> Iterator[Entry]:
        segment, chain = self._segment, self._chain
        # The last process may have ended because a sync failed.
        segment.file.reread(self._begun_at)
        while chain.position < segment.written_size:
            found = chain.step()
            if not isinstance(found, Damage):
                yield found
                self.next_offset = found.last_offset + 1
            elif not self._takes(found):
                break
        for position in chain.wrong_entries:
            segment.offsets.drop(position)
        for damage in self.damages:
            segment.verified.note(damage)

    def _takes(self, damage: Damage) -> bool:
        """Whether the log goes on behind damage; if not, it ends there."""
        size = self._segment.written_size
        was_synced = damage.first_offset < self._synced
        if damage.end == size and self._next_base is None:
            if not was_synced:
                self.end = End(damage.position, damage.reason)
                return False
            self.is_closed = True
            self.next_offset = self._synced
        elif not was_synced and not self._was_whole(damage):
            self.end = End(damage.position, damage.reason)
            return False
        elif damage.end == size and self._next_base is not None:
            self.next_offset = self._next_base
        if damage.next_offset < 0:
            damage = damage._replace(next_offset=self.next_offset)
        self.damages.append(damage)
        return True

    def _was_whole(self, damage: Damage) -> bool:
        size = damage.end - damage.position
        if size > ALTERED_BYTES_MAX:
            return False
        data = self._segment.file.pread(size, damage.position)
        unwritten = -damage.position % SECTOR_BYTES
        offset = INT64.pack(damage.first_offset)
        if 0 < unwritten < HEADER_SIZE and not any(data[:unwritten]) and any(offset[:unwritten]):
            return False  # zeros to where a sector ends, and not only those of its offset
        return is_altered_entry(data)
